"""A canary session against the operator's own rollout and status, on a simulated cluster that reconciles at each pause."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from halcyon.control.state.scope import CanaryResult
from halcyon.kube.kinds import Kind
from halcyon_cli.bench.canary.canary_session import CanaryOutcome, CanarySession
from halcyon_tune.patch import merged
from tests.unit.control.rollout.canary_cluster import status_of
from tests.unit.control.rollout.deployment_simulation import Cluster, served

CHANGE = {"batching": {"maxBatchSize": 16}, "runtime": {"instancesPerGPU": 2}}
Verdict = Callable[[Cluster, str], None]


class ReconcilingCluster:
    """A cluster whose model is read from, and written into, a simulation with the operator's own decisions."""

    namespace = "team"

    def __init__(self, *, count: int = 3, room: int = 8, **rollout: Any) -> None:
        self.simulated = served(count=count, room=room, **rollout)
        self.before = json.loads(json.dumps(self.simulated.spec))
        self.version = self.generation = 1
        self.status = status_of(self.simulated)
        self.verdict: Verdict = lambda _, __: None
        self.steps: set[int] = set()

    def may(self, *_: object) -> bool:
        return True

    def items(self, *_: object, **__: object) -> list[Any]:
        return []

    def model(self, _: str) -> dict[str, Any]:
        self.steps.add((self.status["rollout"].get("canary") or {}).get("step", 0))
        meta = {
            "name": "digits",
            "generation": self.generation,
            "resourceVersion": str(self.version),
            "annotations": self.simulated.annotations,
        }
        return json.loads(  # type: ignore[no-any-return]
            json.dumps({"metadata": meta, "spec": self.simulated.spec, "status": self.status})
        )

    def change_version(self, _: Kind, __: str, body: Mapping[str, Any], version: str) -> dict[str, Any] | None:
        if version != str(self.version):
            return None
        self.version += 1
        patched = merged(
            {"metadata": {"annotations": self.simulated.annotations}, "spec": self.simulated.spec},
            {"metadata": {"annotations": body.get("metadata", {}).get("annotations", {})}, "spec": body["spec"]},
        )
        self.generation += self.simulated.spec != patched["spec"]
        self.simulated.annotations, self.simulated.spec = patched["metadata"]["annotations"], patched["spec"]
        return self.model("digits")

    def pause(self, _: float) -> None:
        cluster = self.simulated
        planned = cluster.operate()
        # Without a canary, the analysis forgets its result.
        cluster.verdict = None
        if planned.rollout is not None and planned.rollout.canary is not None:
            self.verdict(cluster, planned.rollout.requested.key)
        # A reconcile writes the status last.
        self.status = status_of(cluster) | {"observedGeneration": self.generation}
        for act in (cluster.control, cluster.schedule, cluster.start):
            act()
        cluster.now += 15

    def run(self, verdict: Verdict, *, limit_s: float = 3600) -> CanaryOutcome:
        self.verdict = verdict
        session = CanarySession(
            self,  # type: ignore[arg-type]
            "digits",
            limit_s=limit_s,
            start_s=120,
            show=lambda _: None,
            clock=lambda: self.simulated.now,
            pause=self.pause,
        )
        return session.run(CHANGE)

    @property
    def revisions(self) -> set[str]:
        """Revisions of all pods."""
        return {server.revision for server in self.simulated.servers}


def as_good(cluster: Cluster, key: str) -> None:
    cluster.verdict = CanaryResult(key, "promote", "as good")


def worse(cluster: Cluster, key: str) -> None:
    cluster.verdict = CanaryResult(key, "rollback", "rolled back: the new revision is worse: p95 9 s")


def waiting(cluster: Cluster, key: str) -> None:
    cluster.verdict = CanaryResult(key, "wait", "waits: too few requests")


def interrupted(_: Cluster, __: str) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("strategy", ["Auto", "Canary"])
def test_canary_that_the_operator_promotes_serves_alone(strategy: str, count: int) -> None:
    cluster = ReconcilingCluster(count=count, strategy=strategy)
    outcome = cluster.run(as_good)
    assert outcome.end == "promoted"
    assert {1, 2, 3} <= cluster.steps
    assert cluster.simulated.spec == merged(cluster.before, CHANGE)
    assert len(cluster.revisions) == 1
    assert outcome.revision.removeprefix("digits-") in cluster.revisions
    # The restored strategy starts no other rollout.
    cluster.simulated.settle(rounds=5)
    assert status_of(cluster.simulated)["rollout"]["phase"] == "Complete"
    assert outcome.revision.removeprefix("digits-") in cluster.revisions


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("strategy", ["Auto", "Canary"])
@pytest.mark.parametrize(
    ("verdict", "words"), [(worse, "p95 9 s"), (waiting, "wasn't decided within 60 min"), (interrupted, "interrupted")]
)
def test_canary_that_does_not_stay_leaves_the_first_revision(
    verdict: Verdict, words: str, strategy: str, count: int
) -> None:
    cluster = ReconcilingCluster(count=count, strategy=strategy)
    first = set(cluster.revisions)
    outcome = cluster.run(verdict)
    assert outcome.end == "undone"
    assert words in outcome.why
    assert outcome.why.endswith("the previous settings serve all requests")
    assert cluster.simulated.spec == cluster.before
    assert (cluster.revisions, len(cluster.simulated.servers)) == (first, count)
    assert status_of(cluster.simulated)["rollout"]["phase"] == "Complete"


def test_canary_of_the_same_settings_can_be_started_again() -> None:
    cluster = ReconcilingCluster(strategy="Auto")
    assert cluster.run(worse).end == "undone"
    assert cluster.run(interrupted).end == "undone"
    assert cluster.run(as_good).end == "promoted"


def test_canary_without_capacity_beside_the_only_pod_is_taken_back() -> None:
    cluster = ReconcilingCluster(count=1, room=1, strategy="Auto")
    outcome = cluster.run(as_good)
    assert outcome.end == "undone"
    assert "no node had capacity for its pod within 120 s" in outcome.why
    assert len(cluster.simulated.servers) == 1


def test_canary_that_cannot_load_is_taken_back() -> None:
    cluster = ReconcilingCluster(strategy="Auto")

    def broken(simulated: Cluster, key: str) -> None:
        simulated.bad.add(key)

    outcome = cluster.run(broken)
    assert outcome.end == "undone"
    assert cluster.simulated.spec == cluster.before
    assert len(cluster.simulated.servers) == 3


def test_scale_to_zero_during_the_canary_takes_it_back() -> None:
    cluster = ReconcilingCluster(strategy="Auto")

    def idle(simulated: Cluster, _: str) -> None:
        simulated.spec["replicas"] = 0

    outcome = cluster.run(idle)
    assert outcome.end == "undone"
    assert "scaled to zero" in outcome.why
    assert cluster.simulated.spec == cluster.before | {"replicas": 0}
