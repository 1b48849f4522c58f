"""The measuring tool: load generators, a bare server to compare with, and the workloads' figures.

It speaks to a broker as any client does and reads its process from outside; it must not know how the broker works.
"""
