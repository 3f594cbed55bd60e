"""Sampling of servers, balancers and machines during a run. The samples are the input of `breakdown`, which is pure."""
