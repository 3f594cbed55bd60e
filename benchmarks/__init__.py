"""Benchmarks of Halcyon's reaction time: from a step of the load to the write of /scale.

They run with one model, with a fleet of models, and on real pods. Start them with `python -m benchmarks.reaction`
(`make bench-reaction`). Each part is a module. Every row of build/bench/reaction.json lists which components were
simulated. Out of scope: the comparison of policies by simulation (`halcyon_simulator.benchmark.table`).
"""
