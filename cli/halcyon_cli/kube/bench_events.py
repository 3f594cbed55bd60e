"""Events about measurements of a served model, which can be the reason for a rise of its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halcyon.api.types import KIND
from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

EVENT = Kind("v1", "Event", "events")
BEGAN, ENDED = "BenchStarted", "BenchEnded"
MAX_SHOWN = 4


def recent(cluster: Cluster, model: str) -> list[tuple[str, str]]:
    """Return (reason, text) for each recent Event about measurements of a model.

    The result is empty if the user may not read Events.
    """
    try:
        events = cluster.items(EVENT, fields=f"involvedObject.name={model},involvedObject.kind={KIND}") or []
    except ClusterError:
        return []
    return summaries(events)


def summaries(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (reason, text) for each Event about a measurement, newest first. Pure."""
    bench_events = [event for event in events if event.get("reason") in {BEGAN, ENDED}]
    # Of two Events of the same second, the one about the end is newer.
    bench_events.sort(key=lambda event: (str(event.get("lastTimestamp")), event.get("reason") == ENDED), reverse=True)
    return [
        (
            str(event["reason"]),
            f"{fields.text(event.get('lastTimestamp')) or 'at an unknown time'}: {fields.text(event.get('message')) or ''}",
        )
        for event in bench_events[:MAX_SHOWN]
    ]
