"""Sweeps over grids of loads: the points of a grid, and the section of a document with their results. Pure."""
