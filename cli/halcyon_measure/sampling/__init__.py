"""Readings of servers, balancers and machines during a run: the shell around `breakdown`."""
