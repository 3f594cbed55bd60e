"""JSON documents for the page of one model. Pure."""

from __future__ import annotations

import copy
import difflib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import yaml

from halcyon.api import user_annotations
from halcyon.api.conditions import LOUD
from halcyon.dashboard import model_row, pod_start_phases
from halcyon.dashboard.history import FIELDS, STEP_S, Series
from halcyon.dashboard.ports import DashboardPod, Event, ModelNumbers, Object, Past, StoredRevision

log = logging.getLogger(__name__)

HIDDEN = "(not shown here)"
_RESTRICTED = re.compile(r"^(--(?:http-restricted-api|grpc-restricted-protocol)=[^=]*=).*$")
"""Pattern of Triton's arguments with the header for its restricted APIs, which not all users may read."""
_LOUD = {**LOUD, "Ready": "False"}
"""Condition types that need a user's attention, each with the status that signals the problem."""


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes texts such as `y` and `1e3`, which kubectl would read as a boolean and a number."""


_OTHER_TYPE = re.compile(r"^(?:[yYnN]|[-+]?(?:0[bBoOxX][\da-fA-F_]+|\.?\d[\d_]*(?:\.[\d_]*)?(?:[eE][-+]?\d+)?))$")
_Dumper.add_implicit_resolver("other-type", _OTHER_TYPE, list("yYnN-+.0123456789"))


def page(
    model: Object,
    *,
    servers: Sequence[DashboardPod],
    balancers: Sequence[DashboardPod],
    numbers: ModelNumbers,
    newest: Series,
    events: Sequence[Event] = (),
) -> dict[str, Any]:
    """Return the document with the current state of the model.

    `newest` is the newest point of the history, which the page appends to the points that it already has. If the stored
    object is malformed, the document has the same fields, but values only for those that don't depend on the object.
    """
    build = partial(_page, servers=servers, balancers=balancers, numbers=numbers, newest=newest, events=events)
    try:
        return build(model)
    except Exception:  # a malformed object
        meta = {name: str(model["metadata"].get(name) or "") for name in ("namespace", "name")}
        log.exception("a ModelDeployment can't be shown", extra={"key": f"{meta['namespace']}/{meta['name']}"})
        document = build({"metadata": meta})
        return document | {"model": document["model"] | {"reason": model_row.UNREADABLE}}


def _page(
    model: Object,
    *,
    servers: Sequence[DashboardPod],
    balancers: Sequence[DashboardPod],
    numbers: ModelNumbers,
    newest: Series,
    events: Sequence[Event],
) -> dict[str, Any]:
    meta, status = model["metadata"], model.get("status") or {}
    batching = (model.get("spec") or {}).get("batching") or {}
    scaling = dict(status.get("scaling") or {})
    decisions = scaling.pop("decisions", None) or []
    row = model_row.row(model)
    return {
        "model": asdict(row),
        "problems": model_row.problems(row, newest.load),
        "access_log": ((model.get("spec") or {}).get("traffic") or {}).get("accessLog") or "None",
        "generation": meta.get("generation"),
        "note": user_annotations.reason(meta),
        "largest_batch": batching.get("maxBatchSize"),
        "latency_target_ms": model_row.latency_target_ms(model),
        "conditions": sorted(status.get("conditions") or (), key=_urgency),
        "scaling": scaling,
        "capacity": status.get("capacity") or {},
        "decisions": decisions,
        "advice": status.get("advice") or [],
        "events": [event._asdict() for event in events],
        "revision": status.get("revision") or {},
        "address": status.get("address") or {},
        "pods": [pod_start_phases.pod_document(pod) for pod in servers],
        "balancers": [pod_start_phases.pod_document(pod) for pod in balancers],
        "now": asdict(numbers) | {"errors": numbers.errors},
        "newest": series(newest),
    }


def spec(model: Object, overlay: str) -> dict[str, str]:
    """Return the spec and Halcyon's changes to the model's configuration, both as text for the page.

    Values of environment variables are replaced by `HIDDEN`, because they may contain credentials that not all users of
    the page may see. A malformed spec is not shown, for the same reason.
    """
    try:
        shown = copy.deepcopy(dict(model.get("spec") or {}))
        for variable in (shown.get("runtime") or {}).get("env") or ():
            if variable.get("value") is not None:
                variable["value"] = HIDDEN
    except (TypeError, ValueError, AttributeError):
        shown = {"malformed": HIDDEN}
    return {
        "spec": yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100),
        "overlay": json.dumps(json.loads(overlay), indent=2) if overlay else "",
    }


def revisions(stored: Sequence[StoredRevision], current: str, target: str) -> dict[str, Any]:
    """Return the revisions, newest first, each with the lines in which it differs from the revision before it.

    A line is a pair of " ", "+" or "-" and the text. Values of environment variables are replaced by `HIDDEN`. The
    oldest stored revision has no lines, because the revision before it is unknown.
    """
    ordered = sorted(stored, key=lambda revision: revision.number)
    seen: dict[str, list[str]] = {}
    texts = [_revision_text(revision, seen) for revision in ordered]
    documents = []
    for index, (number, name) in enumerate((revision.number, revision.name) for revision in ordered):
        changed = [] if index == 0 else _difference(texts[index - 1], texts[index])
        role = "current" if name == current else "target" if name == target else ""
        documents.append({"name": name, "number": number, "role": role, "diff": changed, "first": index == 0})
    return {"revisions": documents[::-1]}


def _revision_text(revision: StoredRevision, seen: dict[str, list[str]]) -> list[str]:
    """Return a revision as lines of YAML. The values of environment variables are hidden and numbered.

    `seen` contains each variable's values in earlier revisions. A different number shows that the value has changed.
    """
    template = copy.deepcopy(dict(revision.template))
    pod = template.get("spec") or {}
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        for variable in container.get("env") or ():
            if variable.get("value") is not None:
                values = seen.setdefault(f"{container.get('name')}/{variable.get('name')}", [])
                if (value := str(variable["value"])) not in values:
                    values.append(value)
                variable["value"] = f"{HIDDEN}, value {values.index(value) + 1}"
        if container.get("args"):
            container["args"] = [_RESTRICTED.sub(rf"\1{HIDDEN}", str(argument)) for argument in container["args"]]
    shown = {"pod": template, "config.pbtxt": json.loads(revision.overlay) if revision.overlay else {}}
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=100).splitlines()


def _difference(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    return [(line[0] if line[0] in "+-" else " ", "…" if line.startswith("@@") else line[1:]) for line in lines]


def series(points: Series) -> dict[str, Any]:
    """Return the points of the history as JSON, with a list of values for each field."""
    columns: list[list[float | None]] = [[row[index] for row in points.rows] for index in range(len(FIELDS))]
    return {"end": points.end, "step": STEP_S} | dict(zip(FIELDS, columns, strict=True))


def past(arrivals: Past | None) -> dict[str, Any] | None:
    """Return the past arrivals that the planner has stored, as JSON; None if there are none."""
    return None if arrivals is None else {"end": arrivals.end, "step": arrivals.step_s, "rate": list(arrivals.rates)}


def _urgency(condition: Object) -> tuple[bool, bool]:
    """Return a key that sorts conditions that need attention first, then those that are unknown, then all others."""
    return _LOUD.get(condition["type"]) != condition["status"], condition["status"] != "Unknown"
