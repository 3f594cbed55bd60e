"""The HPA's algorithm as pure functions, for the policy Rules."""
