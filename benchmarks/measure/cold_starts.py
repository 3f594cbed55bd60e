"""Row 3.5: cold starts on the embedded cluster, against the times that Kubernetes has of them.

python -m benchmarks.measure.cold_starts
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import place
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_events, start_watch
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.breakdown import cold_start

_STARTS = 5


def row_5() -> Row:
    """Cold starts of the digits model on the embedded cluster."""
    with place.embedded() as on:
        return cold_starts(on.kube.kubeconfig, "digits")


def cold_starts(kubeconfig: Path, model: str) -> Row:
    """Starts of a served model's pods: their parts, and each boundary against the pod's own times, which have whole seconds."""
    writer = ObjectWriter(Target("bench", kubeconfig=kubeconfig, namespace="default"))
    seen: dict[str, Mapping[str, Any]] = {}
    ended = threading.Event()
    looking = threading.Thread(target=_look, args=(writer, model, seen, ended), daemon=True)
    looking.start()
    try:
        # The first one has started before it was watched.
        found = start_watch.watch(writer, model, model=model, starts=_STARTS + 1, timeout_s=120, keep=lambda: None)[1:]
        time.sleep(1)
    finally:
        ended.set()
        looking.join()
    parts_off: list[float] = []
    boundary_off: list[float] = []
    raw = []
    for one in found:
        if one.failure or one.ready is None or one.pod not in seen:
            continue
        split, notes = cold_start.parts(one)
        whole = one.ready - one.created
        parts_off.append(100 * abs(sum(split.values()) - whole) / whole)
        known = stamps(seen[one.pod])
        offs = {name: outside(getattr(one, name), stamp) for name, stamp in known.items()}
        boundary_off += offs.values()
        raw.append({"start": one.__dict__, "parts": split, "notes": notes, "stamps": known, "off_s": offs})
    return Row(
        id="3.5",
        what="parts of a cold start against the whole, and each boundary against the pod's own times",
        value={
            "starts": len(parts_off),
            "parts_off_percent": round(max(parts_off), 2) if parts_off else None,
            "boundary_off_s": round(max(boundary_off), 3) if boundary_off else None,
        },
        target="parts within 5 % of the whole; each boundary within 0.15 s; 5 starts",
        limits=[("parts_off_percent", 5, "<="), ("boundary_off_s", 0.15, "<="), ("starts", _STARTS, ">=")],
        command="python -m benchmarks.measure.cold_starts",
        stand_ins="a Python model that sleeps stands in for a GPU; server and control plane share two cores; times of pods "
        "have whole seconds, so a boundary within its second is 0 s off",
        why="" if len(parts_off) >= _STARTS else f"{len(parts_off)} of {_STARTS} starts became ready",
        n=len(parts_off),
        law="5 + 0.5 b ms, batch 16",
        load="none; the pod is deleted for each start",
        raw=raw,
    )


def stamps(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return the boundaries of a pod's start by its status, in seconds since the epoch."""
    status = pod["status"]
    conditions = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    states = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
    began = {
        one["name"]: (one["state"].get("running") or one["state"].get("terminated") or {}).get("startedAt")
        for one in states
    }
    found = {
        "bound": conditions["PodScheduled"],
        "first_container": min(filter(None, began.values())),
        "server_container": began[names.TRITON],
        "ready": conditions["Ready"],
    }
    return {name: datetime.fromisoformat(stamp).timestamp() for name, stamp in found.items() if stamp}


def outside(seen: float | None, stamp: float) -> float:
    """Return how far a boundary lies outside of the second of its stamp, of which Kubernetes cuts off the rest."""
    return float("inf") if seen is None else max(stamp - seen, seen - (stamp + 1), 0.0)


def _look(writer: ObjectWriter, model: str, seen: dict[str, Mapping[str, Any]], ended: threading.Event) -> None:
    """Keep each pod as it was when it was last seen ready."""
    selector = ",".join(f"{key}={value}" for key, value in names.selector(model, names.SERVER).items())
    while not ended.wait(0.2):
        for pod in writer.items(kinds.POD, selector=selector) or []:
            if start_events.is_ready(pod):
                seen[str(pod["metadata"]["name"])] = pod


ROWS = {"3.5": row_5}


def main(arguments: Sequence[str]) -> int:
    """Measure the row."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
