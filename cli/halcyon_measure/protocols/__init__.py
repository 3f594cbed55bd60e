"""Clients for the protocols of inference servers. Each sends prepared bytes and returns an outcome and times."""
