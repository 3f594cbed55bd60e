"""A simulated cluster with a canary, for the tests of canaries and of superseded canaries."""

from __future__ import annotations

from typing import Any

from halcyon.api.spec.rollout import CanaryPause, CanaryStep
from halcyon.api.timestamps import rfc3339
from halcyon.control.desired import plan
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.status import status
from tests.unit.control.rollout.deployment_simulation import Cluster, served

OTHER = {"batching": {"maxBatchSize": 2}}
SPECS: dict[str, dict[str, Any]] = {
    "again": OTHER,
    "other": {"batching": {"maxBatchSize": 7}},
    "third": {"batching": {"maxBatchSize": 8}},
    "undo": {},
}
"""Specs that may follow a canary: its own spec again, others, and the spec that serves."""
STEPS = tuple(CanaryStep(weight=weight, pause=CanaryPause(duration="1m")) for weight in (20, 50))


def request_spec(cluster: Cluster, spec: str) -> None:
    """Apply one of `SPECS`."""
    cluster.spec = {name: value for name, value in cluster.spec.items() if name != "batching"} | SPECS[spec]


def begun(*, count: int = 5, room: int = 7, **canary: Any) -> tuple[Cluster, str, str]:
    """Return (a cluster whose next revision is a canary, the revision that serves, the canary)."""
    steps = [step.to_dict() for step in STEPS]
    cluster = served(room=room, count=count, strategy="Canary", canary={"steps": steps, **canary})
    first = cluster.applied[-1]
    return cluster, first, cluster.key(**OTHER)


def decided(cluster: Cluster) -> RolloutPlan:
    rollout = cluster.operate().rollout
    assert rollout is not None
    return rollout


def weights(cluster: Cluster) -> dict[str, int]:
    return {placed.slot: placed.weight for placed in decided(cluster).slots}


def split(cluster: Cluster) -> tuple[int, int]:
    return len(cluster.of("a")), len(cluster.of("b"))


def status_of(cluster: Cluster) -> dict[str, Any]:
    seen = cluster.look()
    return dict(status.make(seen, plan.make(seen), now=rfc3339(cluster.now)))
