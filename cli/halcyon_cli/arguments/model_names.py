"""Model names for shell completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon_cli.errors import Failure
from halcyon_cli.kube.client import Cluster, Target

COMPLETION_TIMEOUT_S = 2.0
"""Request timeout in seconds. It is short because the user waits after pressing Tab."""


def model_names(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """Return the model names that start with `incomplete`, or an empty list if the cluster doesn't respond."""
    target = Target(
        "get", params.get("kubeconfig"), params.get("context"), params.get("namespace"), COMPLETION_TIMEOUT_S
    )
    try:
        model_list = [str(model["metadata"]["name"]) for model in Cluster(target).models()]
    except Failure:
        return []
    return sorted(name for name in model_list if name.startswith(incomplete))
