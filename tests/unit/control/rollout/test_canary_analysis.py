"""What a canary's judge is told: differences of Triton's counters and of the balancers' histograms, by revision, from a hub that
agents speak to."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from halcyon.api.documents.observation_report import SlotLatency
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.balancer.config.latency_buckets import BOUNDS_MS
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.signals.observation_store import ObservationStore
from tests.clocks import DrivenClock
from tests.unit.control.rollout.deployment_simulation import Cluster
from tests.unit.control.rollout.test_canary_progress import begun
from tests.unit.control.scope_builders import PVC, pod
from tests.unit.signals.records import haproxy, record, triton

WEIGHT_BYTES = 45_000
"""Canaries are analysed window by window."""

KEY = Key("team", "digits")


@dataclass(frozen=True)
class Rolling:
    """A plan, as far as an analysis reads it."""

    spec: Spec
    rollout: RolloutPlan | None


def rolling(planned: RolloutPlan | None, *, balanced: bool = True, analysis: Any = None) -> Rolling:
    """A plan with this rollout, behind balancers of ours or not."""
    traffic = {"mode": "Balancer" if balanced else "Direct"}
    rollout = {"canary": {"analysis": analysis or {}}}
    return Rolling(parse("digits", {"model": {"source": PVC}, "traffic": traffic, "rollout": rollout}), planned)


class Watched:
    """A canary of one pod beside a stable one, and the agent that tells of them."""

    def __init__(self, *, balanced: bool = True, slower: float = 1.0, seed: int = 1, analysis: Any = None) -> None:
        cluster, self.stable, self.canary = begun(count=2, room=3)
        self.rollout = rollout(cluster)
        self.now = 1000.0
        self.hub = ObservationStore()
        self.watch = CanaryAnalysis(self.hub, DrivenClock(lambda: self.now))
        self.watch.planned(KEY, rolling(self.rollout, balanced=balanced, analysis=analysis))
        self.balanced, self.slower, self.draw = balanced, slower, random.Random(seed)
        self.totals = {"old": [500, 0], "new": [500, 0]}
        self.buckets = {slot: [9] * (len(BOUNDS_MS) + 1) for slot in "ab"}
        self.bounds = BOUNDS_MS
        self.errors: dict[str, int] | None = None
        """Failed responses by slot, by the balancer; None: an agent that doesn't count them."""
        self.waits_us = {"old": 100, "new": 100}
        self.why = ""

    def look(self, **more: tuple[int, int]) -> str | None:
        """So many more answered and failed since the last look; the verdict."""
        for name, (succeeded, failed) in more.items():
            self.totals[name][0] += succeeded
            self.totals[name][1] += failed
            for _ in range(succeeded + failed):
                took_ms = 50 * self.draw.lognormvariate(0, 0.4) * (self.slower if name == "new" else 1)
                self.buckets["b" if name == "new" else "a"][bisect_right(BOUNDS_MS, took_ms)] += 1
        for _ in range(2):  # growth counts once it is confirmed
            self.now += 1
            at = self.now
            samples = [
                triton(name, at=at, succeeded=s, failed=f, executions=s + f, queue_us=self.waits_us[name] * s)
                for name, (s, f) in self.totals.items()
            ]
            failed = self.errors or {}
            latency = tuple(
                SlotLatency(slot, self.bounds, tuple(counts), None if self.errors is None else failed[slot])
                for slot, counts in self.buckets.items()
            )
            balancer = replace(haproxy(), latency=latency) if self.balanced else None
            self.hub.receive(record(at, *samples, namespace="team", name="digits", balancer=balancer), at)
        verdict = self.watch.result(KEY, self.servers)
        self.why = verdict.why if verdict else ""
        assert verdict is None or verdict.revision == self.canary
        return verdict.action if verdict else None

    @property
    def servers(self) -> list[Object]:
        return [server("old", self.stable, "a"), server("new", self.canary, "b")]


def server(name: str, revision: str, slot: str) -> Object:
    server_pod = pod(name, ready=True, revision=revision)
    server_pod["metadata"]["labels"][names.SLOT_LABEL] = slot
    return server_pod


def rollout(cluster: Cluster) -> RolloutPlan:
    cluster.settle(rounds=4, step_s=1)
    rollout_plan: Any = cluster.operate().rollout
    assert rollout_plan.canary is not None
    return rollout_plan  # type: ignore[no-any-return]  # checked above


def test_counts_before_the_first_sample_are_no_evidence() -> None:
    watched = Watched()
    watched.totals["new"] = [0, 500]

    assert [watched.look() for _ in range(3)] == [None] * 3
    assert watched.look(old=(50, 0), new=(50, 0)) == "wait"


def test_a_failing_canary_is_worse_and_a_sound_one_is_as_good() -> None:
    bad, good = Watched(), Watched()
    verdicts = {(bad.look(old=(50, 0), new=(25, 25)), good.look(old=(50, 0), new=(50, 0))) for _ in range(12)}

    assert "rollback" in {first for first, _ in verdicts}
    assert not {"rollback"} & {second for _, second in verdicts}
    for _ in range(60):
        last = good.look(old=(50, 0), new=(50, 0))
    assert last == "promote"


def test_an_error_that_the_model_answers_is_a_failure_of_its_revision() -> None:
    # Triton counts it as a success, and HAProxy sees its status.
    answered = Watched()
    answered.errors = {"a": 0, "b": 0}
    actions = []
    for _ in range(6):
        answered.errors["b"] += 30
        actions.append(answered.look(old=(120, 0), new=(30, 0)))
    assert "rollback" in actions
    assert answered.why.startswith("rolled back: the new revision is worse: errors 100 % of ")


