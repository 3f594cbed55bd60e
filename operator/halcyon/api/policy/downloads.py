"""Proxy and certificates with which a site's pods connect to the servers from which they download models."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from halcyon.api.types import ApiModel, DnsName

_PROXY = r"http://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9a-f:.]+\]):[0-9]{1,5}/?"


class SiteDownloads(ApiModel):
    """Proxy and certificates for the downloads of all models."""

    proxy: Annotated[str, StringConstraints(pattern=f"^{_PROXY}$", max_length=300)] | None = None
    """URL of the HTTP proxy, with a port; None if pods connect directly."""
    no_proxy: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:_/-]+$", max_length=300)], ...] = ()
    """Hosts that are reached without the proxy: names, suffixes that begin with a dot, addresses, and networks in CIDR notation."""
    ca_config_map: DnsName | None = None
    """Name of a ConfigMap that each model's namespace has, with trusted CA certificates in its key `ca.crt`; None if
    there is none."""


NO_DOWNLOADS = SiteDownloads.defaults()
