"""Events about the measurement of a served model, which show other users why its load rose."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halcyon.api.types import API_VERSION, KIND
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.bench_events import BEGAN, ENDED, EVENT
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]


def event(model: Json, *, now: datetime, began: bool, ended: str | None = None) -> dict[str, Any]:
    """Return the Event for the beginning or the end of a measurement. Pure, except for its random name."""
    meta, reason = model["metadata"], BEGAN if began else ENDED
    at = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    message = (
        "halcyon bench --live sends requests to this model, in steps of a rising rate"
        if began
        else f"halcyon bench --live has ended{': ' + ended if ended else ''}"
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta.get("namespace"), "name": f"{meta['name']}.bench.{uuid.uuid4().hex[:10]}"},
        "involvedObject": {
            "apiVersion": API_VERSION, "kind": KIND, "namespace": meta.get("namespace"), "name": meta["name"], "uid": meta["uid"]
        },
        "reason": reason,
        "message": message[:1000],
        "type": "Normal",
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "halcyon-bench"},
    }  # fmt: skip


def record(cluster: ObjectWriter, model: Json, *, began: bool, ended: str | None = None) -> None:
    """Create the Event. If the user lacks the permission, print a note and continue."""
    try:
        cluster.create(EVENT, event(model, now=datetime.now(UTC), began=began, ended=ended))
    except ClusterError as error:
        print(f"halcyon bench: without an Event at the model: {error}", file=sys.stderr)
