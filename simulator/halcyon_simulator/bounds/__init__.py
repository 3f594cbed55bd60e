"""Bounds of a case, and the score of a run by comparison with them."""
