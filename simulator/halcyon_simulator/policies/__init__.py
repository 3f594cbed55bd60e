"""The scaling policies that are compared, by name."""
