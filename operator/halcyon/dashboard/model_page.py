"""One model -> everything that its page shows, as JSON has it. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import yaml

from halcyon.api import user_annotations
from halcyon.api.conditions import LOUD
from halcyon.api.types import duration_s
from halcyon.dashboard import model_table, pod_start_phases
from halcyon.dashboard.history import FIELDS, STEP_S, Series
from halcyon.dashboard.ports import DashboardPod, Event, ModelNumbers, Object, Past

HIDDEN = "(not shown here)"
_LOUD = {**LOUD, "Ready": "False"}
"""Conditions that a person should read first, and the status that makes them so."""


def page(
    model: Object,
    *,
    servers: Sequence[DashboardPod],
    balancers: Sequence[DashboardPod],
    reading: ModelNumbers,
    newest: Series,
    events: Sequence[Event] = (),
) -> dict[str, Any]:
    """What moves. `newest` is the last point of the history: whoever has the ones before it appends it."""
    meta, status = model["metadata"], model.get("status") or {}
    batching = (model.get("spec") or {}).get("batching") or {}
    scaling = dict(status.get("scaling") or {})
    decisions = scaling.pop("decisions", None) or []
    return {
        "model": asdict(model_table.row(model)),
        "generation": meta.get("generation"),
        "uid": meta["uid"],
        "note": user_annotations.reason(meta),
        "largest_batch": batching.get("maxBatchSize"),
        "latency_target_ms": _latency_target_ms(model),
        "conditions": sorted(status.get("conditions") or (), key=_loudness),
        "scaling": scaling,
        "decisions": decisions,
        "events": [one._asdict() for one in events],
        "rollout": status.get("rollout") or {},
        "revision": status.get("revision") or {},
        "endpoints": status.get("endpoints") or {},
        "loaded": status.get("model") or {},
        "pods": [pod_start_phases.told(one) for one in servers],
        "balancers": [pod_start_phases.told(one) for one in balancers],
        "now": asdict(reading) | {"errors": reading.errors},
        "newest": series(newest),
    }


def _latency_target_ms(model: Object) -> float | None:
    aim = (((model.get("spec") or {}).get("scaling") or {}).get("targets") or {}).get("latency")
    return None if aim is None else duration_s(aim) * 1000


def spec(model: Object, overlay: str) -> dict[str, str]:
    """What was asked for, as YAML, and what is set in the model's configuration for it.

    Values of environment variables are left out: who may look at this page may not be who may read the ModelDeployment.
    """
    asked = copy.deepcopy(dict(model.get("spec") or {}))
    for variable in (asked.get("runtime") or {}).get("env") or ():
        if "value" in variable:
            variable["value"] = HIDDEN
    return {
        "spec": yaml.safe_dump(asked, sort_keys=False, allow_unicode=True, width=100),
        "overlay": json.dumps(json.loads(overlay), indent=2) if overlay else "",
    }


def series(found: Series) -> dict[str, Any]:
    """Points by field."""
    columns: list[list[float | None]] = [[row[index] for row in found.rows] for index in range(len(FIELDS))]
    return {"end": found.end, "step": STEP_S} | dict(zip(FIELDS, columns, strict=True))


def past(found: Past | None) -> dict[str, Any] | None:
    """What the planner remembers of the arrivals."""
    return None if found is None else {"end": found.end, "step": found.step_s, "rate": list(found.rates)}


def _loudness(condition: Object) -> tuple[bool, bool]:
    """The loud ones first, then what isn't known, then the rest, each as the status has them."""
    return _LOUD.get(condition["type"]) != condition["status"], condition["status"] != "Unknown"
