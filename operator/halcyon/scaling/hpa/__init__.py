"""The HPA's rules and algorithm as pure functions, used by the policy Rules."""
