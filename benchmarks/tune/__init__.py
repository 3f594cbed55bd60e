"""Measurements of what finds settings, teaches the autoscaler and computes data sets: the table `tune`."""
