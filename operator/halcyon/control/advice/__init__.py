"""Advice on a model's settings, derived from signals that the operator already collects. Pure."""
