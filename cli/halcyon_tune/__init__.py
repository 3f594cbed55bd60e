"""Search for the settings with which a model serves the most requests within its latency objective.

The package is pure: the caller measures, and passes the measurements to the search.
"""
