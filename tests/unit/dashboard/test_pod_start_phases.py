from typing import Any

import pytest

from halcyon.dashboard import pod_start_phases
from halcyon.dashboard.ports import DashboardPod
from tests.unit.dashboard.objects import condition, pod


def at(second: int) -> str:
    return f"2026-01-01T12:00:{second:02}Z"


def since(kind: str, status: str, second: int, **more: str) -> dict[str, Any]:
    return {
        **condition(kind, status, more.get("reason", ""), more.get("message", "")),
        "lastTransitionTime": at(second),
    }


BOUND = since("PodScheduled", "True", 1)
FETCHED = {"terminated": {"exitCode": 0, "startedAt": at(5), "finishedAt": at(9)}}
RUNS = {"running": {"startedAt": at(10)}}
TURN = {"waiting": {"reason": "PodInitializing"}}


def took(pod_object: dict[str, Any]) -> list[tuple[str, float | None]]:
    """Phases with their seconds; None for the one that lasts."""
    return [(p.name, None if p.end is None else p.end - p.begin) for p in pod_start_phases.phases(pod_object)]


def test_a_start_is_shown_from_its_creation_until_it_is_ready() -> None:
    pod_object = pod(conditions=(BOUND, since("Ready", "True", 17)), fetch=FETCHED, server=RUNS, phase="Running")
    assert took(pod_object) == [("pending", 1), ("pulling", 4), ("fetching", 4), ("starting", 1), ("loading", 7)]
    document = pod_start_phases.pod_document(DashboardPod(pod_object, "ready"))
    assert (document["state"], document["revision"], document["slot"], document["restarts"]) == ("ready", "abc", "a", 0)
    assert document["ready_at"] - document["created"] == 17
    assert document["phases"][0] == {"name": "pending", "begin": document["created"], "end": document["created"] + 1}


@pytest.mark.parametrize(
    ("pod_object", "lasts", "known"),
    [
        (pod(), "pending", 1),
        (pod(conditions=(since("PodScheduled", "False", 1),)), "pending", 1),
        (pod(conditions=(BOUND,)), "pulling", 2),
        (pod(conditions=(BOUND,), fetch=TURN, server=TURN), "pulling", 2),
        (pod(conditions=(BOUND,), fetch={"running": {"startedAt": at(5)}}, server=TURN), "fetching", 3),
        (pod(conditions=(BOUND,), fetch=FETCHED, server=TURN), "starting", 4),
        (pod(conditions=(BOUND, since("Ready", "False", 0)), fetch=FETCHED, server=RUNS), "loading", 5),
    ],
)
def test_a_pod_on_its_way_is_in_the_phase_that_lasts(pod_object: dict[str, Any], lasts: str, known: int) -> None:
    phases = took(pod_object)
    assert phases[-1] == (lasts, None)
    assert len(phases) == known


def test_a_restarted_pod_shows_no_times_of_its_first_start() -> None:
    crashed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    pod_object = pod(conditions=(BOUND,), fetch=FETCHED, server=waits, restarts=3, last=crashed)
    assert [name for name, _ in took(pod_object)] == ["pending", "pulling", "fetching"]
    assert pod_start_phases.pod_document(DashboardPod(pod_object, "failed", "ContainerFailed", "why"))["restarts"] == 3


def test_a_pod_that_is_ready_has_no_phase_that_lasts() -> None:
    pod_object = pod(conditions=(BOUND, since("Ready", "True", 17)), phase="Running")
    assert took(pod_object) == [("pending", 1)]


def test_a_ready_time_before_the_server_ran_is_not_of_this_start() -> None:
    later = {"running": {"startedAt": at(50)}}
    pod_object = pod(conditions=(BOUND, since("Ready", "True", 40)), fetch=FETCHED, server=later, phase="Running")
    assert [name for name, _ in took(pod_object)] == ["pending", "pulling", "fetching", "starting"]


RUNNING = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
DONE = {"terminated": {"exitCode": 0}}
FAILED = {"terminated": {"exitCode": 3}}


@pytest.mark.parametrize(
    ("fields", "container", "previous"),
    [
        ({"fetch": RUNNING}, "fetch", False),
        ({"fetch": DONE, "server": RUNNING}, "server", False),
        ({"fetch": FAILED}, "fetch", False),
        ({"fetch": DONE, "server": WAITING, "restarts": 2, "last": FAILED}, "server", True),
        ({"fetch": DONE, "server": RUNNING, "restarts": 2, "last": FAILED}, "server", False),
    ],
)
def test_the_log_is_of_the_container_that_fails_or_runs(fields: dict[str, Any], container: str, previous: bool) -> None:
    assert pod_start_phases.log_of(pod(**fields)) == {"container": container, "previous": previous}


def test_a_pod_of_which_nothing_has_run_has_no_log() -> None:
    assert pod_start_phases.log_of(pod()) is None
    assert pod_start_phases.log_of(pod(fetch=WAITING)) is None
