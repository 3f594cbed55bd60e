"""A control plane without nodes, with the operator as a process on this machine, for the parts with many models.

Real: etcd, API server, controller-manager with its HPA controller, scheduler, TokenReviews, TLS, the operator.
Simulated: the pods, which KWOK makes Ready at once (`STAND_INS`). The operator's process is started by the helper of
the integration tests.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import BenchError
from benchmarks.rows import FILE
from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok import node_labels
from e2e.cluster.options import Options
from e2e.cluster.places import names
from halcyon.api.types import API_VERSION, KIND
from tests.integration.operator_process import Operator, install

LOGS = FILE.parent
"""Folder that keeps the operator's log of the last run."""
NAME = "bench"
SPACES = 20
"""Number of namespaces over which the models are spread, as with teams. Kubernetes controllers list objects by
namespace."""
STAND_INS = (
    "pods are simulated by KWOK: no container runs, and each pod is Ready at once",
    "a load generator creates the agents' reports and sends them over TLS, using the agents' own client code",
)
_PODS_PER_NODE = 1000
_MODEL_FILES = "model"
_GROUP = "external.metrics.k8s.io"


@dataclass(frozen=True)
class Plane:
    """A cluster and its operator."""

    cluster: Cluster
    operator: Operator

    @property
    def kubeconfig(self) -> str:
        """Return the path of an administrator's kubeconfig."""
        return str(self.cluster.kubeconfig)


@contextmanager
def alone(*, beside: bool = False) -> Iterator[None]:
    """Make sure that no other cluster is up, and remove this one afterwards.

    Raises:
        BenchError: another cluster is up, and `beside` doesn't allow that.
    """
    others = [name for name in names() if name != NAME]
    if others and not beside:
        raise BenchError(
            f"cluster {others[0]} is up and would take part of the machine that is measured; end it first "
            f"(python -m e2e.cluster down --name {others[0]}), or measure beside it with --beside"
        )
    try:
        yield
    finally:
        clusters.down(NAME)


@contextmanager
def plane(*, hpa_sync_s: int, pods: int, options: tuple[str, ...] = (), name: str = NAME) -> Iterator[Plane]:
    """Start a control plane for `pods` pods, and an operator that leads and serves the external metrics.

    `options` are more options of the operator. `name` is that of the cluster.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("bench-operator-*.log"):
        old.unlink()
    cluster = clusters.up(name, Options(control_plane_only=True, hpa_sync=f"{hpa_sync_s}s"))
    for number in range(1, -(-pods // _PODS_PER_NODE) + 1):
        _node(cluster, f"bench-{number}")
    operator = Operator(install(cluster), "bench-operator", cluster.kubeconfig, LOGS, more=options)
    _register(cluster, operator)
    operator.start()
    try:
        operator.wait_ready(60)
        _files(cluster)
        yield Plane(cluster, operator)
    except BenchError as error:
        # Without a kubelet, nothing restarts the operator. If it exits, no more results can arrive.
        ended = operator.process is not None and operator.process.poll() is not None
        raise BenchError(
            f"{error}\n{f'the operator has ended: {operator.tail()}' if ended else operator.log}"
        ) from None
    finally:
        operator.stop()


def model(name: str, *, most: int, balancers: int = 1, **scaling: Any) -> dict[str, Any]:
    """Return a ModelDeployment on CPU. `scaling` overrides the default limits."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace_of(name)},
        "spec": {
            "model": {
                "source": {
                    "configMap": {"name": _MODEL_FILES, "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}
                }
            },
            "runtime": {"gpu": {"count": 0}},
            "batching": {"maxBatchSize": 8},
            "scaling": {"minReplicas": 1, "maxReplicas": most, **scaling},
            "traffic": {"balancerReplicas": balancers},
        },
    }


def namespace_of(name: str) -> str:
    """Return the namespace of the model with this name."""
    return _namespace(zlib.crc32(name.encode()) % SPACES)


def _namespace(number: int) -> str:
    return f"bench-{number:02}"


def _files(cluster: Cluster) -> None:
    """Create the namespaces and, in each, the model's files."""
    for namespace in map(_namespace, range(SPACES)):
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        cluster.api.create(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {"metadata": {"name": _MODEL_FILES}, "data": {"config.pbtxt": "max_batch_size: 8"}},
        )


def _node(cluster: Cluster, name: str) -> None:
    """Create another KWOK node, because the cluster's own node has capacity for a thousand pods."""
    resources: Mapping[str, str] = {"cpu": "10k", "memory": "32Ti", "pods": str(_PODS_PER_NODE)}
    cluster.api.create(
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": node_labels(name)},
            "status": {"capacity": resources, "allocatable": resources},
        },
    )


def _register(cluster: Cluster, operator: Operator) -> None:
    """Create the objects that the chart creates for the metrics API.

    The Service leads to this machine (see e2e.cluster.control_plane).
    """
    cluster.api.create(
        f"/api/v1/namespaces/{operator.namespace}/services",
        {"metadata": {"name": "halcyon"}, "spec": {"type": "ExternalName", "externalName": "localhost"}},
    )
    cluster.api.create(
        "/apis/apiregistration.k8s.io/v1/apiservices",
        {
            "metadata": {"name": f"v1beta1.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"namespace": operator.namespace, "name": "halcyon", "port": operator.port},
            },
        },
    )
