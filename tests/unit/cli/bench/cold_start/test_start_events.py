"""Boundaries of a pod's start, from readings of the pod and Triton's log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from halcyon_cli.bench.cold_start import start_events

BEGIN = datetime(2026, 11, 28, 22, 0, 0, tzinfo=UTC).timestamp()


def pod(*, node: bool = False, fetcher: str = "", triton: str = "", ready: bool = False) -> dict[str, Any]:
    def status(name: str, state: str) -> dict[str, Any]:
        return {"name": name, "state": {state: {}}}

    return {
        "metadata": {"name": "digits-a-1", "uid": "1", "creationTimestamp": "2026-11-28T22:00:00Z"},
        "spec": {"nodeName": "n1"} if node else {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "initContainerStatuses": [status("fetcher", fetcher)] if fetcher else [],
            "containerStatuses": [status("triton", triton)] if triton else [],
        },
    }


SEEN = [
    (BEGIN + 0.4, pod()),
    (BEGIN + 0.9, pod(node=True)),
    (BEGIN + 2.0, pod(node=True, fetcher="waiting", triton="waiting")),
    (BEGIN + 3.0, pod(node=True, fetcher="running", triton="waiting")),
    (BEGIN + 5.0, pod(node=True, fetcher="terminated", triton="running")),
    (BEGIN + 9.0, pod(node=True, fetcher="terminated", triton="running", ready=True)),
]
LOG = [
    "2026-11-28T22:00:05.250000000Z I1128 22:00:05.2 1 server.cc:1] starting",
    '2026-11-28T22:00:06.500000000Z I1128 1 model_lifecycle.cc:472] "loading: digits:1"',
    "2026-11-28T22:00:08.125Z I1128 1 model_lifecycle.cc:849] \"successfully loaded 'digits'\"",
    "no timestamp",
]


def test_boundaries_are_the_times_of_the_first_reading() -> None:
    times = start_events.boundaries(SEEN, LOG, model="digits")
    assert times.pod == "digits-a-1"
    assert [round(at - BEGIN, 3) for at in (
        times.created, times.bound, times.first_container, times.server_container, times.server_answers,
        times.model_loaded, times.ready,
    ) if at is not None] == [0.4, 0.9, 3.0, 5.0, 6.5, 8.125, 9.0]  # fmt: skip


def test_a_pod_seen_late_was_created_at_its_timestamp() -> None:
    late = [(at + 5, reading) for at, reading in SEEN]
    assert start_events.boundaries(late, [], model="digits").created == pytest.approx(BEGIN + 1.0)


def test_a_log_of_another_model_has_no_boundary() -> None:
    times = start_events.boundaries(SEEN, LOG, model="resnet50")
    assert (times.server_answers, times.model_loaded) == (None, None)


def test_events_show_a_started_container_before_the_status() -> None:
    started = {"fetcher": BEGIN + 2.2, "triton": BEGIN + 4.1}
    times = start_events.boundaries(SEEN, LOG, model="digits", started=started)
    assert (times.first_container, times.server_container) == (BEGIN + 2.2, BEGIN + 4.1)


def test_server_has_started_before_the_first_line_of_its_log() -> None:
    early = ["2026-11-28T22:00:04.500000000Z I1128 1 server.cc:1] starting", *LOG]
    assert start_events.boundaries(SEEN, early, model="digits").server_container == BEGIN + 4.5


def test_containers_of_events_are_those_that_started() -> None:
    def event(reason: str, path: str) -> dict[str, Any]:
        return {"reason": reason, "regarding": {"kind": "Pod", "fieldPath": path}}

    events = [
        event("Created", "spec.containers{agent}"),
        event("Started", "spec.initContainers{fetcher}"),
        event("Started", "spec.containers{triton}"),
        event("Scheduled", ""),
    ]
    assert start_events.started_containers(events) == {"fetcher", "triton"}
