"""Model names for completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon_cli.errors import Failure
from halcyon_cli.kube.client import Cluster, Target

COMPLETION_TIMEOUT_S = 2.0
"""A user who has pressed Tab waits no longer for a cluster."""


def model_names(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """Return the model names with this prefix, for the given options; none if the cluster doesn't respond."""
    target = Target(
        "get", params.get("kubeconfig"), params.get("context"), params.get("namespace"), COMPLETION_TIMEOUT_S
    )
    try:
        model_list = [str(model["metadata"]["name"]) for model in Cluster(target).models()]
    except Failure:
        return []
    return sorted(name for name in model_list if name.startswith(incomplete))
