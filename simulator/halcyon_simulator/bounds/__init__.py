"""Bounds that no policy can beat, and the score of a run."""
