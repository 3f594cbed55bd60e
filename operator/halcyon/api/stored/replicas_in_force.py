"""Number of replicas of a stored ModelDeployment that is in force, for readers that don't know the accepted spec. Pure.

Another version may have written the ModelDeployment, so a value of a wrong type counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def replicas_in_force(model: Mapping[str, Any]) -> int:
    """Return spec.replicas, within the limits of spec.scaling. The limits of a rejected spec don't apply.

    Without spec.scaling, an external HPA on the Deployment bypasses spec.replicas. In this case, return the number of
    pods.
    """
    spec, status = _mapping(model.get("spec")), _mapping(model.get("status"))
    states = {(c.get("type"), c.get("status")) for c in _mappings(status.get("conditions"))}
    count, scaling = _number(spec.get("replicas"), 1), _mapping(spec.get("scaling"))
    if not scaling and ("AutoscalerConflict", "True") in states:
        return _number(status.get("replicas"), count)
    if not scaling or ("Accepted", "False") in states:
        return count
    # A lower maximum of a schedule wins over minReplicas (`defaults.least_replicas`).
    schedules = _mappings(scaling.get("schedules")) if scaling.get("policy") != "Rules" else []
    low = _number(scaling.get("minReplicas"), 1)
    low = min([low, *(_number(schedule.get("maxReplicas"), low) for schedule in schedules)])
    return min(max(count, low), _number(scaling.get("maxReplicas"), count))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return list(map(_mapping, value)) if isinstance(value, list) else []


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
