"""Rollouts while others keep pods from starting: volumes of one node, scheduling gates, pauses and restarts."""

from __future__ import annotations

import pytest

from halcyon.api.conditions import Reason
from halcyon.control.objects.pods import LOST_AFTER_S
from halcyon.control.rollout.canary_progress import PROMOTE
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.state.scope import CanaryResult
from halcyon.control.status import rollout as rollout_status
from halcyon.kube import kinds
from halcyon.render import names
from tests.unit.control.rollout.canary_cluster import begun, request_spec
from tests.unit.control.rollout.deployment_simulation import Cluster, served


def decided(cluster: Cluster) -> RolloutPlan:
    rollout = cluster.operate().rollout
    assert rollout is not None
    return rollout


def changed(cluster: Cluster) -> str:
    requested = cluster.key(batching={"maxBatchSize": 4})
    cluster.operate()
    cluster.control()
    cluster.schedule()
    cluster.start()
    return requested


def on_disk(**rollout: str) -> Cluster:
    """Return a cluster whose first revision serves from a ReadWriteOnce volume, and whose next pod goes to another node."""
    cluster = served(room=3, count=1, **rollout)
    cluster.nodes = ("a", "b")
    cluster.servers[0].node = "b"
    return cluster


def test_auto_with_a_volume_of_another_node_replaces_at_once() -> None:
    cluster = served(room=4, count=2, strategy="Auto")
    cluster.nodes = ("b", "a")
    for server in cluster.servers:
        server.node = "b"
    changed(cluster)

    rollout = decided(cluster)
    assert rollout.pace.strategy == "Replace"
    assert "can't attach PersistentVolumeClaim disk (ReadWriteOnce), which pod p1 uses on node b" in rollout.pace.why


def test_replace_moves_a_volume_to_another_node() -> None:
    cluster = on_disk(strategy="Replace")
    requested = changed(cluster)
    cluster.settle(rounds=4, step_s=1.0)
    assert [s.revision for s in cluster.servers if s.ready] == [requested]
    assert decided(cluster).phase is RolloutPhase.COMPLETE


def test_a_rollout_on_the_node_of_its_volume_surges() -> None:
    cluster = on_disk(strategy="Auto")
    cluster.nodes = (cluster.servers[0].node,)
    requested = changed(cluster)

    assert decided(cluster).pace.strategy == "Surge"
    cluster.settle(rounds=4, step_s=1.0)
    assert [s.revision for s in cluster.servers if s.ready] == [requested]


@pytest.mark.parametrize("strategy", ["Surge", "Auto"])
def test_an_only_pod_with_a_foreign_volume_is_blocked_at_once(strategy: str) -> None:
    cluster = on_disk(strategy=strategy)
    first = cluster.servers[0].revision
    changed(cluster)

    for _ in range(3):
        plan = cluster.operate()
        assert plan.rollout is not None
        assert plan.rollout.phase is RolloutPhase.BLOCKED
        assert "set spec.rollout.strategy: Replace" in rollout_status.explanation("digits", plan, plan.rollout)
        assert [s.revision for s in cluster.servers if s.ready] == [first]
        cluster.now += 3600


def test_auto_keeps_the_only_serving_pod_and_names_the_other_strategy() -> None:
    cluster = served(room=1, count=1, strategy="Auto", surgeTimeout="30s")
    changed(cluster)
    for _ in range(3):
        cluster.now += 3600
        plan = cluster.operate()
        assert plan.rollout is not None
        assert (plan.rollout.phase, plan.rollout.pace.strategy) == (RolloutPhase.BLOCKED, "Surge")
        explanation = rollout_status.explanation("digits", plan, plan.rollout)
        assert "keeps the only serving pod" in explanation
        assert explanation.endswith("Add capacity, or set spec.rollout.strategy: Replace")
        cluster.control()
        cluster.schedule()
        assert cluster.ready == 1


def test_auto_replaces_a_pod_that_serves_nothing() -> None:
    cluster = served(room=1, count=1, strategy="Auto", surgeTimeout="30s")
    requested = changed(cluster)
    cluster.servers[0].ready = False
    cluster.now += 31
    assert decided(cluster).pace.strategy == "Replace"
    cluster.settle(rounds=4, step_s=1.0)
    assert [s.revision for s in cluster.servers if s.ready] == [requested]


@pytest.mark.parametrize("strategy", ["Auto", "Surge"])
def test_a_gated_pod_waits_for_its_quota_as_for_capacity(strategy: str) -> None:
    cluster = served(room=2, count=2, strategy=strategy, surgeTimeout="30s")
    first = cluster.servers[0].revision
    cluster.gates = ("kueue.x-k8s.io/admission",)
    requested = changed(cluster)

    assert decided(cluster).pace.strategy == "Surge"
    cluster.now += 31
    rollout = decided(cluster)
    if strategy == "Auto":
        assert rollout.pace.strategy == "Replace"
        assert "scheduling gate kueue.x-k8s.io/admission" in rollout.pace.why
        cluster.settle(rounds=8, step_s=1.0)
        assert [s.revision for s in cluster.servers if s.ready] == [requested] * 2
    else:
        assert rollout.phase is RolloutPhase.BLOCKED
        cluster.now += 10_000
        assert decided(cluster).phase is RolloutPhase.BLOCKED
        assert [s.revision for s in cluster.servers if s.ready] == [first] * 2


