"""Features that depend on the API server's version. `make test-compat` runs these tests with several versions."""

from __future__ import annotations

import re

from e2e.cluster.cluster import Cluster


def minor(cluster: Cluster) -> int:
    """Return the minor version, for example 35 for 1.35."""
    version = cluster.api.call("GET", "/version").body
    assert version is not None
    return int(re.sub(r"\D.*", "", str(version["minor"])))


def declares_tolerance(cluster: Cluster) -> bool:
    """Return True if the schema of an HPA contains `tolerance` (KEP-4951), as an alpha field from 1.33 on."""
    return minor(cluster) >= 33


def has_image_volumes(cluster: Cluster) -> bool:
    """Return True if pods can have image volumes (KEP-4639), which are enabled by default from 1.35 on."""
    return minor(cluster) >= 35


def keeps_tolerance(cluster: Cluster) -> bool:
    """Return True if the API server stores `tolerance`, which is enabled by default from 1.35 on."""
    return minor(cluster) >= 35


def has_resource_claims(cluster: Cluster) -> bool:
    """Whether it has resource.k8s.io/v1, and pods can have claims (KEP-4381): by default from 1.34 on."""
    return minor(cluster) >= 34
