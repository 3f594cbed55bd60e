"""Canaries that the spec leaves: their pods go as others can answer, on a controller of a few lines (`rolling`)."""

from __future__ import annotations

import copy
import functools

import pytest

from halcyon.control.rollout.canary_progress import ABORT
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.state.scope import CanaryResult
from halcyon.kube import kinds
from tests.unit.control.rollout.canary_cluster import begun, decided, request_spec, split, status_of, weights
from tests.unit.control.rollout.deployment_simulation import Cluster

WEIGHT_BYTES = 50_000
"""Each case is a whole rollout."""


def half(*, count: int = 4, spare: int = 0) -> tuple[Cluster, str, str]:
    """A cluster whose canary has half of the pods and of the requests; (it, the one that serves, the canary)."""
    cluster, first, requested = _halved(count, spare)
    return copy.deepcopy(cluster), first, requested


@functools.cache
def _halved(count: int, spare: int) -> tuple[Cluster, str, str]:
    steps = [{"weight": 50, "pause": {"duration": "1m"}}]
    cluster, first, requested = begun(count=count, room=count + spare, steps=steps)
    cluster.settle(rounds=4, step_s=61)
    assert (split(cluster), cluster.ready) == ((count - count // 2, count // 2), count)
    return cluster, first, requested


def leave(cluster: Cluster, *, least: int, rounds: int = 30) -> list[int]:
    """Everybody acts in turn until one slot is left; the shares of slot b from look to look."""
    shares = []
    for _ in range(rounds):
        rollout = decided(cluster)
        shares.append(next((placed.weight for placed in rollout.slots if placed.slot == "b"), 0))
        for act in (cluster.control, cluster.schedule, cluster.start):
            act()
            assert cluster.ready >= least
        cluster.now += 15
        if rollout.phase is RolloutPhase.COMPLETE and cluster.slots() == [rollout.home]:
            break
    return shares


@pytest.mark.parametrize("strategy", ["Canary", "Auto", "Replace"])
@pytest.mark.parametrize("to", ["other", "undo"])
@pytest.mark.parametrize("spare", [0, 1])
def test_a_canary_that_the_spec_leaves_goes_pod_by_pod(strategy: str, to: str, spare: int) -> None:
    cluster, first, requested = half(spare=spare)
    request_spec(cluster, to)
    cluster.spec["rollout"] = {**cluster.spec["rollout"], "strategy": strategy}
    cluster.verdict = CanaryResult(decided(cluster).requested.key, "promote", "as good")
    shares = leave(cluster, least=4 if spare and strategy != "Replace" else 3)

    drained = shares.index(0)
    assert shares[:drained] == sorted(shares[:drained], reverse=True)
    assert drained > 0
    assert shares[0] <= 50
    assert requested not in {s.revision for s in cluster.servers}
    assert RolloutRecord.of(cluster.records[requested]).result == RolloutResult.SUPERSEDED
    if to == "undo":
        assert (cluster.slots(), [s.revision for s in cluster.servers]) == (["a"], [first] * 4)
        assert decided(cluster).phase is RolloutPhase.COMPLETE


@pytest.mark.parametrize("to", [["other", "third"], ["undo", "third"], ["other", "undo"], ["other", "again"]])
@pytest.mark.parametrize("strategy", ["Canary", "Auto"])
def test_specs_in_quick_succession_cost_no_more_pods_than_one(strategy: str, to: list[str]) -> None:
    cluster, _, _ = half()
    cluster.spec["rollout"] = {**cluster.spec["rollout"], "strategy": strategy}
    request_spec(cluster, to[0])
    leave(cluster, least=3, rounds=5)
    assert cluster.of("b")
    request_spec(cluster, to[1])
    leave(cluster, least=3, rounds=1)
    cluster.verdict = CanaryResult(decided(cluster).requested.key, "promote", "as good")
    leave(cluster, least=3)
    rollout = decided(cluster)

    assert (rollout.phase, len(cluster.slots())) == (RolloutPhase.COMPLETE, 1)
    assert [s.revision for s in cluster.servers] == [rollout.requested.key] * 4


def test_a_share_is_that_of_its_pods_and_never_grows() -> None:
    cluster, _, _ = begun(count=3, room=3)
    cluster.settle(rounds=6, step_s=20)
    assert weights(cluster) == {"a": 80, "b": 20}
    request_spec(cluster, "undo")
    # One of three pods, of which all are needed until another is there.
    assert weights(cluster) == {"a": 80, "b": 20}
    for server in cluster.of("a"):
        server.ready = False
    assert weights(cluster) == {"a": 1, "b": 99}


def test_pods_that_answer_no_client_go_at_once() -> None:
    cluster, _, requested = half()
    for server in cluster.of("b"):
        server.ready = False
    request_spec(cluster, "other")

    assert {p.slot: (p.replicas, p.weight) for p in decided(cluster).slots} == {"a": (4, 100), "b": (0, 0)}
    assert RolloutRecord.of(cluster.records[requested]).result == RolloutResult.SUPERSEDED


def test_a_superseded_canary_goes_at_once_if_the_others_suffice() -> None:
    cluster, _, _ = begun(count=1, room=2)
    cluster.settle(rounds=4, step_s=1)
    assert split(cluster) == (1, 1)
    request_spec(cluster, "other")

    assert {p.slot: (p.replicas, p.weight) for p in decided(cluster).slots} == {"a": (1, 100), "b": (0, 0)}


@pytest.mark.parametrize(("count", "stays"), [(0, 0), (1, 0), (3, 1), (4, 2), (9, 2)])
def test_replicas_are_followed_while_a_superseded_canary_goes(count: int, stays: int) -> None:
    cluster, _, _ = half()
    request_spec(cluster, "undo")
    cluster.spec |= {"replicas": count, "scaling": {"minReplicas": 0, "maxReplicas": 9}}

    assert {p.slot: p.replicas for p in decided(cluster).slots} == {"a": count, "b": stays}


@pytest.mark.parametrize("lost", ["both", "the canary's", "the others'"])
def test_the_wait_for_capacity_begins_when_pods_are_evicted(lost: str) -> None:
    cluster, _, _ = half()
    request_spec(cluster, "other")
    cluster.spec["rollout"] = {**cluster.spec["rollout"], "strategy": "Auto", "surgeTimeout": "2s"}
    for act in (cluster.operate, cluster.control, cluster.schedule):
        act()
    cluster.now += 3
    before = copy.deepcopy(cluster.children)
    # The process writes that pods give way, and ends before all of it is written.
    rollout = decided(cluster)
    assert rollout.record.replacing
    for (kind, name), obj in before.items():
        if kind == kinds.DEPLOYMENT and (lost == "both" or (lost == "the canary's") == name.endswith("-b")):
            cluster.children[kind, name] = obj
    cluster.now += 600

    again = decided(cluster)
    assert again.phase is RolloutPhase.PROGRESSING, again.failure
    assert again.record.replacing > rollout.record.replacing
    cluster.settle(rounds=20, step_s=2)
    ended = decided(cluster)
    assert (ended.phase, ended.target.key) == (RolloutPhase.COMPLETE, again.requested.key)
    assert cluster.slots() == ["a"]


def test_a_superseded_canary_stays_under_surge_until_there_is_capacity() -> None:
    cluster, first, _ = half()
    cluster.spec["rollout"] = {"strategy": "Surge"}
    request_spec(cluster, "undo")
    leave(cluster, least=4, rounds=12)
    assert (decided(cluster).phase, split(cluster)) == (RolloutPhase.BLOCKED, (4, 2))
    cluster.room = 5
    leave(cluster, least=4)

    assert (cluster.slots(), [s.revision for s in cluster.servers]) == (["a"], [first] * 4)


def test_more_pods_than_capacity_do_not_keep_a_superseded_canary() -> None:
    cluster, first, _ = half()
    cluster.spec["replicas"] = 6
    cluster.settle(rounds=10)
    assert cluster.ready == 4
    request_spec(cluster, "undo")
    leave(cluster, least=3)

    assert (cluster.slots(), [s.revision for s in cluster.servers if s.ready]) == (["a"], [first] * 4)


# Nobody judges it once the spec has left it.
@pytest.mark.parametrize(
    ("word", "when"),
    [("abort", "before"), ("abort", "with it"), ("abort", "after"), ("rollback", "before"), ("rollback", "with it")],
)
def test_a_bad_canary_goes_at_once_even_if_superseded(word: str, when: str) -> None:
    cluster, _, requested = half()

    def condemn() -> None:
        if word == "abort":
            cluster.annotations = {ABORT: requested}
        else:
            cluster.verdict = CanaryResult(requested, "rollback", "errors 4 % against 0 %")

    if when == "before":
        condemn()
        cluster.operate()
    request_spec(cluster, "other")
    if when == "after":
        assert weights(cluster) == {"a": 50, "b": 50}
    if when != "before":
        condemn()

    assert {p.slot: (p.replicas, p.weight) for p in decided(cluster).slots} == {"a": (4, 100), "b": (0, 0)}
    trail = RolloutRecord.of(cluster.records[requested])
    assert (trail.result, trail.barred) == (RolloutResult.FAILED, False)
    before = cluster.operate()
    assert before == cluster.operate()


def test_a_canary_with_an_unrouted_name_goes_at_once() -> None:
    cluster, _, _ = begun(count=4, room=5)
    cluster.spec["model"] = {**cluster.spec["model"], "name": "other"}
    cluster.settle(rounds=4, step_s=1)
    assert {s.ready for s in cluster.of("b")} == {True}
    cluster.spec["model"] = {**cluster.spec["model"], "name": "digits"}

    assert {p.slot: p.replicas for p in decided(cluster).slots} == {"a": 4, "b": 0}


def test_a_waiting_rollout_is_requeued_when_time_alone_lets_a_pod_go() -> None:
    cluster, _, _ = half()
    request_spec(cluster, "other")
    for act in (cluster.operate, cluster.control, cluster.schedule):
        act()

    assert decided(cluster).requeue_s == 60
    cluster.now += 60
    assert {p.slot: p.replicas for p in decided(cluster).slots} == {"a": 4, "b": 1}
    assert status_of(cluster)["rollout"]["phase"] == "Progressing"


def test_the_status_says_what_it_waits_for_while_pods_give_way() -> None:
    cluster, _, _ = half()
    request_spec(cluster, "undo")
    for act in (cluster.operate, cluster.control, cluster.schedule):
        act()
    cluster.now += 60

    rollout = status_of(cluster)["rollout"]
    assert rollout["phase"] == "Progressing"
    assert "needs 1 more nvidia.com/gpu" in rollout["message"]


def test_a_pod_whose_capacity_goes_to_another_costs_no_second_one() -> None:
    cluster, _, _ = half()
    cluster.spec["replicas"] = 6
    cluster.settle(rounds=10)
    request_spec(cluster, "undo")
    looks = []
    # More are wanted than there is room for, and the scheduler takes its time.
    for _ in range(4):
        looks.append([placed.replicas for placed in decided(cluster).slots])
        cluster.control()
        cluster.now += 60

    assert looks == [[6, 1]] * 4


def test_pods_that_are_about_to_go_elsewhere_are_not_counted_on() -> None:
    cluster, _, _ = begun(count=5, room=7)
    for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start, cluster.operate):
        act()
    request_spec(cluster, "undo")

    # The fifth of the old ones may be gone by the time that its count is five again.
    assert (split(cluster), [p.replicas for p in decided(cluster).slots]) == ((5, 1), [5, 1])


def test_a_canary_requested_again_keeps_its_pods_until_the_others_return() -> None:
    cluster, _, requested = begun(count=5, room=5)
    cluster.verdict = CanaryResult(requested, "promote", "as good")
    cluster.settle(rounds=6, step_s=31)
    cluster.verdict = None
    cluster.settle(rounds=4, step_s=31)
    assert split(cluster) == (3, 2)
    request_spec(cluster, "other")
    cluster.operate()
    request_spec(cluster, "again")
    rollout = decided(cluster)
    assert rollout.canary is not None
    assert (rollout.canary.pods, [p.replicas for p in rollout.slots]) == (1, [4, 2])
    assert rollout.slots[1].weight == 20
    leave(cluster, least=4, rounds=8)

    assert (split(cluster), cluster.ready) == ((4, 1), 5)


def test_a_verdict_is_ignored_without_analysis() -> None:
    cluster, _, requested = half()
    cluster.spec["rollout"]["canary"]["analysis"] = {"mode": "Disabled"}
    request_spec(cluster, "undo")
    cluster.verdict = CanaryResult(requested, "rollback", "errors 4 % against 0 %")

    assert weights(cluster) == {"a": 50, "b": 50}