def test_a_broken_canary_is_rolled_back_at_its_third_second() -> None:
    queued: list[Key] = []
    broken = Watched()
    broken.watch.requeue = queued.append
    broken.errors = {"a": 0, "b": 0}
    broken.look()
    actions = []
    while "rollback" not in actions:
        broken.errors["b"] += 30
        actions.append(broken.look(old=(120, 0), new=(30, 0)))
    assert len(actions) == 3
    # Once as it waits, once as it is rolled back; not by each sample.
    assert queued == [KEY, KEY]


def test_a_sample_waits_until_both_revisions_have_answered() -> None:
    seldom = Watched()
    seldom.look()
    assert seldom.look(old=(10, 0)) is None
    assert seldom.look(new=(1, 0)) == "wait"
    # The ten before are in the same sample: no comparison is lost because the new revision had no request in one of the seconds.
    assert seldom.why == "waits: the new revision has received 1 of the 100 requests that each needs"
    assert seldom.watch._watched[KEY].memory.errors.stable.trials == 10


def test_a_restarted_container_is_counted_from_its_restart() -> None:
    watched = Watched()
    watched.look()
    watched.look(old=(5, 0), new=(5, 0))
    watched.totals["new"] = [0, 0]

    assert watched.look(old=(5, 0)) == "wait"
    assert watched.look(old=(5, 0), new=(5, 0)) == "wait"


def test_a_verdict_is_absent_if_no_canary_is_under_way() -> None:
    watched = Watched()
    watched.look()
    watched.look(old=(5, 0), new=(5, 0))
    watched.watch.planned(KEY, rolling(None))

    assert watched.look(old=(5, 0), new=(5, 0)) is None


def test_a_new_canary_begins_without_earlier_evidence() -> None:
    watched = Watched()
    watched.look()
    assert watched.look(old=(5, 0), new=(5, 0)) == "wait"
    other = begun(count=2, room=3)[0]
    other.key(batching={"maxBatchSize": 9})
    watched.watch.planned(KEY, rolling(rollout(other)))

    assert watched.watch.result(KEY, []) is None


def outcome(watched: Watched, *, looks: int = 120) -> str | None:
    """The first verdict that ends the canary."""
    for _ in range(looks):
        if (action := watched.look(old=(60, 0), new=(30, 0))) in {"promote", "rollback"}:
            return action
    return None


def test_a_canary_half_as_slow_again_is_worse_by_the_balancers_latency() -> None:
    slow = Watched(slower=1.6)
    assert outcome(slow) == "rollback"
    assert slow.why.startswith("rolled back: the new revision is worse: p95 ")


def test_an_equally_fast_canary_is_promoted_and_the_reason_names_its_latency() -> None:
    alike = Watched()
    assert outcome(alike) == "promote"
    assert "p95 " in alike.why


def test_a_canary_with_a_longer_queue_is_worse_for_any_number_waiting() -> None:
    watched = Watched()
    # At 12 requests per second 24 wait, and at 6 there are 36.
    watched.waits_us = {"old": 2_000_000, "new": 6_000_000}
    assert (outcome(watched), "queue 6" in watched.why) == ("rollback", True)


def test_limits_of_the_spec_are_those_of_the_tests() -> None:
    watched = Watched(analysis={"maxFailureIncrease": 40, "minRequests": 2000})
    last = ""
    for _ in range(30):
        last = watched.look(old=(50, 0), new=(45, 5)) or last
    assert last == "wait"
    assert "of the 2000 requests" in watched.why
    assert outcome(Watched(analysis={"maxLatencyIncrease": 300}, slower=1.6)) == "promote"


def test_latency_is_no_part_of_the_analysis_without_balancers() -> None:
    alike = Watched(balanced=False)
    assert outcome(alike) == "promote"
    assert "p95 " not in alike.why


def test_errors_that_a_model_answers_are_unknown_without_balancers() -> None:
    """Triton counts them as successes; docs/limits.md says so."""
    answered = Watched(balanced=False)
    answered.errors = {"a": 0, "b": 0}
    for _ in range(60):
        answered.errors["b"] += 50
        last = answered.look(old=(50, 0), new=(50, 0))
    assert last == "promote"


def test_a_canary_without_requests_waits_and_says_so() -> None:
    idle = Watched()
    idle.errors = {"a": 0, "b": 0}
    assert {idle.look(old=(50, 0)) for _ in range(60)} <= {"wait", None}
    assert idle.look(old=(50, 0)) == "wait"
    assert "0 of the 100 requests" in idle.why


def test_a_balancer_without_latency_is_waited_for() -> None:
    silent = Watched()
    silent.balanced = False
    assert outcome(silent, looks=40) is None
    assert silent.why == "waits: no latencies of stable and canary are reported"


def test_a_restarted_balancer_is_counted_from_its_restart() -> None:
    watched = Watched()
    for _ in range(30):
        watched.look(old=(60, 0), new=(30, 0))
    watched.buckets = {slot: [0] * (len(BOUNDS_MS) + 1) for slot in "ab"}
    assert outcome(watched) == "promote"


def test_a_slot_with_pods_of_both_revisions_says_nothing_of_either() -> None:
    class Mixed(Watched):
        @property
        def servers(self) -> list[Object]:
            return [*super().servers, server("older", self.stable, "b")]

    mixed = Mixed(slower=3)
    assert outcome(mixed, looks=40) is None
    assert "no latencies of canary are reported" in mixed.why


def test_an_evicted_pod_of_the_other_revision_hides_no_latency() -> None:
    class Evicted(Watched):
        @property
        def servers(self) -> list[Object]:
            ended = pod("older", ready=False, revision=self.stable, phase="Failed")
            ended["metadata"]["labels"][names.SLOT_LABEL] = "b"
            return [*super().servers, ended]

    assert outcome(Evicted()) == "promote"
