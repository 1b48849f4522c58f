"""The wire contract in Python: generated stubs, and the translation of errors."""
