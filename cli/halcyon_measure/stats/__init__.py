"""Confidence intervals for means of a few independent values. Pure."""
