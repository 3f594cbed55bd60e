"""Canaries of `halcyon tune --apply`: the change of a model's spec, its rollout as a canary, and its reversal."""
