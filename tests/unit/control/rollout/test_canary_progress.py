"""Canaries: the steps by their table, and whole ones on a controller of a few lines (`rolling`)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.api.conditions import Reason
from halcyon.api.spec.rollout import Analysis, Canary, CanaryPause, CanaryStep
from halcyon.api.timestamps import rfc3339
from halcyon.control.rollout.canary_progress import ABORT, PROMOTE, PROMOTE_STEP, advance, canary_request, pod_count
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.state.scope import CanaryResult
from halcyon.control.status.events import status_events
from halcyon.kube import kinds
from tests.unit.control.rollout.canary_cluster import (
    SPECS,
    STEPS,
    begun,
    decided,
    request_spec,
    split,
    status_of,
    weights,
)
from tests.unit.control.rollout.deployment_simulation import START, Cluster

WEIGHT_BYTES = 70_000
"""Canaries run on a simulated cluster."""

FINE = CanaryResult("k", "promote", "errors 0 % against 0 %")
OPEN = CanaryResult("k", "wait", "31 requests of 100")
WORSE = CanaryResult("k", "rollback", "errors 4 % against 0 %")
READY = RolloutRecord(began=rfc3339(START), step_at=rfc3339(START))
OVER = START + 60


def rules(mode: str = "Enabled", steps: Any = STEPS) -> Canary:
    return Canary(steps=steps, analysis=Analysis(mode=mode))


@pytest.mark.parametrize(
    ("case", "outcome", "step", "message"),
    [
        (("abort", FINE, 2, OVER, "Enabled"), "aborted", 0, "aborted"),
        (("promote", None, 1, START, "Enabled"), "promoted", 0, "promoted"),
        (("promote", None, 0, START, "Enabled"), "goes on", 0, "0 of 2 canary pods are ready"),
        (("", WORSE, 2, START, "Enabled"), "worse", 0, "errors 4 %"),
        (("", WORSE, 2, OVER, "Disabled"), "goes on", 1, "step 2 of 2"),
        (("", FINE, 1, OVER, "Enabled"), "goes on", 0, "1 of 2 canary pods are ready"),
        (("", FINE, 2, OVER - 1, "Enabled"), "goes on", 0, "until 2025-12-29T09:21:00Z"),
        (("", FINE, 2, OVER, "Enabled"), "goes on", 1, "step 2 of 2: 50 % of the requests, 5 of 10 pods"),
        (("", OPEN, 2, OVER, "Enabled"), "goes on", 0, "waiting for analysis: 31 requests of 100"),
        (("", None, 2, OVER, "Enabled"), "goes on", 0, "waiting for analysis: no measurements yet"),
        (("", None, 2, OVER, "Disabled"), "goes on", 1, "step 2 of 2"),
    ],
)
def test_a_canary_goes_on_by_its_table(case: tuple[Any, ...], outcome: str, step: int, message: str) -> None:
    wished, verdict, ready, now, analysis = case
    progress = advance(READY, rules(analysis), now=now, count=10, ready=ready, canary_result=verdict, request=wished)

    assert (progress.outcome, progress.record.step) == (outcome, step)
    assert message in progress.message


MANUAL = (CanaryStep(weight=20, pause=CanaryPause()), CanaryStep(weight=50, pause=CanaryPause()))


@pytest.mark.parametrize(
    ("case", "outcome", "step", "paused"),
    [
        (("", FINE, 2, OVER), "goes on", 0, True),
        (("", OPEN, 1, OVER), "goes on", 0, False),
        (("", WORSE, 2, OVER), "worse", 0, False),
        (("step", WORSE, 2, OVER), "worse", 0, False),
        (("step", OPEN, 1, START), "goes on", 0, False),
        (("step", OPEN, 5, START), "goes on", 1, True),
        (("promote", OPEN, 1, START), "promoted", 0, False),
        (("abort", FINE, 2, OVER), "aborted", 0, False),
    ],
)
def test_a_pause_without_a_duration_ends_by_a_person(
    case: tuple[Any, ...], outcome: str, step: int, paused: bool
) -> None:
    wished, verdict, ready, now = case
    progress = advance(
        READY, rules(steps=MANUAL), now=now, count=10, ready=ready, canary_result=verdict, request=wished
    )

    assert (progress.outcome, progress.record.step, progress.paused, progress.due) == (outcome, step, paused, None)


def test_a_step_ended_by_a_person_skips_its_time_and_the_analysis() -> None:
    assert advance(READY, rules(), now=START, count=10, ready=2, canary_result=OPEN, request="step").record.step == 1


def test_a_canary_gets_every_request_after_its_last_step() -> None:
    last = RolloutRecord(began=rfc3339(START), step=1, step_at=rfc3339(START))

    assert advance(last, rules(), now=OVER, count=10, ready=5, canary_result=FINE, request="").outcome == "promoted"


@given(st.integers(1, 1000), st.integers(1, 99))
def test_both_revisions_have_a_pod_and_the_sum_is_the_replicas(count: int, weight: int) -> None:
    pods = pod_count(count, weight)

    assert pods >= 1
    assert count == 1 or count - pods >= 1
    assert abs(pods - count * weight / 100) <= 1 or pods in {1, count - 1}


@pytest.mark.parametrize("named", ["k", "digits-k"])
def test_a_persons_command_counts_for_the_revision_that_it_names(named: str) -> None:
    assert canary_request({PROMOTE: named}, "k", "digits-k") == "promote"
    assert canary_request({PROMOTE: named, ABORT: named}, "k", "digits-k") == "abort"
    assert not canary_request({PROMOTE: named, ABORT: named}, "j", "digits-j")
    assert canary_request({PROMOTE_STEP: f"{named}/2"}, "k", "digits-k", 1) == "step"
    assert not canary_request({PROMOTE_STEP: f"{named}/2"}, "k", "digits-k", 2)
    assert not canary_request({PROMOTE_STEP: named}, "k", "digits-k", 0)


# Whole ones


def test_a_canary_goes_by_its_steps_and_promotion_restarts_no_pod() -> None:
    cluster, first, requested = begun()
    cluster.settle(rounds=4, step_s=1)
    assert (split(cluster), weights(cluster)) == ((4, 1), {"a": 80, "b": 20})
    assert status_of(cluster)["rollout"]["canary"] == {"step": 1, "weight": 20, "pods": 1}
    assert {s.revision for s in cluster.of("a")} == {first}

    cluster.verdict = CanaryResult(requested, "promote", "as good")
    cluster.now += 60
    cluster.settle(rounds=4, step_s=1)
    assert (split(cluster), weights(cluster)) == ((3, 2), {"a": 50, "b": 50})
    canaries = {s.name for s in cluster.of("b")}

    cluster.now += 60
    cluster.settle(rounds=12, step_s=1)
    assert (split(cluster), weights(cluster), cluster.slots()) == ((0, 5), {"b": 100}, ["b"])
    assert canaries <= {s.name for s in cluster.of("b")}
    assert (decided(cluster).phase, decided(cluster).record.result) == (RolloutPhase.COMPLETE, RolloutResult.SERVED)
    status = status_of(cluster)
    assert status["revision"] == {"current": f"digits-{requested}", "target": f"digits-{requested}"}
    assert not {"Reconciling", "Stalled"} & {c["type"] for c in status["conditions"]}


def test_a_canary_that_waits_for_a_person_says_how_to_go_on() -> None:
    cluster, _, requested = begun(steps=[step.to_dict() for step in MANUAL])
    cluster.settle(rounds=4, step_s=1)
    cluster.verdict = CanaryResult(requested, "promote", "as good")
    cluster.now += 3600
    status = status_of(cluster)
    reconciling = next(c for c in status["conditions"] if c["type"] == "Reconciling")
    assert status["rollout"]["canary"] == {"step": 1, "weight": 20, "pods": 1, "paused": True}
    assert reconciling["reason"] == "CanaryPaused"
    assert "run halcyon promote digits --step" in reconciling["message"]
    assert f"annotation {PROMOTE_STEP} to {requested}/1." in reconciling["message"]
    (event,) = (e for e in status_events({}, status) if e.reason == "CanaryPaused")
    assert event.message == reconciling["message"]
    assert not [e for e in status_events(status, status) if e.reason == "CanaryPaused"]

    cluster.annotations = {PROMOTE_STEP: f"digits-{requested}/1"}
    cluster.settle(rounds=4, step_s=1)
    later = status_of(cluster)
    assert later["rollout"]["canary"] == {"step": 2, "weight": 50, "pods": 2, "paused": True}
    assert [e.reason for e in status_events(status, later)] == ["CanaryPaused"]
    cluster.annotations = {PROMOTE_STEP: f"digits-{requested}/2"}
    cluster.settle(rounds=12, step_s=1)
    assert decided(cluster).record.result == RolloutResult.SERVED


def test_the_next_one_comes_in_the_slot_that_is_free() -> None:
    cluster, _, requested = begun()
    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=14, step_s=1)
    assert cluster.slots() == ["b"]
    third = cluster.key(batching={"maxBatchSize": 3})
    cluster.settle(rounds=4, step_s=1)

    assert ({s.revision for s in cluster.of("a")}, {s.revision for s in cluster.of("b")}) == ({third}, {requested})
    assert weights(cluster) == {"b": 80, "a": 20}


def test_a_rollout_without_a_canary_takes_place_where_the_servers_are() -> None:
    cluster, _, requested = begun()
    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=14, step_s=1)
    cluster.spec["rollout"] = {}
    third = cluster.key(batching={"maxBatchSize": 3})
    cluster.settle(rounds=20, step_s=1)

    assert (cluster.slots(), {s.revision for s in cluster.servers}) == (["b"], {third})


@pytest.mark.parametrize(
    ("verdict", "word", "reason"),
    [("rollback", "", Reason.CANARY_ANALYSIS_FAILED), ("wait", ABORT, Reason.CANARY_ABORTED)],
)
def test_a_worse_or_aborted_canary_goes_at_once_and_is_not_retried(verdict: Any, word: str, reason: Reason) -> None:
    cluster, first, requested = begun()
    cluster.settle(rounds=4, step_s=1)
    cluster.verdict = CanaryResult(requested, verdict, "errors 4 % of 100 requests against 0 %")
    cluster.annotations = {word: requested}
    rollout = decided(cluster)
    assert ({p.slot: (p.replicas, p.weight) for p in rollout.slots}) == {"a": (5, 100), "b": (0, 0)}
    cluster.verdict, cluster.annotations = None, {}
    cluster.settle(rounds=8, step_s=100)

    assert (split(cluster), cluster.slots(), decided(cluster).phase) == ((5, 0), ["a"], RolloutPhase.ROLLED_BACK)
    assert decided(cluster).record.reason == reason
    assert decided(cluster).target.key == first
    stalled = next(c for c in status_of(cluster)["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "RolledBack"
    assert reason in stalled["message"]


def test_a_failed_canary_never_gets_every_request_despite_on_failure() -> None:
    cluster, first, requested = begun()
    cluster.spec["rollout"]["onFailure"] = "Stay"
    cluster.settle(rounds=4, step_s=1)
    cluster.annotations = {ABORT: requested}
    cluster.settle(rounds=8, step_s=1)

    assert (split(cluster), {s.revision for s in cluster.servers}) == ((5, 0), {first})
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK


def test_a_canary_that_never_gets_ready_gets_no_request_and_goes() -> None:
    cluster, first, requested = begun()
    cluster.bad.add(requested)
    cluster.settle(rounds=4, step_s=1)
    assert (split(cluster), weights(cluster)) == ((5, 1), {"a": 100, "b": 0})
    cluster.settle(rounds=12, step_s=100)

    assert (split(cluster), cluster.slots(), cluster.applied) == ((5, 0), ["a"], [first])
    assert decided(cluster).phase is RolloutPhase.ROLLED_BACK


def test_one_pod_gives_way_to_a_canary_without_capacity() -> None:
    cluster, _, _ = begun(count=5, room=5)
    cluster.settle(rounds=3, step_s=1)
    assert [s.ready for s in cluster.of("a")] == [True] * 5
    cluster.now += 60
    cluster.settle(rounds=4, step_s=1)

    assert split(cluster) == (4, 1)
    assert cluster.ready == 5


def test_a_canarys_wait_for_capacity_begins_when_a_pod_is_evicted() -> None:
    cluster, _, requested = begun(count=5, room=5)
    while not (rollout := decided(cluster)).record.replacing:
        before = copy.deepcopy(cluster.children)
        cluster.control()
        cluster.schedule()
        cluster.now += 15
    # The process writes that a pod gives way, and ends before the Deployments are written.
    for (kind, name), obj in before.items():
        if kind == kinds.DEPLOYMENT:
            cluster.children[kind, name] = obj
    cluster.now += 600

    again = decided(cluster)
    assert (again.phase, again.requested.key) == (RolloutPhase.PROGRESSING, requested), again.failure
    assert again.record.replacing > rollout.record.replacing
    cluster.settle(rounds=6, step_s=1)
    assert split(cluster) == (4, 1)
    assert cluster.ready == 5


def test_a_canary_without_capacity_reports_it_and_returns_its_pod() -> None:
    cluster, first, requested = begun(count=5, room=5)
    cluster.settle(rounds=2, step_s=1)
    cluster.now += 60
    cluster.room = 4  # somebody else takes what is given up
    cluster.settle(rounds=3, step_s=1)
    assert "needs 1 more nvidia.com/gpu" in status_of(cluster)["rollout"]["message"]
    cluster.settle(rounds=4, step_s=60)
    assert decided(cluster).record.reason == Reason.UNSCHEDULABLE
    cluster.room = 5
    cluster.settle(rounds=6, step_s=1)

    assert (split(cluster), {s.revision for s in cluster.servers}) == ((5, 0), {first})
    assert requested in cluster.templates["b"]


def test_one_replica_is_two_while_it_has_a_canary() -> None:
    cluster, _, requested = begun(count=1, room=2)
    cluster.settle(rounds=4, step_s=1)
    assert split(cluster) == (1, 1)
    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=6, step_s=1)

    assert (split(cluster), cluster.slots()) == ((0, 1), ["b"])


def test_desired_servers_include_the_canary_beside_a_single_replica() -> None:
    def ready() -> tuple[str, str]:
        written = status_of(cluster)
        message = next(c["message"] for c in written["conditions"] if c["type"] == "Ready")
        return message, written["summary"]["ready"]

    cluster, _, _ = begun(count=1, room=2)
    assert ready() == ("1 of 2 servers are ready", "1/2")
    cluster.settle(rounds=4, step_s=1)
    assert ready() == ("2 of 2 servers are ready", "2/2")


def test_the_new_revision_is_taken_without_comparison_at_0_replicas() -> None:
    cluster, _, _ = begun()
    cluster.spec |= {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 5}}
    cluster.settle(rounds=6, step_s=1)

    assert decided(cluster).canary is None
    assert cluster.slots() == ["a"]


def test_a_canary_that_the_spec_leaves_goes_without_a_trace() -> None:
    cluster, first, _ = begun()
    cluster.settle(rounds=4, step_s=1)
    del cluster.spec["batching"]
    cluster.settle(rounds=8, step_s=1)

    assert (split(cluster), cluster.slots(), {s.revision for s in cluster.servers}) == ((5, 0), ["a"], {first})
    assert decided(cluster).phase is RolloutPhase.COMPLETE


@pytest.mark.parametrize(("action", "result"), [(PROMOTE, RolloutResult.SERVED), (ABORT, RolloutResult.FAILED)])
def test_an_annotation_of_an_earlier_rollout_does_not_end_a_later_one(action: str, result: RolloutResult) -> None:
    cluster, _, requested = begun()
    cluster.settle(rounds=4, step_s=1)
    cluster.annotations, cluster.annotated_at = {action: requested}, {action: cluster.now}
    cluster.settle(rounds=12, step_s=10)
    assert decided(cluster).record.result == result
    request_spec(cluster, "third")
    cluster.verdict = CanaryResult(decided(cluster).requested.key, "promote", "as good")
    cluster.settle(rounds=20, step_s=30)
    request_spec(cluster, "again")
    cluster.settle(rounds=12, step_s=10)
    course = decided(cluster)
    assert course.canary is not None
    assert course.requested.key == requested
    assert "is older than its rollout and is ignored" in course.canary.message
    cluster.annotated_at = {action: cluster.now}
    cluster.settle(rounds=12, step_s=10)
    assert decided(cluster).record.result == result


EVENTS = ["fine", "worse", "promote", "abort", "scale", "other", "third", "undo", "again", "wait"]


class Watched:
    """A cluster that is looked at after every act: one pod of those there is room for gives way at most."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.most = cluster, cluster.count
        self._failed: set[tuple[str, str]] = set()
        self.recovers = False
        """What failed goes at once, with the share it had."""

    def round(self) -> RolloutPlan:
        rollout = decided(self.cluster)
        assert sum(placed.weight for placed in rollout.slots) == 100
        trails = {key: RolloutRecord.of(record) for key, record in self.cluster.records.items()}
        failed = {(key, trail.ended) for key, trail in trails.items() if trail.result == RolloutResult.FAILED}
        self.recovers = self.recovers or bool(failed - self._failed)
        self._failed |= failed
        self.most = min(self.most, self.cluster.count)
        for act in (self.cluster.control, self.cluster.schedule, self.cluster.start):
            act()
            enough = self.cluster.ready >= self.most - 1
            self.recovers = self.recovers and not enough
            assert enough or self.recovers
        return rollout

    def end(self) -> RolloutPlan:
        for _ in range(40):
            rollout = self.round()
            self.cluster.now += 30
            ended = rollout.phase in {RolloutPhase.COMPLETE, RolloutPhase.ROLLED_BACK}
            if ended and self.cluster.slots() == [rollout.home] and not self.recovers:
                break
        return rollout


