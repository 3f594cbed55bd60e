"""The HPA's algorithm as pure functions, and the metrics that the Rules policy computes for it."""
