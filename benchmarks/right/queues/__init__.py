"""Simulations of the balancers' queue."""
