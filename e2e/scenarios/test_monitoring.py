"""Every query of the dashboards and alerts on a live stack: a real Prometheus scrapes the operator, the balancers and real Triton pods.

It is given what the chart's monitors choose, by the same selectors, ports and labels as the Prometheus Operator; Debian's Prometheus
can't ask a cluster itself. Only what Triton tells of a GPU's memory isn't there: the stand-in for a GPU has none.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from demo import models, setup
from demo.coldstart import ColdStart
from demo.kube import SYSTEM, Kube, wait_for
from demo.models import DIGITS
from e2e.load import process
from e2e.load.settings import Load
from e2e.queries import CLIENT_METRIC, STREAM_METRIC, unanswered, values
from generators.monitoring import queries, triton_metrics
from halcyon.api.types import quantity
from halcyon.monitoring import operator_metrics
from tests import figures
from tests.integration.alert_cases import PLACES
from tests.integration.real_prometheus import Prometheus, prometheus

pytestmark = pytest.mark.more

Object = dict[str, Any]
METRICS = "halcyon-metrics"
PLANNED, BROKEN = "planned", "without-image"
LIMIT_S = 60
LABEL = "__meta_kubernetes_pod_label_"
OF_METRICS = f"kubernetes.io/service-name={METRICS}"
NOT_ON_CPU = (triton_metrics.GPU_MEMORY_USED.name, triton_metrics.GPU_MEMORY.name)


def rendered(kube: Kube) -> list[Object]:
    """Return the chart's objects for a cluster that has the API of the monitors."""
    monitors = [f"--set=monitoring.{kind}.create=true" for kind in ("serviceMonitor", "podMonitors")]
    arguments = (f"--namespace={SYSTEM}", "--set=images.registry=localhost")
    manifests = kube.helm("template", "halcyon", str(setup.CHART), *arguments, *monitors)
    return [document for document in yaml.safe_load_all(manifests) if document]


def jobs(kube: Kube, monitor: Object) -> Iterator[Object]:
    """Yield a scrape configuration for each endpoint of a monitor, with its current targets."""
    spec, meta = monitor["spec"], monitor["metadata"]
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    is_service_monitor = monitor["kind"] == "ServiceMonitor"
    for endpoint in spec["endpoints" if is_service_monitor else "podMetricsEndpoints"]:
        targets = (
            services(kube, selector, endpoint, meta["namespace"])
            if is_service_monitor
            else pods(kube, selector, endpoint)
        )
        yield {
            "job_name": f"{meta['namespace']}/{meta['name']}/{endpoint['port']}",
            "metrics_path": endpoint.get("path", "/metrics"),
            "honor_labels": endpoint.get("honorLabels", False),
            "static_configs": list(targets),
        }


def services(kube: Kube, selector: str, endpoint: Object, namespace: str) -> Iterator[Object]:
    """Yield the targets behind the Services that a ServiceMonitor selects."""
    for service in kube.items(f"/api/v1/namespaces/{namespace}/services", labelSelector=selector):
        name = service["metadata"]["name"]
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        for part in kube.items(path, labelSelector=f"kubernetes.io/service-name={name}"):
            ports = [port["port"] for port in part["ports"] if port["name"] == endpoint["port"]]
            for address in part["endpoints"]:
                labels = {"namespace": namespace, "pod": address["targetRef"]["name"], "job": name}
                yield {"targets": [f"{address['addresses'][0]}:{port}" for port in ports], "labels": labels}


def pods(kube: Kube, selector: str, endpoint: Object) -> Iterator[Object]:
    """Yield the targets that a PodMonitor of all namespaces selects."""
    for pod in kube.items("/api/v1/pods", labelSelector=selector):
        meta = pod["metadata"]
        labels = {"namespace": meta["namespace"], "pod": meta["name"]}
        meta_labels = {f"{LABEL}{plain(key)}": value for key, value in meta["labels"].items()}
        for relabeling in endpoint.get("relabelings", ()):
            labels[relabeling["targetLabel"]] = ";".join(meta_labels[source] for source in relabeling["sourceLabels"])
        ports = [
            port["containerPort"]
            for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
            for port in container.get("ports", ())
            if port.get("name") == endpoint["port"]
        ]
        yield {"targets": [f"{pod['status']['podIP']}:{port}" for port in ports], "labels": labels}


def plain(label: str) -> str:
    """Return a label's name as Prometheus writes it."""
    return "".join(letter if letter.isalnum() else "_" for letter in label)


