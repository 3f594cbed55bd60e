"""The revision to which a failed rollout returns: the one that served last, whatever was requested in between."""

from __future__ import annotations

from halcyon.control.rollout.canary_progress import ABORT, PROMOTE
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from tests.unit.control.rollout.canary_cluster import OTHER, begun, decided, request_spec
from tests.unit.control.rollout.deployment_simulation import Cluster, served


def replaced() -> tuple[Cluster, str, str]:
    """Return a cluster on which the second revision serves, with the keys of both."""
    cluster = served(room=3, count=2)
    first, second = cluster.applied[-1], cluster.key(**OTHER)
    cluster.settle(rounds=8, step_s=1)
    assert {s.revision for s in cluster.servers if s.ready} == {second}
    return cluster, first, second


def test_a_rollback_passes_over_an_older_revision_that_has_failed_since() -> None:
    cluster, first, second = replaced()
    cluster.bad.add(first)
    request_spec(cluster, "undo")
    cluster.settle(step_s=60)
    assert (decided(cluster).phase, decided(cluster).target.key) == (RolloutPhase.ROLLED_BACK, second)

    request_spec(cluster, "third")
    cluster.bad.add(decided(cluster).requested.key)
    cluster.settle(step_s=60)
    assert (decided(cluster).phase, decided(cluster).target.key) == (RolloutPhase.ROLLED_BACK, second)
    assert cluster.applied[-1] == second
    assert {s.revision for s in cluster.servers} == {second}


def test_a_rollback_passes_over_an_undo_that_was_never_served() -> None:
    cluster, first, second = replaced()
    cluster.bad.add(first)
    request_spec(cluster, "undo")
    cluster.settle(rounds=3, step_s=1)
    request_spec(cluster, "third")
    cluster.bad.add(decided(cluster).requested.key)
    cluster.settle(step_s=60)

    assert decided(cluster).target.key == second
    assert {s.revision for s in cluster.servers} == {second}


def test_the_stable_pods_stay_after_an_undo_was_aborted_as_a_canary() -> None:
    cluster, first, second = begun()
    cluster.annotations = {PROMOTE: second}
    cluster.settle(rounds=14, step_s=1)
    request_spec(cluster, "undo")
    cluster.annotations = {ABORT: first}
    cluster.settle(rounds=8, step_s=1)
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK
    cluster.annotations = {}
    request_spec(cluster, "third")
    cluster.settle(rounds=8, step_s=1)

    assert {s.revision for s in cluster.of("b")} == {second}
    assert {s.revision for s in cluster.of("a")} == {decided(cluster).requested.key}


def test_an_undo_that_no_operator_saw_complete_is_rolled_back_to() -> None:
    cluster, first, _ = replaced()
    request_spec(cluster, "undo")
    for _ in range(8):
        if cluster.applied[-1] != first:
            cluster.operate()
        cluster.control()
        cluster.schedule()
        cluster.start()
    assert {s.revision for s in cluster.servers if s.ready} == {first}
    request_spec(cluster, "third")
    cluster.bad.add(decided(cluster).requested.key)
    assert RolloutRecord.of(cluster.records[first]).result == RolloutResult.SERVED
    cluster.settle(step_s=60)

    assert (decided(cluster).phase, decided(cluster).target.key) == (RolloutPhase.ROLLED_BACK, first)
