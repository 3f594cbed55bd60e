"""Search for the settings with which a model serves the most requests within its latency objective.

Pure: measurements come from outside.
"""
