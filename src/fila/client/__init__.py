"""The client: a core without I/O (batching, deliveries, runs, messages) and its faces (aio).

It speaks the wire contract and knows nothing of the broker's inside. Importing this package loads no gRPC;
importing `fila.client.aio` does.
"""
