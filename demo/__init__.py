"""Demo that shows Halcyon's main functions end to end, with measurements.

Run it with `make demo` or `python -m demo --help`. Each part (serving, batching, scaling, footprint) is a module of
functions that measure and return values. The scenarios in `e2e/scenarios` assert on the same functions. Out of scope:
creating a cluster (`e2e.cluster`) and building images (`images`).
"""
