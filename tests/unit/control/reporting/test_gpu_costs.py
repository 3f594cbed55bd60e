"""Published costs of models whose spec changes. How GPU time is counted is tested in tests/simulator."""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.state.scope import PublishedCosts
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.gpu_cost import Prices
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, live, pod
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


def server(world: OperatorReplica, number: int, revision: str, gpus: int, *, resource: str = "nvidia.com/gpu") -> None:
    """Add a ready pod of a revision to a model, on a node."""
    name = f"digits-{revision}-{number}"
    obj = pod(name, "digits", names.SERVER)
    obj["metadata"]["labels"][names.REVISION_LABEL] = revision
    obj["spec"] |= {"nodeName": "n"} | ({"devices": {resource: gpus}} if gpus else {})
    obj["status"]["podIP"] = "10.0.0.1"
    world.caches.pods._store(Key("team", name), obj)


def costs_of(world: OperatorReplica, serving: Spec, accepted: Spec) -> GpuCosts:
    """Return the costs of a model whose serving revision differs from the accepted spec, with two pods of it and one of a canary."""
    world.model(replicas=0)
    server(world, 0, "old", serving.runtime.gpus)
    server(world, 1, "old", serving.runtime.gpus)
    server(world, 0, "new", accepted.runtime.gpus)
    return GpuCosts(
        world.caches,
        world.sensing,
        {DIGITS: serving},
        lambda _: None,
        world.leadership,
        world.clock,
        Prices("EUR", {}, 2.0),
        accepted={DIGITS: accepted},
    )


def test_gpus_of_a_canary_beside_pods_without_gpus_are_counted() -> None:
    async def scenario(world: OperatorReplica) -> None:
        costs = costs_of(world, spec(runtime={"gpu": None}), spec())
        costs.count(DIGITS)
        assert costs.held(DIGITS) == 2
        assert costs.per_hour(DIGITS) == 4.0
        cost = costs.published(DIGITS).cost
        assert cost is not None
        assert (cost.gpus, cost.per_hour) == (2, 4.0)
        world.caches.pods._store(Key("team", "digits-new-0"), None)
        costs.count(DIGITS)
        assert costs.published(DIGITS).cost is None

    live(scenario)


def test_pods_without_gpus_of_a_canary_are_not_counted() -> None:
    async def scenario(world: OperatorReplica) -> None:
        costs = costs_of(world, spec(), spec(runtime={"gpu": None}))
        costs.count(DIGITS)
        assert costs.held(DIGITS) == 4

    live(scenario)


def test_canaries_have_the_gpus_of_their_own_resource_or_claim() -> None:
    async def scenario(world: OperatorReplica) -> None:
        slices = spec(runtime={"gpu": {"count": 3, "resourceName": "nvidia.com/mig-1g.10gb"}})
        costs = costs_of(world, spec(), slices)
        server(world, 0, "new", 3, resource="nvidia.com/mig-1g.10gb")
        costs.count(DIGITS)
        assert costs.held(DIGITS) == 7

    live(scenario)
