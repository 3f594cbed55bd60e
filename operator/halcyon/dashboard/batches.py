"""List of a model's BatchInferences on the page of the model in the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halcyon.dashboard.ports import Object

MAX_BATCHES = 50
_ENDED = frozenset({"Completed", "Failed"})


def batches(stored: Iterable[Object], model: str) -> list[dict[str, Any]]:
    """Return the data that the dashboard shows about each BatchInference of a model.

    BatchInferences that haven't ended come first, then the others, each sorted newest first. Unknown values are None.
    """
    documents = [_shown(batch) for batch in stored if (batch.get("spec") or {}).get("modelDeployment") == model]
    documents.sort(key=lambda document: str(document["created"]), reverse=True)
    documents.sort(key=lambda document: document["state"] in _ENDED)
    return documents[:MAX_BATCHES]


def _shown(batch: Object) -> dict[str, Any]:
    metadata, status = batch.get("metadata") or {}, batch.get("status") or {}
    conditions: Mapping[str, Mapping[str, Any]] = {c.get("type"): c for c in status.get("conditions") or ()}
    complete, failed, late = (conditions.get(kind) or {} for kind in ("Complete", "Failed", "OnTime"))
    rows = status.get("rows") or {}
    return {
        "name": metadata.get("name"),
        "created": metadata.get("creationTimestamp"),
        "state": "Failed" if failed.get("status") == "True" else complete.get("reason") or "Pending",
        "message": failed.get("message") or complete.get("message") or "",
        "late": late.get("message") or "" if late.get("status") == "False" else "",
        **{name: rows.get(name) for name in ("total", "done", "failed")},
        **{name: status.get(name) for name in ("rate", "eta")},
        "completed": status.get("completionTime"),
    }
