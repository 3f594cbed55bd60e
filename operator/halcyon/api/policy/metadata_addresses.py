"""Addresses of the metadata services of clouds, which no address that a tenant names may lead to.

Constants only: the fetcher loads them.
"""

from __future__ import annotations

LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
METADATA = (
    "100.100.100.200",  # Alibaba
    "168.63.129.16",  # Azure's agent
    "192.0.0.192",  # Oracle, older
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google
)
"""Metadata addresses that are not link-local. AWS' was read in its documentation; the others are those that are
commonly listed. If private networks are closed, all of them are closed anyway, except Azure's."""
