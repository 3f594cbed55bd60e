"""Clients for the protocols of inference servers. They send prepared bytes and return outcomes and times."""