@pytest.fixture(scope="module")
def watching(kube: Kube, digits: ColdStart) -> Iterator[Prometheus]:  # noqa: ARG001  # what it brings up is all that is wanted
    """Run a Prometheus that scrapes as long as the tests last."""
    chart = rendered(kube)
    [service] = [
        document for document in chart if document["kind"] == "Service" and document["metadata"]["name"] == METRICS
    ]
    monitors = [document for document in chart if document["kind"] in {"ServiceMonitor", "PodMonitor"}]
    kube("apply", "-f", "-", stdin=models.as_text(service), namespace=SYSTEM)
    try:
        # Its EndpointSlice is made by a controller.
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
        wait_for(
            lambda: any(len(part["endpoints"]) > 1 for part in kube.items(slices, labelSelector=OF_METRICS)),
            goal=f"both operator pods are behind the Service {METRICS}",
            limit_s=30,
        )
        with prometheus([job for monitor in monitors for job in jobs(kube, monitor)]) as running:
            yield running
    finally:
        kube("delete", "service", METRICS, namespace=SYSTEM)


def test_what_the_monitors_choose_is_scraped(kube: Kube, watching: Prometheus) -> None:
    def up() -> dict[str, float]:
        up_queries = {
            "operator": f'sum(up{{job="{METRICS}"}})',
            "HAProxy": f'sum(up{{job="{SYSTEM}/halcyon-balancers/metrics",model_deployment="{DIGITS}"}})',
            "agents": f'sum(up{{job="{SYSTEM}/halcyon-balancers/agent",model_deployment="{DIGITS}"}})',
            "Triton": f'sum(up{{job="{SYSTEM}/halcyon-servers/metrics",model_deployment="{DIGITS}"}})',
        }
        return {name: sum(values(watching.address, query)) for name, query in up_queries.items()}

    balancers = len(kube.pods(DIGITS, "balancer"))
    expected = {
        "operator": len(kube.operators()),
        "HAProxy": balancers,
        "agents": balancers,
        "Triton": len(kube.pods(DIGITS, "server")),
    }
    wait_for(lambda: up() == expected, goal=f"{expected} are scraped", limit_s=LIMIT_S)


def test_each_operator_publishes_the_memory_limit_of_its_container(kube: Kube, watching: Prometheus) -> None:
    limits = [quantity(pod["spec"]["containers"][0]["resources"]["limits"]["memory"]) for pod in kube.operators()]
    published = f'{operator_metrics.MEMORY_LIMIT.name}{{job="{METRICS}"}}'
    wait_for(lambda: values(watching.address, published) == limits, goal=f"limits of {limits}", limit_s=LIMIT_S)


def test_every_query_of_dashboards_and_alerts_has_data(
    kube: Kube, served: Callable[..., str], watching: Prometheus
) -> None:
    variables = {"cluster": ".*", "namespace": "default", "model": ".*", "job": METRICS, "__rate_interval": "1m"}
    all_queries = [*queries.panels(variables), *queries.watched(PLACES)]
    without_streams = [
        query
        for query in all_queries
        if STREAM_METRIC not in query.expression and CLIENT_METRIC not in query.expression
    ]
    assert len(all_queries) - len(without_streams) == 4, "p50, p95 and p99 of one panel, and requests by client"
    pending = [query for query in without_streams if not any(name in query.expression for name in NOT_ON_CPU)]
    many = len(pending)
    assert len(without_streams) - many <= 2 * len(NOT_ON_CPU)
    # Only digits' balancers are scraped here, and it has no objective: tests/integration/signals has this query's data.
    pending = [query for query in pending if query.location != "HalcyonLatencyObjectiveMissed, what it watches"]
    assert many - len(pending) == 1
    broken = models.variant(BROKEN)
    # A pod whose image can't be pulled has failed; one whose ConfigMap is absent only waits for it.
    broken["spec"].setdefault("runtime", {})["image"] = "localhost/absent:1"
    kube.apply(broken)
    planned = models.variant(PLANNED, gpus=0)
    # By the planner, with an objective that its requests keep; digits is scaled by rules.
    planned["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 2, "targets": {"latency": "10s"}}
    served(planned)
    few = Load(address=kube.must_address(PLANNED, models.GRPC_PORT), model=PLANNED, clients=2, duration_s=4 * LIMIT_S)
    load = Load(address=kube.must_address(DIGITS, models.GRPC_PORT), model=DIGITS, clients=48, duration_s=4 * LIMIT_S)
    try:
        with process.RunningLoad(load), process.RunningLoad(few):

            def ask() -> bool:
                # Rates come and go: one that had data once has it.
                pending[:] = unanswered(watching.address, pending)
                return not pending

            try:
                wait_for(ask, goal="every query has data", limit_s=LIMIT_S)
            finally:
                without_data = [f"{query.location}: {query.expression}" for query in pending]
                assert without_data == []
    finally:
        models.delete(kube, BROKEN, wait=False)
        wait_for(lambda: models.ready_servers(kube, DIGITS) == 1, goal="one server, as before", limit_s=LIMIT_S)
    figures.record("queries_with_data", many - len(pending))
    figures.record("queries_asked_live", many)
