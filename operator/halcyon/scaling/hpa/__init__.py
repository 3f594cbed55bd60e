"""The HPA's rules and algorithm as pure functions, for the policy Rules."""
