"""Discrete-event simulator: load, pods with a start time, Triton's batcher, Halcyon's own planner and its peers.

What belongs here: everything that answers "what would this policy have done?". Not here: the planner (`halcyon.scaling`)
and anything that talks to a cluster. Needs the extra `simulate` (numpy, numba).
"""
