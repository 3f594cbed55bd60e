"""Intervals for means of few independent values. Pure."""
