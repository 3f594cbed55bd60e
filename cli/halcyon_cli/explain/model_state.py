"""Replicas in force, and whether a model is starting, from its ModelDeployment in the API server. Pure.

The rules are those of the operator's dashboard (`halcyon.dashboard.model_row`), for objects that another version of the
operator may have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon_cli.kube import fields

Json = Mapping[str, Any]


def conditions(model: Json) -> dict[str, Json]:
    """Return the conditions of a model by their type."""
    status = fields.mapping(model.get("status"))
    return {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}


def replicas_in_force(model: Json) -> int:
    """Return spec.replicas, within the limits of spec.scaling. The limits of a rejected spec don't apply.

    Without spec.scaling, an external HPA on the Deployment bypasses spec.replicas. In this case, return the number of
    pods.
    """
    spec, status, by_type = fields.mapping(model.get("spec")), fields.mapping(model.get("status")), conditions(model)
    replicas, scaling = _number(spec.get("replicas"), 1), fields.mapping(spec.get("scaling"))
    if not scaling:
        has_external_hpa = by_type.get("AutoscalerConflict", {}).get("status") == "True"
        return _number(status.get("replicas"), replicas) if has_external_hpa else replicas
    if by_type.get("Accepted", {}).get("status") == "False":
        return replicas
    # A lower maximum of a schedule wins over minReplicas.
    schedules = fields.mappings(scaling.get("schedules")) if scaling.get("policy") != "Rules" else ()
    least = _number(scaling.get("minReplicas"), 1)
    least = min([least, *(_number(schedule.get("maxReplicas"), least) for schedule in schedules)])
    return min(max(replicas, least), _number(scaling.get("maxReplicas"), replicas))


def is_starting(model: Json) -> bool:
    """Return whether a model without a ready server may be starting; otherwise this is an outage.

    It may be starting if it was never served, or if it could have had zero replicas, which minReplicas 0 allows.
    """
    spec, status = fields.mapping(model.get("spec")), fields.mapping(model.get("status"))
    history = fields.mappings(fields.mapping(status.get("rollout")).get("history"))
    was_served = any(past.get("result") == "Served" for past in history)
    return not was_served or fields.count(fields.mapping(spec.get("scaling")).get("minReplicas")) == 0


def _number(value: object, default: int) -> int:
    number = fields.count(value)
    return default if number is None else number
