"""Times of a pod's start, as its status has them."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.kube import pod_times
from halcyon.kube.pod_times import PodTimes

EPOCH = 1_767_268_800.0


def at(second: int) -> str:
    return f"2026-01-01T12:00:{second:02}Z"


def condition(kind: str, status: str, second: int) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": at(second)}


def pod(*conditions: dict[str, Any], init: Any = (), main: Any = ()) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": at(0)},
        "status": {"conditions": list(conditions), "initContainerStatuses": init, "containerStatuses": main},
    }


STARTED = pod(
    condition("PodScheduled", "True", 1),
    condition("Ready", "True", 17),
    init=[{"name": "fetch", "state": {"terminated": {"startedAt": at(5), "finishedAt": at(9)}}}],
    main=[{"name": "triton", "restartCount": 0, "state": {"running": {"startedAt": at(10)}}}],
)


def seconds(times: PodTimes) -> list[float | None]:
    values = (getattr(times, name) for name in PodTimes.__dataclass_fields__)
    return [None if value is None else value - EPOCH for value in values]


def test_all_times_of_a_finished_start_are_known() -> None:
    assert seconds(pod_times.pod_times(STARTED, "fetch")) == [0, 1, 5, 9, 10, 17]


def test_a_new_pod_has_the_time_of_its_creation_alone() -> None:
    assert seconds(pod_times.pod_times(pod(), "fetch")) == [0, None, None, None, None, None]


def test_a_running_init_container_has_no_end() -> None:
    pod_object = pod(init=[{"name": "fetch", "state": {"running": {"startedAt": at(5)}}}])
    assert seconds(pod_times.pod_times(pod_object, "fetch")) == [0, None, 5, None, None, None]
    assert seconds(pod_times.pod_times(pod_object, "other")) == [0, None, None, None, None, None]


def test_a_restart_overwrites_the_start_of_the_main_container() -> None:
    pod_object = pod(main=[{"name": "triton", "restartCount": 1, "state": {"running": {"startedAt": at(30)}}}])
    assert pod_times.pod_times(pod_object, "fetch").main_started_at is None


@pytest.mark.parametrize(
    ("conditions", "scheduled", "ready", "began"),
    [
        ((), None, None, 0),
        ((condition("PodScheduled", "False", 3),), None, None, 0),
        ((condition("PodScheduled", "True", 3),), 3, None, 3),
        ((condition("PodScheduled", "True", 3), condition("Ready", "False", 4)), 3, None, 3),
        ((condition("Ready", "True", 4),), None, 4, 0),
    ],
)
def test_a_condition_has_a_time_once_it_is_true(
    conditions: tuple[Any, ...], scheduled: int | None, ready: int | None, began: int
) -> None:
    pod_object = pod(*conditions)
    times = (pod_times.scheduled_at(pod_object), pod_times.ready_at(pod_object), pod_times.start_began_at(pod_object))
    assert [None if value is None else value - EPOCH for value in times] == [scheduled, ready, began]


def test_a_time_that_is_none_is_unknown() -> None:
    pod_object = pod({"type": "Ready", "status": "True", "lastTransitionTime": "soon"})
    pod_object["metadata"]["creationTimestamp"] = None
    assert (pod_times.ready_at(pod_object), pod_times.created_at(pod_object), pod_times.start_began_at(pod_object)) == (
        None,
        None,
        None,
    )
