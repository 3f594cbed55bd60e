"""Measurement of several ModelDeployments in turns, with a copy of each and one client for all."""
