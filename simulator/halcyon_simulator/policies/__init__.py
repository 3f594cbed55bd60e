"""Scaling policies to compare, by name."""
