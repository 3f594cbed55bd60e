"""`halcyon simulate`."""
