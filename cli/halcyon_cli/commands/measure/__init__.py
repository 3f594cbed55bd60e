"""Commands that make or show measurements, except `halcyon bench`."""
