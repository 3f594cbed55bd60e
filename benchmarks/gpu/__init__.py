"""Checks of what Halcyon learns from batches and GPU counters, against recordings from a real GPU."""
