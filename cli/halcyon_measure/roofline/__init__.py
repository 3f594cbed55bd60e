"""Roofline of a machine, given by its peak compute rate and memory bandwidth, with measured points below it. Pure."""
