"""Discrete-event simulator: load, pods with a start time, Triton's batcher, Halcyon's own planner and its peers.

It answers one question: what would this policy have done? Out of scope: the planner (`halcyon.scaling`) and anything that connects to a
cluster. It needs the extra `simulate` (numpy, numba).
"""
