"""The command line: one module per noun, over the client. Importing a module loads no gRPC; running a command does."""
