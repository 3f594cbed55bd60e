"""A model on two nodes, a load whose failures are known by their time, and what happens to the second node."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from demo import models
from demo.kube import SYSTEM, Kube, Sample, is_ready, total, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.cluster.node import NAMES
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report

CLUSTER = "two-nodes"
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
    "grpc": (GRPC_PORT, {"protocol": "grpc", "channels": 8, "keepalive_s": 10.0}),
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


def wait_until_spread(kube: Kube) -> None:
    """Wait until all pods are Ready, and each node has half of each kind."""
    wait_for(lambda: all_ready(kube), goal="all pods are Ready", limit_s=60)
    for component, half in (("server", SERVERS // 2), ("balancer", 1)):
        assert placed(kube, component) == {FIRST: half, SECOND: half}, component


def all_ready(kube: Kube) -> bool:
    """Return True if the model has exactly its pods, and all are Ready."""
    for component, count in (("server", SERVERS), ("balancer", 2)):
        pods = kube.pods(MODEL, component)  # type: ignore[arg-type]
        if len(pods) != count or not all(map(is_ready, pods)):
            return False
    return True


def respread(kube: Kube) -> None:
    """Replace all pods of the model one after the other, so that both nodes have pods again."""
    for name in (f"{MODEL}-balancer",):
        kube("rollout", "restart", f"deployment/{name}")
        kube("rollout", "status", f"deployment/{name}", "--timeout=120s")


def figures(samples: list[Sample] | None) -> dict[str, float]:
    """Return the values of the samples without labels, by name."""
    return {sample.name: sample.value for sample in samples or () if not sample.labels}
