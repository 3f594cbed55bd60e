"""Implementation of the command `halcyon simulate`."""
