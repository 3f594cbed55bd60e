"""Row 3.5: cold starts on the embedded cluster, against times from other programs.

python -m benchmarks.measure.cold_starts

| boundary | judge |
| --- | --- |
| created, ready | a watch of the API server |
| bound | the scheduler's event |
| first_container, server_container | containerd's events |
| server_answers, model_loaded | the time in the lines of Triton's log |
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchmarks.measure import place
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from demo import setup
from e2e.cluster import cluster as clusters
from e2e.cluster import node
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.bench.cold_start import start_events, start_watch
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_measure.breakdown import cold_start

STARTS = 5
_QUIET_S = 1.0
_STARTED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)? \+0000 UTC \S+ /tasks/start (\{.*\})")
_LOGGED = re.compile(r"[IWE](\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{6}) ")


def row_5() -> Row:
    """Measure cold starts of the digits model on the embedded cluster."""
    with place.embedded() as installed:
        return cold_starts(installed, "digits")


def cold_starts(installed: setup.Installed, model: str) -> Row:
    """Measure starts of a served model's pods: their parts against the total, and each boundary against its judge."""
    writer = ObjectWriter(Target("bench", kubeconfig=installed.kube.kubeconfig, namespace="default"))
    judge = Judge(ObjectWriter(Target("bench", kubeconfig=installed.kube.kubeconfig, namespace="default")), model)
    cluster = clusters.get(place.CLUSTER)
    events = subprocess.Popen(
        [*node.ctr(cluster.place, cluster.bin), "events"], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert events.stdout is not None, "opened as a pipe"
    threads = [
        threading.Thread(target=judge.follow_pods, daemon=True),
        threading.Thread(target=judge.follow_containers, args=(events.stdout,), daemon=True),
    ]
    try:
        for thread in threads:
            thread.start()
        time.sleep(_QUIET_S)
        # The first pod has started before it was watched.
        starts = start_watch.watch(writer, model, model=model, starts=STARTS + 1, timeout_s=120, keep=lambda: None)[1:]
        time.sleep(_QUIET_S)
        scheduled = judge.scheduled()
    finally:
        events.kill()
        events.wait()
    parts_off: list[float] = []
    boundary_off: dict[str, list[float]] = {}
    raw = []
    for start in starts:
        truth = judge.truth(start.pod, scheduled)
        if start.failure or start.ready is None or truth is None:
            continue
        split, notes = cold_start.parts(start)
        total = truth["ready"] - truth["created"]
        parts_off.append(100 * abs(sum(split.values()) - total) / total)
        offs = {name: off_s(getattr(start, name), at) for name, at in truth.items()}
        for name, off in offs.items():
            boundary_off.setdefault(name, []).append(off)
        raw.append({"start": start.__dict__, "parts": split, "notes": notes, "truth": truth, "off_s": offs})
    largest = {f"{name}_off_s": round(max(map(abs, offs)), 3) for name, offs in boundary_off.items()}
    return Row(
        id="3.5",
        what="parts of a cold start against the whole, and each boundary against a watch, the scheduler's event, containerd's events and Triton's log",
        value={
            "starts": len(parts_off),
            "parts_off_percent": round(max(parts_off), 2) if parts_off else None,
            "boundary_off_s": max(largest.values()) if largest else None,
            **largest,
        },
        target="parts within 5 % of the whole; each boundary within 0.15 s; 5 starts",
        limits=[("parts_off_percent", 5, "<="), ("boundary_off_s", 0.15, "<="), ("starts", STARTS, ">=")],
        command="python -m benchmarks.measure.cold_starts",
        stand_ins="a Python model that sleeps stands in for a GPU; server and control plane share two cores",
        why="" if len(parts_off) >= STARTS else f"{len(parts_off)} of {STARTS} starts became ready",
        n=len(parts_off),
        law="5 + 0.5 b ms, batch 16",
        load="none; the pod is deleted for each start",
        raw=raw,
    )  # fmt: skip


def off_s(time_s: float | None, truth: float) -> float:
    """Return how much later a boundary is than the truth, in seconds; infinity if it is missing."""
    return float("inf") if time_s is None else time_s - truth


@dataclass
class Judge:
    """Times of pods' starts from other programs than the one that is measured."""

    cluster: ObjectWriter
    model: str
    pods: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each pod at the moment of its readiness, by name."""
    created: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    containers: dict[str, float] = field(default_factory=dict)
    """Time at which each container was started, by its ID."""
    logs: dict[str, list[str]] = field(default_factory=dict)

    def follow_pods(self) -> None:
        """Take the times of pods from a watch, and Triton's log once a pod is ready."""
        selector = ",".join(f"{key}={value}" for key, value in names.selector(self.model, names.SERVER).items())
        _, version = self.cluster.listing(kinds.POD, selector=selector) or ([], "")
        with suppress(ClusterError):  # the cluster goes
            for kind, pod in self.cluster.watch(kinds.POD, since=version, selector=selector):
                name, now = str(pod["metadata"].get("name")), time.time()
                if kind == "ADDED":
                    self.created[name] = now
                if start_events.is_ready(pod) and name not in self.ready:
                    self.ready[name], self.pods[name] = now, pod
                    self.logs[name] = (self.cluster.log(name, names.TRITON, lines=1000) or "").splitlines()

    def follow_containers(self, lines: Iterable[str]) -> None:
        """Take the times of containers from the output of `ctr events`."""
        for line in lines:
            if match := _STARTED.match(line):
                at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp() + float(match[2] or 0)
                self.containers[json.loads(match[3])["container_id"]] = at

    def scheduled(self) -> dict[str, float]:
        """Return the times of the scheduler's events, by pod."""
        return {
            str(event["regarding"]["name"]): datetime.fromisoformat(event["eventTime"]).timestamp()
            for event in self.cluster.items(kinds.EVENT) or []
            if event.get("reason") == "Scheduled" and event.get("eventTime")
        }

    def truth(self, pod: str, scheduled: Mapping[str, float]) -> dict[str, float] | None:
        """Return the true times of a pod's boundaries, in seconds since the epoch; None if it wasn't followed."""
        if pod not in self.ready or pod not in self.created:
            return None
        began = self.began(self.pods[pod])
        log = logged(self.logs[pod], year=datetime.now(UTC).year)
        return {
            "created": self.created[pod],
            "bound": scheduled[pod],
            "first_container": min(began.values()),
            "server_container": began[names.TRITON],
            "server_answers": _line(log, f"loading: {self.model}:"),
            "model_loaded": _line(log, f"successfully loaded '{self.model}'"),
            "ready": self.ready[pod],
        }

    def began(self, pod: Mapping[str, Any]) -> dict[str, float]:
        """Return the time at which each container of a pod was started, by its name."""
        status = pod["status"]
        every = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
        ids = {container["name"]: str(container["containerID"]).rpartition("/")[2] for container in every}
        return {
            name: self.containers[container_id] for name, container_id in ids.items() if container_id in self.containers
        }


def logged(lines: Sequence[str], *, year: int) -> list[tuple[float, str]]:
    """Return the lines of Triton's log with the times that Triton has written into them, in seconds since the epoch."""
    return [
        (datetime.fromisoformat(f"{year}-{match[1]}-{match[2]}T{match[3]}+00:00").timestamp(), line)
        for line in lines
        if (match := _LOGGED.match(line))
    ]


def _line(lines: Sequence[tuple[float, str]], text: str) -> float:
    return next((at for at, line in lines if text in line), float("inf"))


ROWS = {"3.5": row_5}


def main(arguments: Sequence[str]) -> int:
    """Measure the row."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
