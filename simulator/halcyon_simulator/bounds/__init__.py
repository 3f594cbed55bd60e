"""Bounds that no scaler can beat, and the score of an outcome."""
