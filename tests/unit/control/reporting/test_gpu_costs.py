"""Published costs of models whose spec changes. How GPU time is counted is tested in tests/simulator."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.state.scope import PublishedCosts
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import names, revision
from halcyon.scaling.gpu_cost import Prices
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, live
from tests.unit.control.reporting.test_model_metrics import spec
from tests.unit.control.scope_builders import scope_of
from tests.unit.render.rendered import SITE


def test_a_model_that_no_longer_requests_gpus_has_no_cost() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model()

    world = live(scenario)
    costs = GpuCosts(world.caches, world.sensing, world.specs, lambda _: None, world.leadership, world.clock)
    world.specs[DIGITS] = spec()
    assert costs.published(DIGITS).settling, "the status keeps its value until the first sample"
    costs.count(DIGITS)
    assert costs.published(DIGITS).cost is not None
    world.specs[DIGITS] = spec(runtime={"gpu": None})
    costs.count(DIGITS)
    assert costs.published(DIGITS) == PublishedCosts()


def runs(world: OperatorReplica, name: str, runtime: dict[str, Any]) -> None:
    """Change a pod of the model to one of a stored revision with these settings."""
    subject = scope_of().subject
    stored = revision.render(subject, spec(runtime=runtime), SITE, None, number=1)
    record = revision.record(subject, stored)
    record["metadata"]["resourceVersion"] = "1"
    world.caches.children[kinds.CONTROLLER_REVISION]._store(Key("team", record["metadata"]["name"]), record)
    pod = world.caches.pods.get(Key("team", name))
    assert pod is not None
    labels = pod["metadata"]["labels"] | {names.REVISION_LABEL: stored.key}
    status = pod["status"] | {"podIP": "10.0.0.1"}
    changed = pod | {"metadata": pod["metadata"] | {"labels": labels, "resourceVersion": "2"}, "status": status}
    world.caches.pods._store(Key("team", name), changed)


@pytest.mark.parametrize(
    ("stable", "canary", "gpus"),
    [
        ({}, {"gpu": {"count": 2}}, 2),
        ({"gpu": {"count": 2}}, {}, 6),
        (
            {"gpu": {"count": 1, "resourceClaimTemplateName": "one-gpu"}},
            {"gpu": {"count": 4, "resourceClaimTemplateName": "four-gpus"}},
            7,
        ),
    ],
    ids=["only the canary has GPUs", "the canary has no GPUs", "resource claims of different size"],
)
def test_the_gpus_of_a_canary_are_counted_beside_those_of_the_others(
    stable: dict[str, Any], canary: dict[str, Any], gpus: int
) -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model(replicas=4)

    world = live(scenario)
    world.specs[DIGITS] = spec(runtime=stable)
    for number in range(4):
        runs(world, f"digits-a-{number}", canary if number == 3 else stable)
    prices = Prices("EUR", {}, 2.5)
    costs = GpuCosts(
        world.caches, world.sensing, world.specs, lambda _: None, world.leadership, world.clock, prices=prices
    )
    costs.count(DIGITS)
    assert (costs.held(DIGITS), costs.per_hour(DIGITS)) == (gpus, 2.5 * gpus)
