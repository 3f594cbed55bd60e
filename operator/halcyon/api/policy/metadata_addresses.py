"""Where clouds tell a machine of itself: addresses that nothing which a tenant names may lead to. Constants alone: the fetcher loads them."""

from __future__ import annotations

LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
METADATA = (
    "100.100.100.200",  # Alibaba
    "168.63.129.16",  # Azure's agent
    "192.0.0.192",  # Oracle, older
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google
)
"""Addresses at which clouds tell a machine of itself and that aren't link-local. AWS' was read in its documentation; the others are those that are commonly listed. Where
private networks are closed, all of them are anyway, but for Azure's."""
