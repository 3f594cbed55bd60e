"""perf_analyzer of NVIDIA as a second load engine: the same load, data and target, and the difference of the figures.

perf_analyzer is a program that the user installs. It is never a dependency of Halcyon.
"""
