"""Grids of loads: their points, and the section of their results. Pure."""
