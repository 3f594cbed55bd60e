"""Canaries of a model without replicas, or whose stable Deployment was deleted, on a simulated cluster."""

from __future__ import annotations

import pytest

from halcyon.control.rollout.canary_progress import ABORT, PROMOTE
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.kube import kinds
from tests.unit.control.rollout.canary_cluster import OTHER, begun, decided, split, status_of, weights
from tests.unit.control.rollout.deployment_simulation import Cluster, served

WEIGHT_BYTES = 20_000
"""Canaries run on a simulated cluster."""
PAUSED = [{"weight": 20, "pause": {}}]


def scaled(cluster: Cluster, count: int) -> None:
    cluster.spec["replicas"] = count
    cluster.settle(rounds=6, step_s=5)


def revisions(cluster: Cluster) -> set[tuple[str, str]]:
    return {(server.slot, server.revision) for server in cluster.servers if server.ready}


def test_a_canary_that_waits_for_a_person_still_waits_after_zero_replicas() -> None:
    cluster, first, requested = begun(count=3, steps=PAUSED)
    cluster.settle(rounds=4, step_s=1)
    scaled(cluster, 0)

    assert (cluster.slots(), cluster.servers, weights(cluster)) == (["a"], [], {"a": 100})
    assert status_of(cluster)["rollout"]["phase"] == "Progressing"
    assert status_of(cluster)["rollout"]["message"] == (
        f"revision {requested} is rolling out; the canary will continue at the next scale-up from 0 replicas"
    )

    scaled(cluster, 2)
    assert (split(cluster), weights(cluster)) == ((1, 1), {"a": 80, "b": 20})
    assert revisions(cluster) == {("a", first), ("b", requested)}
    assert status_of(cluster)["rollout"]["canary"]["paused"]


def test_a_waking_canary_leaves_the_only_gpu_to_the_stable_revision() -> None:
    cluster, first, requested = begun(count=1, room=2, steps=PAUSED)
    cluster.settle(rounds=4, step_s=1)
    scaled(cluster, 0)
    cluster.room, cluster.spec["replicas"] = 1, 1
    cluster.operate()
    assert cluster.slots() == ["a"]
    assert status_of(cluster)["rollout"]["message"] == (
        f"revision {requested} is rolling out; the canary continues when a pod of revision {first} is scheduled"
    )

    cluster.settle(rounds=4, step_s=60)
    assert revisions(cluster) == {("a", first)}
    assert decided(cluster).phase is RolloutPhase.BLOCKED
    cluster.room = 2
    cluster.settle(rounds=4, step_s=5)
    assert revisions(cluster) == {("a", first), ("b", requested)}


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("on_failure", ["Rollback", "Stay"])
def test_a_canary_aborted_at_any_count_never_serves_after_zero_replicas(count: int, on_failure: str) -> None:
    cluster, first, requested = begun(count=3, steps=PAUSED)
    cluster.spec["rollout"]["onFailure"] = on_failure
    cluster.settle(rounds=4, step_s=1)
    scaled(cluster, count)
    cluster.annotations = {ABORT: requested}
    cluster.settle(rounds=4, step_s=1)
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK

    scaled(cluster, 0)
    scaled(cluster, 2)
    assert revisions(cluster) == {("a", first)}
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_canary_gets_no_more_requests_when_the_stable_deployment_is_deleted(rounds: int) -> None:
    cluster, first, requested = begun(count=3, steps=PAUSED)
    for _ in range(rounds):
        cluster.settle(rounds=1, step_s=1)
    del cluster.children[kinds.DEPLOYMENT, "digits-a"]
    cluster.servers = cluster.of("b")

    cluster.settle(rounds=6, step_s=5)
    assert (split(cluster), weights(cluster)) == ((2, 1), {"a": 80, "b": 20})
    assert revisions(cluster) == {("a", first), ("b", requested)}


def test_a_revision_that_is_new_at_zero_replicas_is_no_canary() -> None:
    cluster = served(room=5, count=2, strategy="Canary")
    scaled(cluster, 0)
    requested = cluster.key(**OTHER)
    scaled(cluster, 0)
    scaled(cluster, 2)

    assert revisions(cluster) == {("a", requested)}
    assert decided(cluster).phase is RolloutPhase.COMPLETE


def test_a_served_revision_comes_back_after_its_deployment_was_deleted() -> None:
    cluster, _, requested = begun(count=3, steps=PAUSED)
    cluster.settle(rounds=4, step_s=1)
    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=8, step_s=5)
    assert (cluster.slots(), decided(cluster).phase) == (["b"], RolloutPhase.COMPLETE)
    del cluster.children[kinds.DEPLOYMENT, "digits-b"]
    cluster.servers = []

    cluster.settle(rounds=8, step_s=5)
    assert revisions(cluster) == {("b", requested)}
    assert decided(cluster).phase is RolloutPhase.COMPLETE
