"""Measurement of points for a tuning run, in a trial pod whose server changes its configuration in place."""
