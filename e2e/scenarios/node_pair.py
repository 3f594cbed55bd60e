"""A model on two nodes, a load whose failures are known by their time, and what happens to the second node."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from demo import models
from demo.kube import SYSTEM, Kube, is_ready, total, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.cluster.node import NAMES
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report

CLUSTER = "nodes"
MODEL = "pair"
SERVERS = 4
FIRST, SECOND = NAMES
RATE_RPS = 8.0
"""Rate of each of the loads: low, because both nodes and their clients share the machine."""
TIMEOUT_S = 10.0
"""Time after which a client gives up, as clients of an online service do."""
_OPERATOR_PORT = 8080

Component = Literal["server", "balancer"]


def document() -> dict[str, Any]:
    """Return the model with default traffic settings: two balancers."""
    result = models.variant(MODEL, replicas=SERVERS, gpus=0)
    del result["spec"]["traffic"]
    return result


@dataclass(frozen=True)
class Second:
    """What one kind of clients got in one second."""

    at_s: float
    """Of the monotonic clock."""
    kind: str
    answered: int
    failures: dict[str, int]


@dataclass
class History:
    """What clients got, by second. `since` limits it to what came after an event."""

    seconds: list[Second] = field(default_factory=list)

    def since(self, at_s: float) -> "History":
        return History([second for second in self.seconds if second.at_s >= at_s])

    def of(self, kind: str) -> "History":
        return History([second for second in self.seconds if second.kind == kind])

    @property
    def answered(self) -> int:
        return sum(second.answered for second in self.seconds)

    @property
    def failures(self) -> dict[str, int]:
        kinds: dict[str, int] = {}
        for second in self.seconds:
            for kind, count in second.failures.items():
                kinds[kind] = kinds.get(kind, 0) + count
        return kinds

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    def failing_s(self, since_s: float) -> tuple[float, float] | None:
        """Return when the first and the last failure were reported, in seconds since `since_s`; None if nothing failed."""
        times = [second.at_s - since_s for second in self.seconds if second.failures]
        return (round(min(times), 1), round(max(times), 1)) if times else None


LOADS: dict[str, tuple[int, dict[str, Any]]] = {
    "http": (HTTP_PORT, {"protocol": "http", "connections": "pool"}),
    "grpc": (GRPC_PORT, {"protocol": "grpc", "channels": 8, "keepalive_s": 30.0}),
    "grpc without keepalive": (GRPC_PORT, {"protocol": "grpc", "channels": 8}),
}


@contextmanager
def loaded(kube: Kube, *, kinds: tuple[str, ...] = ("http", "grpc")) -> Iterator[History]:
    """Send requests at fixed rates, and record the results of each second."""
    history = History()
    lock = threading.Lock()

    def recorder(kind: str) -> Callable[[Report], None]:
        def record(report: Report) -> None:
            with lock:
                history.seconds.append(Second(time.monotonic(), kind, report.answered, report.failures))

        return record

    with ExitStack() as stack:
        for kind in kinds:
            port, options = LOADS[kind]
            load = Load(
                address=kube.must_address(MODEL, port),
                model=MODEL,
                rate_rps=RATE_RPS,
                clients=1024,
                timeout_s=TIMEOUT_S,
                duration_s=1800,
                **options,
            )
            stack.enter_context(RunningLoad(load, on_report=recorder(kind))).began_s()
        time.sleep(3)
        yield history
        time.sleep(2)


def placed(kube: Kube, component: Component | None) -> dict[str, int]:
    """Return the number of Ready pods by node: of the model, or of the operator if `component` is None."""
    pods = kube.operators() if component is None else kube.pods(MODEL, component)
    nodes = [str(pod["spec"].get("nodeName")) for pod in pods if is_ready(pod)]
    return {name: nodes.count(name) for name in NAMES}


def leader(kube: Kube) -> dict[str, Any] | None:
    """Return the pod of the leading operator, by the metric of each pod."""
    for pod in kube.operators():
        if is_ready(pod) and total(kube.metrics(pod, _OPERATOR_PORT), "halcyon_leader") == 1:
            return pod
    return None


def lease_holder(kube: Kube) -> str:
    """Return the identity in the operator's Lease, which names a pod."""
    leases = kube.items(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases")
    return next(str(lease["spec"].get("holderIdentity")) for lease in leases if lease["metadata"]["name"] == "halcyon")


def all_ready(kube: Kube) -> bool:
    """Return True if the model has exactly its pods, and all are Ready."""
    for component, count in (("server", SERVERS), ("balancer", 2)):
        pods = kube.pods(MODEL, component)
        if len(pods) != count or not all(map(is_ready, pods)):
            return False
    return True


def spread_again(kube: Kube) -> None:
    """Delete the pods that a node has in excess of its half, as a descheduler does, and wait for the new ones."""
    for component, half in (("server", SERVERS // 2), ("balancer", 1), (None, 1)):
        pods = kube.operators() if component is None else kube.pods(MODEL, component)
        for name in NAMES:
            its_pods = [pod["metadata"] for pod in pods if pod["spec"].get("nodeName") == name]
            for meta in its_pods[half:]:
                kube("delete", "pod", meta["name"], "--wait=false", namespace=meta["namespace"])
    wait_for(lambda: not uneven(kube), goal="each node has half of the pods", limit_s=100)


def uneven(kube: Kube) -> list[str]:
    """Return the kinds of pods of which a node has more or fewer Ready ones than the other."""
    halves: tuple[tuple[Component | None, int], ...] = (("server", SERVERS // 2), ("balancer", 1), (None, 1))
    return [
        f"{component or 'operator'}: {counts}"
        for component, half in halves
        if (counts := placed(kube, component)) != dict.fromkeys(NAMES, half)
    ]


def lead_on(kube: Kube, name: str) -> None:
    """Delete the leading operator until one on the node leads. The standby takes over, and is on the other node."""

    def leads_there() -> bool:
        pod = leader(kube)
        if pod is not None and pod["spec"]["nodeName"] != name and not uneven(kube):
            kube("delete", "pod", pod["metadata"]["name"], namespace=SYSTEM)
        return pod is not None and pod["spec"]["nodeName"] == name and not uneven(kube)

    wait_for(leads_there, goal=f"an operator on {name} leads", limit_s=60)
