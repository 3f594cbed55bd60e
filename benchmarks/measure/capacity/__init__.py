"""Searches for the capacity of real Tritons, one law at a time, and fine sweeps beside them. Row 4.1 has their results."""
