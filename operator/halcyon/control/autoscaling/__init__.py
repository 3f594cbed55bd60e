"""The autoscaler: it computes the replicas of each model from the agents' reports, and writes them to `/scale`.

The algorithms are in `halcyon.scaling`. This package collects the inputs of the algorithms and stores their memory. It
also limits and writes the results.
"""
