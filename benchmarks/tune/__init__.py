"""Measurements of `halcyon tune`, and of what the autoscaler is taught."""
