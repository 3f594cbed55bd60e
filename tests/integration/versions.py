"""What depends on the version of the API server: `make test-compat` runs these tests on several."""

from __future__ import annotations

import re

from e2e.cluster.cluster import Cluster


def minor(cluster: Cluster) -> int:
    """35 of 1.35."""
    told = cluster.api.call("GET", "/version").body
    assert told is not None
    return int(re.sub(r"\D.*", "", str(told["minor"])))


def declares_tolerance(cluster: Cluster) -> bool:
    """Whether the schema of an HPA has `tolerance` (KEP-4951): alpha, and in the schema, from 1.33 on."""
    return minor(cluster) >= 33


def has_image_volumes(cluster: Cluster) -> bool:
    """Whether pods can have image volumes (KEP-4639): by default from 1.35 on."""
    return minor(cluster) >= 35


def keeps_tolerance(cluster: Cluster) -> bool:
    """Whether it is kept: by default from 1.35 on."""
    return minor(cluster) >= 35


def has_resource_claims(cluster: Cluster) -> bool:
    """Whether it has resource.k8s.io/v1, and pods can have claims (KEP-4381): by default from 1.34 on."""
    return minor(cluster) >= 34
