"""Analysis of a run: phases, batches, hardware use, energy, cold start, and the verdict on what limited it.

The input is requests, counters and samples. Pure.
"""
