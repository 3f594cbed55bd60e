"""Load on a served model, and what came of it: closed or open loop, gRPC or HTTP, bounded in time and count.

`python -m e2e.load --help` is the way in; `e2e.load.process` runs it beside a program that has other things to do. What a
figure means for Halcyon (budgets, comparisons) doesn't belong here.
"""
