"""Names of models for completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon_cli.errors import Failure
from halcyon_cli.kube.client import Cluster, Place

COMPLETION_TIMEOUT_S = 2.0
"""Who has pressed Tab waits no longer for a cluster."""


def names(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """Names of models that begin so, by the options that stand before; none where no cluster says."""
    place = Place("get", params.get("kubeconfig"), params.get("context"), params.get("namespace"), COMPLETION_TIMEOUT_S)
    try:
        found = [str(model["metadata"]["name"]) for model in Cluster(place).models()]
    except Failure:
        return []
    return sorted(name for name in found if name.startswith(incomplete))
