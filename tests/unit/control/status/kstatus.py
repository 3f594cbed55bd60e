"""The interpretation of a custom resource's status by tools that wait for objects (kstatus: Flux, kpt and others).

Source: sigs.k8s.io/cli-utils, pkg/kstatus: generic properties first, in the order of the list, then the Ready
condition.
"""

from __future__ import annotations

from typing import Any


def compute(resource: dict[str, Any]) -> str:
    """Return `Terminating`, `InProgress`, `Failed` or `Current`."""
    meta, status = resource["metadata"], resource.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if "observedGeneration" in status and status["observedGeneration"] != meta["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or []
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    ready = next((c["status"] for c in conditions if c["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
