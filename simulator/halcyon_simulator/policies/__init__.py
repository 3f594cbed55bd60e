"""The scalers that are compared, by name."""
