"""The judges of cold starts: containerd's events, and the times in Triton's own log."""

from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.measure.cold_starts import Judge, logged, off_s

BEGIN = datetime(2026, 11, 28, 22, 0, 0, tzinfo=UTC).timestamp()
EVENTS = [
    '2026-11-28 22:00:01.250000000 +0000 UTC k8s.io /tasks/start {"container_id":"sandbox","pid":11}\n',
    '2026-11-28 22:00:01.5 +0000 UTC k8s.io /containers/create {"id":"first","image":"i"}\n',
    '2026-11-28 22:00:01.75 +0000 UTC k8s.io /tasks/start {"container_id":"first","pid":12}\n',
    '2026-11-28 22:00:03 +0000 UTC k8s.io /tasks/start {"container_id":"second","pid":13}\n',
]
POD: dict[str, Any] = {
    "status": {
        "initContainerStatuses": [{"name": "fetcher", "containerID": "containerd://first"}],
        "containerStatuses": [{"name": "triton", "containerID": "containerd://second"}],
    }
}


def test_containers_began_at_the_events_of_containerd() -> None:
    judge = Judge(None, "digits")  # type: ignore[arg-type]  # no cluster is read
    judge.follow_containers(EVENTS)
    began = {name: round(at - BEGIN, 3) for name, at in judge.began(POD).items()}
    assert began == {"fetcher": 1.75, "triton": 3.0}


def test_times_of_the_log_are_those_that_triton_wrote() -> None:
    lines = ['I1128 22:00:02.125000 1 model_lifecycle.cc:472] "loading: digits:1"', "+----+", "| x |"]
    [(at, line)] = logged(lines, year=2026)
    assert at - BEGIN == pytest.approx(2.125)
    assert line == lines[0]


def test_boundary_that_was_not_found_is_infinitely_off() -> None:
    assert off_s(None, BEGIN) == float("inf")
    assert off_s(BEGIN + 0.25, BEGIN) == pytest.approx(0.25)