def test_a_first_revision_behind_a_gate_does_not_fail() -> None:
    cluster = Cluster({**served(room=1, count=1).spec}, room=0, gates=("kueue.x-k8s.io/admission",))
    cluster.settle(rounds=8, step_s=600)
    assert decided(cluster).record.result == ""
    assert not decided(cluster).overdue
    cluster.room = 1
    cluster.settle(rounds=2, step_s=1)

    assert decided(cluster).phase is RolloutPhase.COMPLETE


def test_a_paused_deployment_is_reported_and_its_revision_never_fails() -> None:
    cluster = served(room=3, count=1)
    cluster.paused = True
    requested = changed(cluster)
    cluster.now += 10_000

    plan = cluster.operate()
    assert plan.rollout is not None
    assert plan.rollout.phase is RolloutPhase.PROGRESSING
    condition = rollout_status.reconciling("digits", plan)
    assert condition is not None
    assert condition.reason is Reason.DEPLOYMENT_PAUSED
    assert "run kubectl rollout resume deployment/digits-a" in condition.message
    cluster.paused = False
    cluster.settle(rounds=4, step_s=1.0)
    assert [s.revision for s in cluster.servers if s.ready] == [requested]


@pytest.mark.parametrize("room", [2, 3])
def test_a_restart_of_the_deployment_replaces_pods_where_none_can_be_added(room: int) -> None:
    cluster = served(room=room, count=2, surgeTimeout="30s")
    revision = cluster.servers[0].revision
    for server in cluster.servers:
        server.old = True
    cluster.start()
    fewest = []
    for _ in range(60):
        cluster.operate()
        cluster.control()
        cluster.schedule()
        cluster.start()
        fewest.append(cluster.ready)
        cluster.now += 5

    assert [(s.revision, s.old, s.ready) for s in cluster.servers] == [(revision, False, True)] * 2
    assert min(fewest) == (1 if room == 2 else 2)
    rollout = decided(cluster)
    assert (rollout.phase, rollout.pace.strategy) == (RolloutPhase.COMPLETE, "Surge")


@pytest.mark.parametrize(("phase", "is_deleted"), [("Failed", False), ("Succeeded", False), ("Running", True)])
def test_a_canary_begins_beside_pods_that_ended_or_whose_node_is_lost(phase: str, *, is_deleted: bool) -> None:
    cluster, _, canary = begun()
    # The kubelet has evicted it, its node was shut down, or its node doesn't respond: no controller deletes its object.
    cluster.lose(cluster.of("a")[0], phase, cluster.now if is_deleted else None)
    cluster.verdict = CanaryResult(canary, "promote", "errors 0 % against 0 %")
    cluster.settle(rounds=60)
    assert cluster.slots() == ["b"]

    request_spec(cluster, "third")
    cluster.settle(rounds=4)
    rollout = decided(cluster)
    assert rollout.canary is not None, rollout_status.explanation("digits", cluster.operate(), rollout)
    assert (len(cluster.of("a")), len(cluster.of("b"))) == (1, 4)


def test_a_slot_stays_while_its_last_pod_stops_and_a_minute_longer() -> None:
    cluster, _, canary = begun(count=2, room=4)
    cluster.settle(rounds=2, step_s=1)
    ends = cluster.now + 30
    cluster.lose(cluster.of("a")[0], "Running", ends)
    cluster.annotations = {PROMOTE: canary}
    cluster.settle(rounds=12, step_s=1)
    assert not cluster.of("a")
    assert cluster.slots() == ["a", "b"]
    again_s = decided(cluster).requeue_s
    assert again_s is not None
    assert cluster.now + again_s == pytest.approx(ends + LOST_AFTER_S)
    cluster.now += again_s
    cluster.operate()
    assert cluster.slots() == ["b"]


def test_a_rollout_that_was_undone_by_others_begins_no_rollout() -> None:
    cluster, first, canary = begun(count=2, room=4)
    cluster.annotations = {PROMOTE: canary}
    cluster.settle(rounds=12, step_s=1)
    before = decided(cluster)
    home = cluster.children[kinds.DEPLOYMENT, f"digits-{before.home}"]
    home["spec"]["template"]["metadata"]["labels"][names.REVISION_LABEL] = first
    rollout = decided(cluster)
    assert rollout.canary is None
    assert (rollout.target.key, rollout.record) == (canary, before.record)
    assert [placed.revision.key for placed in rollout.slots] == [canary]
