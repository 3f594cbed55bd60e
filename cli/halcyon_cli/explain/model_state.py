"""Conditions of a model, and whether it is starting, from its ModelDeployment in the API server. Pure.

Another version of the operator may have written the object.
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


def is_starting(model: Json) -> bool:
    """Return whether a model without a ready server may be starting; otherwise this is an outage.

    It may be starting if it was never served, or if it could have had zero replicas, which minReplicas 0 allows.
    """
    spec, status = fields.mapping(model.get("spec")), fields.mapping(model.get("status"))
    history = fields.mappings(fields.mapping(status.get("rollout")).get("history"))
    was_served = any(past.get("result") == "Served" for past in history)
    return not was_served or fields.count(fields.mapping(spec.get("scaling")).get("minReplicas")) == 0
