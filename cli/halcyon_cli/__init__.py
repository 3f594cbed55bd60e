"""The command line interface, available as `halcyon` and `kubectl halcyon`."""
