"""Advice on the settings of a model, from signals that the operator has anyway. Pure."""
