"""The patch that starts a canary, the patch that takes it back, and the models on which none can start."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench.canary.canary_change import (
    WrittenChange,
    canary_patch,
    min_duration_s,
    notes,
    refusal,
    steps_text,
)
from halcyon_tune.patch import merged
from tests.unit.cli.bench.canary.canary_models import CHANGE, CONDITIONS, SPEC, canary, model, status


def written(**spec: Any) -> WrittenChange:
    before = model(**spec)["spec"]
    after = merged(before, canary_patch(before, CHANGE))
    return WrittenChange(before=before, after=after, generation=4, previous="m-1")


def test_model_of_another_strategy_gets_a_canary_and_loses_it_again() -> None:
    change = written()
    assert change.after["rollout"] == {"strategy": "Canary"}
    assert merged(change.after, change.undo()) == change.before
    assert change.rollout_undo() == {"rollout": None}


def test_model_with_canaries_keeps_its_own_steps() -> None:
    rollout = {"strategy": "Canary", "canary": {"steps": [{"weight": 50, "pause": {"duration": "1m"}}]}}
    change = written(rollout=rollout)
    assert change.after["rollout"] == rollout
    assert change.rollout_undo() == {}
    assert merged(change.after, change.undo()) == change.before
    assert steps_text(change.before) == "50 % for 1m"
    assert min_duration_s(change.before) == 60


def test_undo_restores_a_strategy_and_leaves_other_fields_alone() -> None:
    change = written(rollout={"strategy": "Surge", "surgeTimeout": "5m"})
    undo = change.undo()
    assert undo == {
        "batching": {"maxBatchSize": 8},
        "runtime": {"instancesPerGPU": None},
        "rollout": {"strategy": "Surge"},
    }
    scaled = {**change.after, "replicas": 7}
    assert change.is_in_force(scaled)
    assert merged(scaled, undo)["replicas"] == 7


def test_change_of_another_writer_is_noticed_field_by_field() -> None:
    change = written()
    assert not change.is_in_force(merged(change.after, {"batching": {"maxBatchSize": 16}}))
    assert change.is_in_force(merged(change.after, {"batching": {"maxQueueDelay": "1ms"}}))
    assert not change.is_in_force(merged(change.after, {"batching": None}))


def test_default_steps_are_named_with_their_least_time() -> None:
    assert steps_text(SPEC) == "5 % for 2m, 25 % for 5m, 50 % for 5m"
    assert min_duration_s(SPEC) == 720


def test_gateway_and_open_pauses_are_noted() -> None:
    steps = [{"weight": 10, "pause": {}}]
    canary_notes = notes(model(traffic={"mode": "Gateway"}, rollout={"strategy": "Canary", "canary": {"steps": steps}}))
    assert "no latency" in canary_notes[0]
    assert "halcyon promote m --step" in canary_notes[1]
    assert notes(model()) == ()


def without(condition: str, **instead: str) -> dict[str, Any]:
    others = [entry for entry in CONDITIONS if entry["type"] != condition]
    return status() | {"conditions": [*others, {"type": condition, "status": "False", **instead}]}


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (model(traffic={"mode": "Direct"}), "mode Direct"),
        (model(rollout={"strategy": "Canary", "canary": {"analysis": {"mode": "Disabled"}}}), "analysis.mode of m is Disabled"),
        (model(scaling={"minReplicas": 1, "maxReplicas": 4, "mode": "Paused"}), "halcyon resume m"),
        (model(replicas=0), "zero replicas"),
        (model(batching={"maxBatchSize": 0}), "spec of m is invalid"),
        (model() | {"metadata": model()["metadata"] | {"deletionTimestamp": "now"}}, "being deleted"),
        (model(status(generation=2)), "hasn't handled the last change"),
        (model(without("Accepted", message="no such volume")), "isn't accepted: no such volume"),
        (model(canary(2) | {"observedGeneration": 3}), "a canary at step 2 already"),
        (model(status("Blocked", message="no node")), "a rollout (Blocked) already: no node"),
        (model(status("RolledBack")), "RolledBack"),
        (model({"observedGeneration": 3, "conditions": CONDITIONS}), "its phase is unknown"),
        (model(without("Reconciling", reason="DeploymentPaused", message="m-a")), "is paused: m-a"),
        (model(without("Ready", message="0 of 2")), "isn't ready: 0 of 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_canary_is_refused_with_the_reason(resource: dict[str, Any], words: str) -> None:
    assert words in refusal(resource)


def test_served_model_of_any_strategy_is_not_refused() -> None:
    assert refusal(model()) == ""
    assert refusal(model(replicas=0, scaling={"minReplicas": 1, "maxReplicas": 4})) == ""
    assert (
        refusal(model(traffic={"mode": "Gateway", "gateway": {"name": "edge"}}, rollout={"strategy": "Replace"})) == ""
    )
