"""Measurements of the first quarter of an hour: installation, first model, command line and release."""
