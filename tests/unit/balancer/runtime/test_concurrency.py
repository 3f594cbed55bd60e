"""Maximum concurrency of pods, from the loads of balancers and samples of the pods."""

from __future__ import annotations

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import BackendLoads
from halcyon.balancer.runtime.server_assignment import AssignedServer
from halcyon.balancer.runtime.shares import PodLoad
from halcyon.triton.client import Endpoint, Metrics, ModelConcurrency

PLAN = BalancerPlan("n", "m", "m", (Slot("a", "m-a", 100, 4),), 16, 100, 1000, 1000, 30000, finds_concurrency=True)
REVISION = "m-server-a-5d5d"


class Pods:
    """Pods of a serial model whose requests are full, and the only balancer of the model."""

    def __init__(self) -> None:
        self.concurrency = Concurrency("b")
        self.concurrency.facts[REVISION] = ModelConcurrency()

    def bound(self, pods: int, now: float) -> int:
        """Place so many pods, each of which has two requests, and return the maximum concurrency of each."""
        names = [f"10.0.0.{number}" for number in range(pods)]
        self.concurrency.place(
            Endpoint("a", f"{REVISION}-{number}", name, serving=True, terminating=False)
            for number, name in enumerate(names)
        )
        servers = [AssignedServer(ServerKey("a", number + 1), "ready", name) for number, name in enumerate(names)]
        loads = BackendLoads({"a": (20, 0)}, servers={server.key: PodLoad((2, 0), (2, 1)) for server in servers})
        self.concurrency.limits(PLAN, servers, loads, now)
        return self.concurrency.bound(PLAN, names[0])

    def sample(self, pending: list[int], since: float) -> None:
        """Add a sample with the number of requests in each pod's queue."""
        read = {f"{REVISION}-{number}": Metrics(pending=count) for number, count in enumerate(pending)}
        self.concurrency.add_samples(read, since, 0.0)


def test_pods_that_a_sample_lacks_are_not_compared() -> None:
    pods = Pods()
    assert pods.bound(1, 0.0) == 2
    for second in (2.0, 4.0, 6.0):
        pods.sample([1], second)
        assert pods.bound(4, second + 1.9) == 2


def test_a_sample_from_before_the_requests_shows_no_overlap() -> None:
    """The agent of a busy node reads the loads seconds after the pods."""
    pods = Pods()
    pods.sample([0, 0, 0, 0], 0.0)
    assert pods.bound(4, 2.0) == 2
    pods.sample([0, 0, 0, 0], 1.0)
    assert pods.bound(4, 4.0) == 2


def test_requests_that_no_queue_has_are_computed_at_once() -> None:
    pods = Pods()
    pods.bound(4, 0.0)
    for second in (2.0, 3.0):
        pods.sample([0, 0, 0, 0], second)
        bound = pods.bound(4, second + 0.1)
    assert bound == PLAN.max_connections
