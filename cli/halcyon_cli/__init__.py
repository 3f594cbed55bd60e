"""The command line, `halcyon` and `kubectl halcyon`."""
