"""The rules: who is served next, what a lease is worth, what must be written. Pure and deterministic.

Nothing in here reads a clock, draws a random number, opens a file or knows of a wire format. Time and
identifiers come in with the commands.
"""
