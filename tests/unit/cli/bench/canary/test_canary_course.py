"""The course of a canary by the status of its model."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench.canary.canary_change import WrittenChange, canary_patch
from halcyon_cli.bench.canary.canary_course import course, is_promoted_by_hand, is_restored
from halcyon_tune.patch import merged
from tests.unit.cli.bench.canary.canary_models import CHANGE, SERVED, WORSE, canary, model, status

BEFORE = model()["spec"]
AFTER = merged(BEFORE, canary_patch(BEFORE, CHANGE))
WRITTEN = WrittenChange(before=BEFORE, after=AFTER, generation=4, previous="m-1")
REJECTED = status(generation=4) | {"conditions": [{"type": "Accepted", "status": "False", "message": "limit 4"}]}
HISTORY = [{"revision": "m-2", "result": "Served"}]


@pytest.mark.parametrize(
    ("state", "spec", "phase", "words"),
    [
        (canary(), {"batching": {"maxBatchSize": 9}}, "Replaced", "another writer"),
        (status(generation=3), {}, "Waiting", "observe"),
        (REJECTED, {}, "Worse", "limit 4"),
        (WORSE, {}, "Worse", "p95 9 s"),
        (status("Failed", target="m-2", generation=4, message="can't load"), {}, "Worse", "can't load"),
        (canary(), {"replicas": 0}, "NotCompared", "zero replicas"),
        (canary(), {}, "Canary", "step"),
        (canary(), {"replicas": 0, "scaling": {"minReplicas": 1, "maxReplicas": 4}}, "Canary", "step"),
        (status(generation=4), {}, "NotCompared", "same pods"),
        (status("Progressing", generation=4), {}, "Waiting", "waiting for the canary"),
        (SERVED, {}, "Served", "revision m-2"),
        (
            status("Progressing", target="m-2", current="m-2", generation=4, history=HISTORY),
            {},
            "Promoted",
            "take the place",
        ),
        (
            status("Progressing", target="m-2", generation=4, message="its slot is taken"),
            {},
            "Waiting",
            "slot is taken",
        ),
    ],
)
def test_course_follows_from_spec_and_status(
    state: dict[str, Any], spec: dict[str, Any], phase: str, words: str
) -> None:
    progress = course(model(state, **(AFTER | spec)), WRITTEN)
    assert progress.phase == phase
    assert words in progress.text


def test_unschedulable_pods_lack_capacity() -> None:
    assert course(model(canary() | {"pods": {"unschedulable": 1}}, **AFTER), WRITTEN).lacks_capacity
    assert not course(model(canary() | {"pods": {"unschedulable": 0}}, **AFTER), WRITTEN).lacks_capacity


@pytest.mark.parametrize(("annotation", "expected"), [("2", True), ("m-2", True), ("m-9", False), ("", False)])
def test_promotion_by_hand_names_the_revision(annotation: str, expected: bool) -> None:
    resource = model(SERVED)
    resource["metadata"]["annotations"] = {"serving.halcyon.dev/promote": annotation}
    assert is_promoted_by_hand(resource, "m-2") is expected


def test_previous_revision_is_restored_once_it_serves_alone() -> None:
    assert is_restored(model(status()), "m-1")
    assert not is_restored(model(canary()), "m-1")
    assert not is_restored(model(status(generation=2)), "m-1")
    assert not is_restored(model(SERVED), "m-1")
