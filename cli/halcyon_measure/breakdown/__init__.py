"""Analysis of a run: phases, batches, hardware use, energy, cold start, and the verdict on its limit.

The input is requests, counters and samples. Pure.
"""
