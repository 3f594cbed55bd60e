"""Rollouts whose pods find no capacity while no other pods serve, or while only one does."""

from __future__ import annotations

from halcyon.api.conditions import Reason
from halcyon.control.rollout.rollout_plan import RolloutPhase
from tests.unit.control.rollout.canary_cluster import OTHER, begun, decided, split, status_of
from tests.unit.control.rollout.deployment_simulation import Cluster, served

DEADLINE_S = 660.0
"""startupTimeout's default and a minute."""


def asleep(**rollout: str) -> tuple[Cluster, str]:
    """Return a cluster at zero replicas, whose spec has changed there, and the key of its new revision."""
    cluster = served(room=2, count=1, **rollout)
    cluster.spec |= {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 2}}
    cluster.settle(rounds=3)
    requested = cluster.key(**OTHER)
    cluster.settle(rounds=3)
    return cluster, requested


def test_a_revision_that_wakes_without_capacity_waits_for_it() -> None:
    for strategy in ("Auto", "Surge", "Replace"):
        cluster, requested = asleep(strategy=strategy)
        cluster.room = 0
        cluster.spec["replicas"] = 1
        cluster.settle(rounds=60, step_s=60)
        assert (decided(cluster).target.key, decided(cluster).record.result) == (requested, "")
        assert {s.revision for s in cluster.servers} == {requested}
        stalled = next(c for c in status_of(cluster)["conditions"] if c["type"] == "Stalled")
        assert "Insufficient nvidia.com/gpu" in stalled["message"]

        cluster.room = 1
        cluster.settle(rounds=3, step_s=1)
        assert (decided(cluster).phase, cluster.ready) == (RolloutPhase.COMPLETE, 1)


def test_a_revision_with_one_scheduled_pod_has_the_deadline_of_that_pod() -> None:
    cluster, requested = asleep()
    cluster.bad.add(requested)
    cluster.room = 0
    cluster.spec["replicas"] = 2
    cluster.settle(rounds=3, step_s=DEADLINE_S)
    cluster.room = 1
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start):
        act()
    cluster.now += DEADLINE_S - 1
    assert decided(cluster).target.key == requested
    cluster.now += 1

    assert (decided(cluster).phase, decided(cluster).record.reason) == (
        RolloutPhase.ROLLING_BACK,
        Reason.UNSCHEDULABLE,
    )


def test_the_only_pod_that_went_for_nothing_comes_back() -> None:
    cluster = served(room=1, count=1, strategy="Replace")
    first, requested = cluster.applied[-1], cluster.key(**OTHER)
    cluster.operate()
    cluster.control()
    cluster.room = 0  # the new pod needs more than the old one
    cluster.control()
    cluster.schedule()
    assert {s.revision for s in cluster.servers} == {requested}
    grace_s, surge_s = decided(cluster).requested.template["spec"]["terminationGracePeriodSeconds"], 60
    assert decided(cluster).requeue_s == surge_s
    cluster.now += grace_s + surge_s - 1
    assert decided(cluster).phase is RolloutPhase.PROGRESSING
    assert decided(cluster).requeue_s == 1
    cluster.now += 1

    assert (decided(cluster).phase, decided(cluster).record.reason) == (
        RolloutPhase.ROLLING_BACK,
        Reason.UNSCHEDULABLE,
    )
    assert decided(cluster).target.key == first


def test_a_canary_beside_the_only_pod_waits_for_capacity() -> None:
    cluster, first, requested = begun(count=1, room=1)
    cluster.settle(rounds=20, step_s=60)
    rollout = decided(cluster)
    assert (rollout.phase, rollout.requested.key, rollout.record.replacing) == (RolloutPhase.BLOCKED, requested, "")
    assert [s.revision for s in cluster.servers if s.ready] == [first]
    stalled = next(c for c in status_of(cluster)["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "RolloutBlocked"
    assert "which keeps the only serving pod until the new revision is ready" in stalled["message"]

    cluster.room = 2
    cluster.settle(rounds=3, step_s=1)
    assert (decided(cluster).phase, split(cluster), cluster.ready) == (RolloutPhase.PROGRESSING, (1, 1), 2)


def test_a_canary_that_wakes_without_capacity_waits_for_it() -> None:
    cluster, _, requested = begun(count=2, room=2)
    while not decided(cluster).record.replacing:
        cluster.settle(rounds=1, step_s=15)
    cluster.settle(rounds=2, step_s=1)
    cluster.spec |= {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 4}}
    cluster.settle(rounds=4, step_s=15)
    assert not decided(cluster).record.replacing
    cluster.room = 0
    cluster.spec["replicas"] = 2
    cluster.settle(rounds=20, step_s=60)
    assert (decided(cluster).requested.key, decided(cluster).record.result) == (requested, "")
    assert decided(cluster).canary is not None

    cluster.room = 4
    cluster.settle(rounds=4, step_s=1)
    assert (split(cluster), cluster.ready) == ((1, 1), 2)
