"""What a start took, by its parts, and what pods are doing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.status import PodsStatus
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope
from halcyon.control.status import cold_start, status
from halcyon.control.status.cold_start import ColdStart, start
from tests.unit.cli.staged_causes import server
from tests.unit.control.scope_builders import scope_of

NOW = 1_795_000_000.0


def cold_start_of(*pods: Any, before: dict[str, Any] | None = None, longest_s: float = 600) -> dict[str, Any] | None:
    now = scope_of()
    now = replace(now, pods=pods, resource={**now.resource, "status": {"coldStart": before} if before else {}})
    return cold_start.make(now, longest_s=longest_s)


def test_a_start_is_shown_by_its_parts() -> None:
    cold_start = start(server("r", "a", NOW, age_s=100))

    assert cold_start == ColdStart(
        "a", NOW - 59, 41, (("scheduling", 1), ("pulling", 9), ("fetching", 4), ("loading", 27))
    )
    reported = cold_start_of(server("r", "a", NOW, age_s=100))
    assert reported is not None
    assert epoch_seconds(reported.pop("readyAt")) == NOW - 59
    assert reported == {
        "pod": "a",
        "seconds": 41,
        "schedulingSeconds": 1,
        "pullingSeconds": 9,
        "fetchingSeconds": 4,
        "loadingSeconds": 27,
    }


def test_a_pod_that_is_not_ready_or_restarted_has_no_start() -> None:
    restarted = server("r", "a", NOW)
    restarted["status"]["containerStatuses"][0]["restartCount"] = 1

    assert start(server("r", "a", NOW, ready=False)) is None
    assert start(restarted) is None
    assert cold_start_of(server("r", "a", NOW, ready=False)) is None


def test_parts_without_a_report_are_left_out() -> None:
    bare = server("r", "a", NOW)
    bare["status"]["initContainerStatuses"] = []
    cold_start = start(bare)

    assert cold_start is not None
    assert (cold_start.total_s, cold_start.parts) == (41, (("scheduling", 1),))


def test_the_last_start_counts_and_stays_when_its_pod_goes() -> None:
    old, new = server("r", "old", NOW, age_s=900), server("r", "new", NOW, age_s=100)
    last = cold_start_of(old, new)

    assert last is not None
    assert last["pod"] == "new"
    assert cold_start_of(old, before=last) == last
    assert cold_start_of(before=last) == last


def test_a_pod_that_becomes_ready_again_is_no_second_start() -> None:
    first = server("r", "a", NOW, age_s=400)
    published = cold_start_of(first)
    again = server("r", "a", NOW, age_s=400)
    ready = next(c for c in again["status"]["conditions"] if c["type"] == "Ready")
    ready["lastTransitionTime"] = rfc3339(NOW - 100)

    assert start(again) != start(first)
    assert cold_start_of(again, before=published) == published


def test_a_start_longer_than_the_limit_is_none() -> None:
    assert cold_start_of(server("r", "a", NOW), longest_s=40) is None


@pytest.mark.parametrize(
    ("pod", "counted"),
    [
        ({}, {}),
        ({"ready": False, "unschedulable": "0/1 nodes are available"}, {"pending": 1}),
        ({"ready": False, "init": {"waiting": {"reason": "PodInitializing"}}}, {"pulling": 1}),
        ({"ready": False, "init": {"running": {"startedAt": "2026-11-18T00:00:00Z"}}}, {"fetching": 1}),
        ({"ready": False, "main": {"waiting": {"reason": "ContainerCreating"}}}, {"pulling": 1}),
        ({"ready": False, "main": {"running": {"startedAt": "2030-01-01T00:00:00Z"}}}, {"loading": 1}),
        (
            {"ready": False, "init": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}},
            {"failed": 1, "failures": [{"reason": "ImagePullFailed", "pods": 1}]},
        ),
    ],
)
def test_pods_are_counted_by_what_they_are_doing(pod: dict[str, Any], counted: dict[str, int]) -> None:
    before = scope_of()
    target = make(before).target
    assert target is not None
    now: Scope = replace(before, pods=(server(target.key, "a", NOW, **pod),), revisions=(target,))
    counts = status.make(now, make(now), now="2026-11-22T00:00:00Z")["pods"]

    assert {k: v for k, v in counts.items() if k not in {"total", "ready", "updated", "unschedulable"}} == counted


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        ({"main": {"waiting": {"reason": "CrashLoopBackOff"}}, "last": {"reason": "OOMKilled", "exitCode": 137}}, "OOMKilled"),
        ({"main": {"running": {}}, "last": {"reason": "OOMKilled", "exitCode": 137}}, "OOMKilled"),
        ({"main": {"waiting": {"reason": "CrashLoopBackOff"}}, "last": {"reason": "Error", "exitCode": 1}}, "ContainerFailed"),
        ({"init": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}, "OOMKilled"),
        ({"init": {"terminated": {"exitCode": 1, "message": '{"reason": "ModelDownloadFailed", "message": "x"}'}}}, "ModelDownloadFailed"),
        ({"init": {"terminated": {"exitCode": 1, "message": '{"reason": "ModelConfigConflict", "message": "x"}'}}}, "ModelConfigInvalid"),
        ({"main": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}, "ImagePullFailed"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed", "reason": "NodeShutdown"}, "Other"),
    ],
)  # fmt: skip
def test_failed_pods_are_counted_by_cause(pod: dict[str, Any], cause: str) -> None:
    before = scope_of()
    target = make(before).target
    assert target is not None
    fields = dict(pod)
    last, phase, reason = fields.pop("last", None), fields.pop("phase", None), fields.pop("reason", None)
    failed = server(target.key, "a", NOW, ready=False, **fields)
    if last is not None:
        failed["status"]["containerStatuses"][0] |= {"restartCount": 3, "lastState": {"terminated": last}}
    if phase is not None:
        failed["status"] |= {"phase": phase, "reason": reason}
    pods = (failed, server(target.key, "b", NOW))
    counts = status.make(replace(before, pods=pods, revisions=(target,)), make(before), now="2026-11-22T00:00:00Z")[
        "pods"
    ]

    assert counts["failed"] == 1
    assert counts["failures"] == [{"reason": cause, "pods": 1}]
    assert PodsStatus.model_validate(counts).failures is not None


def test_pods_of_one_cause_are_one_count() -> None:
    before = scope_of()
    target = make(before).target
    assert target is not None
    pulling = [
        server(target.key, name, NOW, ready=False, main={"waiting": {"reason": "ErrImagePull", "message": "no"}})
        for name in ("a", "b")
    ]
    now = replace(before, pods=tuple(pulling), revisions=(target,))

    assert status.make(now, make(now), now="2026-11-22T00:00:00Z")["pods"]["failures"] == [
        {"reason": "ImagePullFailed", "pods": 2}
    ]
