"""Bounds of a simulation case, and the score of a run by comparison with them."""
