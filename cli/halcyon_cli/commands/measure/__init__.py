"""Commands that read or make measurements, beside `halcyon bench` itself."""
