"""A model that is scaled while it has a canary, against a real API server: both slots follow, and no serving pod is lost on the way.

Pods are KWOK's. /scale is written by the test as an HPA does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halcyon.kube import kinds
from tests.integration.operator.test_rollout import fewest, pods_of, weights
from tests.integration.operator_space import Space, deployment
from tests.integration.waiting import until

pytestmark = pytest.mark.more

CANARY: dict[str, Any] = {
    "strategy": "Canary",
    "canary": {"steps": [{"weight": 25, "pause": {"duration": "1h"}}], "analysis": {"mode": "Disabled"}},
}
"""One step, which outlasts the test."""
SLOTS = ("m-a-", "m-b-")


def split(space: Space) -> tuple[int, int]:
    """Ready pods of the stable revision and of the canary."""
    return len(pods_of(space, "a")), len(pods_of(space, "b"))


def replicas_of_slots(space: Space) -> tuple[int, int]:
    """Replicas of the two Deployments."""
    stable, canary = (int(space.must(kinds.DEPLOYMENT, f"m-{slot}")["spec"]["replicas"]) for slot in "ab")
    return stable, canary


def wait_split(space: Space, stable: int, canary: int) -> None:
    until(
        lambda: (split(space), replicas_of_slots(space)),
        lambda counts: counts == ((stable, canary), (stable, canary)),
        goal=f"{stable} pods of the stable revision and {canary} of the canary",
        context=lambda: str(space.status().get("rollout")),
    )
    counts = {"total": stable + canary, "ready": stable + canary, "updated": canary, "unschedulable": 0}
    until(lambda: space.status()["pods"], lambda pods: pods.items() >= counts.items(), goal="the status has the counts")


@contextmanager
def serving_at_least(space: Space, pods: int) -> Iterator[None]:
    """Check that as many pods of both slots together are ready at every moment."""
    with fewest(space, SLOTS) as seen:
        yield
    assert min(seen) >= pods


def test_both_slots_follow_the_replicas_during_a_canary(space: Space) -> None:
    space.serve(replicas=4, rollout=CANARY, batching={"maxBatchSize": 4})
    with serving_at_least(space, 4):
        space.apply(deployment(replicas=4, rollout=CANARY, batching={"maxBatchSize": 8}))
        until(lambda: weights(space), lambda shares: shares == {"a": 75, "b": 25}, goal="the canary has its share")
        wait_split(space, 3, 1)
    canary = pods_of(space, "b")

    with serving_at_least(space, 4):
        space.scale(12)
        wait_split(space, 9, 3)
    assert canary < pods_of(space, "b"), "the pods that were there stay"
    with serving_at_least(space, 6):
        space.scale(6)
        wait_split(space, 4, 2)
    # A pod of each is left; of one replica, the canary's is in addition.
    for count, stable in ((2, 1), (1, 1)):
        with serving_at_least(space, count):
            space.scale(count)
            wait_split(space, stable, 1)
    assert weights(space) == {"a": 75, "b": 25}
    rollout = space.status()["rollout"]
    assert rollout["canary"] == {"step": 1, "weight": 25, "pods": 1}

    with serving_at_least(space, 2):
        space.scale(8)
        wait_split(space, 6, 2)
    left = pods_of(space, "b")
    with serving_at_least(space, 8):
        revision = space.status()["revision"]["target"]
        space.merge(
            kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"serving.halcyon.dev/promote": revision}}}
        )
        until(lambda: split(space), lambda counts: counts == (0, 8), goal="all pods are of the canary's revision")
    assert left <= pods_of(space, "b")
