"""The HPA's algorithm as pure functions, and the metrics that the policy Rules computes for it."""
