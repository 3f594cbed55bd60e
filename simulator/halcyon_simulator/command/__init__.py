"""The command `halcyon simulate`."""
