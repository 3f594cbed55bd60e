"""How quickly Halcyon reacts, measured: from a step of the load to the write of /scale, alone, in a fleet, and on real pods.

`python -m benchmarks.reaction` (`make bench-reaction`) is the way in; each part is a module. What is real and what is a
stand-in is said in every row of build/bench/reaction.json. Policies compared in simulation are `halcyon_simulator.benchmark.table`'s.
"""
