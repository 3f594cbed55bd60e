"""Commands that read or make measurements, except `halcyon bench`."""
