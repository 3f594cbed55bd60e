"""KEDA as the scaler of a benchmark's model: a ScaledObject that reads the requests in flight from a real Prometheus.

It is set up as in docs/guides/keda.md. The conditions favour KEDA: a scrape each second, a single balancer, and
Halcyon's data plane, which limits the queue.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.errors import BenchError
from benchmarks.plane import NAME
from demo import setup
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube, wait_for
from e2e import keda
from e2e.cluster import cluster as clusters
from halcyon.kube import kinds
from halcyon.render import names
from tests.integration.real_prometheus import prometheus

TARGET = 8
"""Target of requests in flight per replica: one batch of 8, the best value in the preceding measurement
(docs/benchmarks/reaction.md)."""
STAND_IN = "KEDA's two programs run as host processes with administrator permissions, and not as pods"
_LIMIT_S = 60


@contextmanager
def scales(kube: Kube, name: str, *, least: int, most: int) -> Iterator[None]:
    """Scale the model with KEDA while the context is open.

    Halcyon leaves the replicas to KEDA, and gives up serving external.metrics.k8s.io before.

    Raises:
        BenchError: there is no cluster, or no balancer to scrape.
    """
    cluster = clusters.find(NAME)
    if cluster is None:
        raise BenchError(f"cluster {NAME} is not up")
    # An APIService can have only one owner (docs/guides/keda.md).
    kube.helm(
        "upgrade",
        "halcyon",
        str(setup.CHART),
        f"--namespace={SYSTEM}",
        "--reuse-values",
        "--set=metricsAPI.register=false",
        "--wait",
    )
    jobs = [{"job_name": "agent", "static_configs": [_target(kube, name)]}]
    with (
        tempfile.TemporaryDirectory(prefix="halcyon-keda-") as folder,
        prometheus(jobs) as scraping,
        keda.running(cluster, Path(folder)) as running,
    ):
        kube.apply(_scaled_object(kube, name, scraping.address, least=least, most=most))
        try:
            try:
                wait_for(lambda: _is_ready(kube, name), goal=f"ScaledObject {name} is ready", limit_s=_LIMIT_S)
            except DemoError as error:
                raise BenchError(f"{error}\n{running.log_tail()}") from None
            yield
        finally:
            kube("delete", "scaledobject", name, "--ignore-not-found", "--timeout=60s")


def _target(kube: Kube, name: str) -> dict[str, object]:
    """Return the scrape target for the model's balancer, with the labels that the chart's PodMonitor adds."""
    addresses = [pod["status"]["podIP"] for pod in kube.pods(name, "balancer")]
    if len(addresses) != 1:
        raise BenchError(f"{name} has {len(addresses)} balancers; 1 was expected")
    labels = {"namespace": kube.namespace, "model_deployment": name}
    return {"targets": [f"{addresses[0]}:{names.AGENT_PORT}"], "labels": labels}


def _scaled_object(kube: Kube, name: str, address: str, *, least: int, most: int) -> dict[str, object]:
    labels = f'{{namespace="{kube.namespace}",model_deployment="{name}"}}'
    target = kinds.MODEL_DEPLOYMENT
    trigger = {
        "serverAddress": f"http://{address}",
        "query": f"sum(halcyon_agent_inflight{labels}) + sum(halcyon_agent_queued{labels})",
        "threshold": str(TARGET),
        "ignoreNullValues": "false",
    }
    return {
        "apiVersion": keda.SCALED_OBJECT.api_version,
        "kind": keda.SCALED_OBJECT.kind,
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": name},
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "triggers": [{"type": "prometheus", "metadata": trigger}],
        },
    }


def _is_ready(kube: Kube, name: str) -> bool:
    """Return True if KEDA is ready, and its HPA has read the metric once."""
    path = f"/apis/{kinds.HPA.api_version}/namespaces/{kube.namespace}/horizontalpodautoscalers/keda-hpa-{name}"
    conditions = ((kube.json(path) or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "ScalingActive" and c["status"] == "True" for c in conditions)
