"""Addresses of the clouds' instance metadata services, to which no download of a tenant may connect.

The module contains only constants, because the fetcher loads it.
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
"""Addresses of metadata services that are not link-local.

The address of AWS comes from its documentation, and the other addresses come from widely used lists. Except for
Azure's, all of them are in private networks, to which downloads may connect only if the site policy allows it."""
