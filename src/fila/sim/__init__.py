"""The simulator: a virtual clock, seeded workloads, and a checker that judges a core from outside.

It knows the core's commands and outcomes and nothing else of fila: stores and crashes come from whoever hosts the core
(`tests/simulation` with the commit path and a store that fails). A run is a pure function of its seed.
"""
