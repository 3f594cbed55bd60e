"""Scaling policies that are compared, by name."""
