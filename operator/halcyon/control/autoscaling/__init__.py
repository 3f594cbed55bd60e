"""The autoscaler, which decides the replicas of each model from the agents' reports and writes them to `/scale`.

The algorithms are in `halcyon.scaling`. This package collects their inputs, stores their memory, and limits and writes
results.
"""
