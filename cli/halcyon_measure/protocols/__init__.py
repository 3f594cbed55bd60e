"""Clients for the protocols of inference servers. Each sends prepared bytes and returns a status and times."""
