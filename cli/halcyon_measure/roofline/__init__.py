"""Roofline of a machine, set by its peak compute rate and memory bandwidth, with measured points below it. Pure."""
