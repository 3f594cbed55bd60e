"""Load on a served model, and its results: closed or open loop, gRPC or HTTP, with a limited duration and number.

The command line is `python -m e2e.load --help`; `e2e.load.process` runs a load in a separate process. Out of scope: the
interpretation of results (budgets, comparisons).
"""
