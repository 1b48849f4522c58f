"""Durable, ordered bytes: the port and its engines."""
