"""The embedded cluster with Halcyon, started by the first part that needs it, its models and its pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from benchmarks.errors import BenchError
from demo import models, setup
from demo.kube import Kube, is_ready, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.cluster import cluster as clusters
from e2e.cluster.places import names as cluster_names
from e2e.cluster.progress import say
from halcyon.control.objects import pods as pod_facts
from halcyon.kube import kinds
from halcyon.kube.client import connect
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key
from halcyon.render import names

NAME = "dataplane"
_HPA_SYNC = "15s"
_CPU, _MEMORY = "20m", "384Mi"
_SERVED_TIMEOUT_S = 120.0


class Stage:
    """Context with the embedded cluster, which is shut down when the context is left.

    Clusters left by killed benchmarks are shut down first.
    """

    def __init__(self, *, beside: bool) -> None:
        """Prepare the context. `beside` allows the benchmark to run while another cluster is up."""
        self._beside = beside
        self._kube: Kube | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kube(self) -> Kube:
        """Return the cluster. Starting it takes about 30 s if the images and programs are built already.

        Raises:
            BenchError: another cluster is up.
            DemoError: it can't be started.
        """
        if self._kube is None:
            others = [name for name in cluster_names() if name != NAME]
            if others and not self._beside:
                raise BenchError(
                    f"cluster {others[0]} is up and would take part of the machine that is measured; end it first "
                    f"(python -m e2e.cluster down --name {others[0]}), or measure beside it with --beside"
                )
            clusters.down(NAME)
            self._stack.callback(setup.remove, NAME, step=_print_step)
            self._kube = setup.install(NAME, hpa_sync=_HPA_SYNC, step=_print_step).kube
            self._stack.callback(self._kube.close)
            self._kube.apply(models.documents()["ConfigMap"])
        return self._kube


def _print_step(title: str) -> None:
    say(f"bench: {title}")


def digits(name: str, *, replicas: int, balancers: int, **traffic: Any) -> dict[str, Any]:
    """Return a ModelDeployment of the digits classifier, whose responses contain the name of the pod."""
    document = models.variant(name, replicas=replicas, gpus=0)
    spec = document["spec"]
    spec["runtime"]["resources"] = {"requests": {"cpu": _CPU}, "limits": {"memory": _MEMORY}}
    spec["traffic"] = {"balancerReplicas": balancers, **traffic}
    return document


@contextmanager
def served(kube: Kube, document: dict[str, Any], *, replicas: int) -> Iterator[str]:
    """Apply a ModelDeployment, and delete it when the context is left.

    When the context is entered, all its model pods and balancers are ready.
    """
    name = str(document["metadata"]["name"])
    balancers = int(document["spec"]["traffic"]["balancerReplicas"])
    try:
        kube.apply(document)
        models.wait_until_served(kube, name, replicas=replicas, limit_s=_SERVED_TIMEOUT_S)
        wait_for(
            lambda: sum(map(is_ready, kube.pods(name, "balancer"))) >= balancers,
            goal=f"{balancers} balancers of {name} are ready",
            limit_s=60,
        )
        yield name
    finally:
        models.delete(kube, name, wait=False)


def addresses(kube: Kube, name: str) -> dict[Any, str]:
    """Return host:port of a model's Service by protocol."""
    return {"http": kube.must_address(name, HTTP_PORT), "grpc": kube.must_address(name, GRPC_PORT)}


def patch(kube: Kube, name: str, spec: dict[str, Any]) -> None:
    """Apply a merge patch to a ModelDeployment's spec."""
    kube("patch", "modeldeployment", name, "--type=merge", "-p", json.dumps({"spec": spec}))


@dataclass
class PodTimes:
    """Times at which model pods became ready, began to terminate and were deleted.

    They are the arrival times of watch events on the monotonic clock.
    """

    ready_s: dict[str, float] = field(default_factory=dict)
    leaving_s: dict[str, float] = field(default_factory=dict)
    deleted_s: dict[str, float] = field(default_factory=dict)

    def changed(self, key: Key, _before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """Process one event of the watch."""
        if after is None:
            self.deleted_s[key.name] = time.monotonic()
        elif not pod_facts.is_server(after):
            return
        elif after["metadata"]["deletionTimestamp"] is not None:
            self.leaving_s.setdefault(key.name, time.monotonic())
        elif pod_facts.is_ready(after):
            self.ready_s.setdefault(key.name, time.monotonic())


@asynccontextmanager
async def pod_times(kube: Kube, name: str) -> AsyncIterator[PodTimes]:
    """Watch a model's pods. Those that are ready already count as ready from now on."""
    times = PodTimes()
    client = await connect(str(kube.kubeconfig))
    selector = f"{names.OWNER_LABEL}={name},{names.COMPONENT_LABEL}={names.SERVER}"
    informer = Informer(
        client,
        kinds.POD,
        selector=selector,
        namespaces=(kube.namespace,),
        project=pod_facts.project,
        listeners=[times.changed],
    )
    watching = asyncio.create_task(informer.run())
    try:
        await informer.synced.wait()
        yield times
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await client.close()


async def until(condition: Callable[[], bool], *, goal: str, limit_s: float) -> None:
    """Evaluate `condition` repeatedly until it returns True, without blocking the event loop.

    Raises:
        DemoError: the time limit passed.
    """
    await asyncio.to_thread(wait_for, condition, goal=goal, limit_s=limit_s)