@example(count=6, spare=1, events=["promote", "other"])
@example(count=4, spare=0, events=["fine", "scale", "wait", "wait", "other"])
@example(count=4, spare=0, events=["fine", "wait", "wait", "other", "again"])
@given(count=st.integers(2, 6), spare=st.integers(0, 2), events=st.lists(st.sampled_from(EVENTS), max_size=8))
def test_a_canary_costs_at_most_one_serving_pod_until_one_slot(count: int, spare: int, events: list[str]) -> None:
    cluster, _, requested = begun(count=count, room=count + spare)
    watched = Watched(cluster)
    for event in events:
        if event in {"fine", "worse"}:
            cluster.verdict = CanaryResult(requested, "promote" if event == "fine" else "rollback", "so it is")
        elif event in {"promote", "abort"}:
            cluster.annotations = {PROMOTE if event == "promote" else ABORT: requested}
        elif event == "scale":
            cluster.spec["replicas"] = max(cluster.count - 1, 2)
        elif event in SPECS:
            request_spec(cluster, event)
        else:
            cluster.now += 45
        for _ in range(3):
            watched.round()
    cluster.verdict, cluster.annotations = CanaryResult(decided(cluster).requested.key, "promote", "fine"), {}
    rollout = watched.end()
    assert rollout.phase in {RolloutPhase.COMPLETE, RolloutPhase.ROLLED_BACK}
    assert len(cluster.slots()) == 1
    assert [s.revision for s in cluster.servers if s.ready] == [rollout.target.key] * cluster.count


def test_a_canary_beyond_the_steps_of_its_spec_is_at_the_last() -> None:
    cluster, _, requested = begun()
    cluster.settle(rounds=4, step_s=1)
    cluster.verdict = CanaryResult(requested, "promote", "as good")
    cluster.now += 60
    cluster.settle(rounds=4, step_s=1)
    cluster.verdict = None
    cluster.spec["rollout"]["canary"]["steps"] = [{"weight": 40, "pause": {}}]
    cluster.settle(rounds=2, step_s=1)
    status = status_of(cluster)

    assert status["rollout"]["canary"] == {"step": 1, "weight": 40, "pods": 2, "paused": True}
    assert "step 1 of 1" in status["rollout"]["message"]
    assert f"annotation {PROMOTE_STEP} to {requested}/1." in status["rollout"]["message"]
