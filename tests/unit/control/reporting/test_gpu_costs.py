"""Published costs of models whose spec changes. How GPU time is counted is tested in tests/simulator."""

from __future__ import annotations

from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.state.scope import PublishedCosts
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, live
from tests.unit.control.reporting.test_model_metrics import spec


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
