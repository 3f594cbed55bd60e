"""Events that happen to a model while requests are sent, with the condition that ends each event."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from benchmarks.dataplane import stage
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube, is_ready

_PODS_TIMEOUT_S = 150.0
_EVICTION_TIMEOUT_S = 30.0
_ROLLED_OUT = "--timeout=120s"


@dataclass(frozen=True)
class Subject:
    """The model that receives the requests."""

    kube: Kube
    name: str
    replicas: int
    balancers: int


Event = Callable[[Subject], Awaitable[None]]


async def _scale_up(model: Subject) -> None:
    await _scale(model, 6)


async def _scale_down(model: Subject) -> None:
    await _scale(model, model.replicas)


async def _scale(model: Subject, count: int) -> None:
    await asyncio.to_thread(stage.patch, model.kube, model.name, {"replicas": count})
    await _wait_for_pods(model, servers=count)


async def _roll_out_batching(model: Subject) -> None:
    await _roll_out(model, {"batching": {"maxQueueDelay": "3ms"}})


async def _roll_out_parameters(model: Subject) -> None:
    await _roll_out(model, {"model": {"parameters": {"gpu_ms": "1"}}})


async def _roll_out(model: Subject, change: dict[str, object]) -> None:
    old = _names(model, "server")
    await asyncio.to_thread(stage.patch, model.kube, model.name, change)
    await _wait_for_pods(model, without=old)


async def _canary(model: Subject) -> None:
    """Roll out a canary to the other slot: half of the replicas, then half of the requests, then everything.

    The pods of the old slot are deleted.
    """
    steps = [{"weight": 25, "pause": {"duration": "5s"}}, {"weight": 50, "pause": {"duration": "5s"}}]
    rollout = {"strategy": "Canary", "canary": {"steps": steps, "analysis": {"mode": "Disabled"}}}
    await _roll_out(model, {"rollout": rollout, "batching": {"maxQueueDelay": "2ms"}})


async def _evict_server(model: Subject) -> None:
    await _evict(model, "server")


async def _evict_balancer(model: Subject) -> None:
    await _evict(model, "balancer")


async def _evict(model: Subject, component: str) -> None:
    """Evict pods as a node drain does, and retry while the PodDisruptionBudget forbids it."""
    pod = min(_names(model, component))
    path = f"/api/v1/namespaces/{model.kube.namespace}/pods/{pod}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}

    def evicted() -> bool:
        try:
            model.kube("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        except DemoError as error:
            if "disruption budget" in str(error):
                return False
            raise
        return True

    await stage.until(evicted, goal=f"{pod} is evicted", limit_s=_EVICTION_TIMEOUT_S)
    await _wait_for_pods(model, without={pod})


async def _delete_server(model: Subject) -> None:
    pod = min(_names(model, "server"))
    await asyncio.to_thread(model.kube, "delete", "pod", pod, "--wait=false")
    await _wait_for_pods(model, without={pod})


async def _restart_balancers(model: Subject) -> None:
    old = _names(model, "balancer")
    deployment = f"deployment/{model.name}-balancer"
    await asyncio.to_thread(model.kube, "rollout", "restart", deployment)
    await asyncio.to_thread(model.kube, "rollout", "status", deployment, _ROLLED_OUT)
    await _wait_for_pods(model, without=old)


async def _restart_operator(model: Subject) -> None:
    def restart() -> None:
        model.kube("rollout", "restart", "deployment/halcyon", namespace=SYSTEM)
        model.kube("rollout", "status", "deployment/halcyon", _ROLLED_OUT, namespace=SYSTEM)

    await asyncio.to_thread(restart)
    await _wait_for_pods(model)


def _names(model: Subject, component: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in model.kube.pods(model.name, component)}


async def _wait_for_pods(model: Subject, *, servers: int | None = None, without: Collection[str] = ()) -> None:
    """Wait until all pods are ready and none of the old pods remains."""
    pod_counts = {"server": model.replicas if servers is None else servers, "balancer": model.balancers}

    def are_ready() -> bool:
        for component, count in pod_counts.items():
            pods = model.kube.pods(model.name, component)
            if len(pods) != count or not all(map(is_ready, pods)):
                return False
            if not {pod["metadata"]["name"] for pod in pods}.isdisjoint(without):
                return False
        return True

    await stage.until(are_ready, goal=f"{model.name} has {pod_counts}, all ready and new", limit_s=_PODS_TIMEOUT_S)


ALL: dict[str, Event] = {
    "scale 2 to 6": _scale_up,
    "scale 6 to 2": _scale_down,
    "rollout, batching": _roll_out_batching,
    "eviction of a server": _evict_server,
    "restart of the balancers": _restart_balancers,
    "rollout, parameters": _roll_out_parameters,
    "eviction of a balancer": _evict_balancer,
    "restart of the operator": _restart_operator,
    "canary": _canary,
}
"""All events, in the order in which they run."""
SINGLE_REPLICA: dict[str, Event] = {
    "rollout, batching": _roll_out_batching,
    "eviction of the server": _evict_server,
    "the server deleted": _delete_server,
}
