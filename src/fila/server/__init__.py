"""The edges: gRPC in, commands to the broker, answers out. Decides nothing about messages."""
