"""Every query of the dashboards and alerts on a live stack: a real Prometheus scrapes the operator, the balancers and real Triton pods.

It finds them as the chart's monitors say: what the Prometheus Operator makes of a ServiceMonitor or a PodMonitor is made here, the
same selectors, ports and labels. Only what Triton tells of a GPU's memory isn't there: the stand-in for a GPU has none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.demo import models, setup
from e2e.demo.coldstart import ColdStart
from e2e.demo.kube import SYSTEM, Kube, wait_for
from e2e.demo.models import DIGITS
from e2e.load import process
from e2e.load.settings import Load
from e2e.queries import unanswered, values
from halcyon.monitoring import queries, triton
from tests import figures
from tests.integration.alert_cases import PLACES
from tests.integration.real_prometheus import Prometheus, prometheus

pytestmark = pytest.mark.more

Object = dict[str, Any]
METRICS = "halcyon-metrics"
BROKEN = "without-files"
LIMIT_S = 90
_LABEL = "__meta_kubernetes_{kind}_label_{name}"
NOT_ON_CPU = (triton.GPU_MEMORY_USED.name, triton.GPU_MEMORY.name)


def rendered(kube: Kube) -> list[Object]:
    """The chart as it is for a cluster that has the API of the monitors."""
    wanted = [f"--set=monitoring.{one}.create=true" for one in ("serviceMonitor", "podMonitors")]
    where = (f"--namespace={SYSTEM}", "--set=images.registry=localhost")
    told = kube.helm("template", "halcyon", str(setup.CHART), *where, *wanted)
    return [one for one in yaml.safe_load_all(told) if one]


def jobs(monitor: Object, kubeconfig: Path) -> Iterator[Object]:
    """A scrape configuration of each endpoint, as the Prometheus Operator makes it."""
    spec, meta = monitor["spec"], monitor["metadata"]
    of_services = monitor["kind"] == "ServiceMonitor"
    role, kind = ("endpointslice", "service") if of_services else ("pod", "pod")
    port = "__meta_kubernetes_endpointslice_port_name" if of_services else "__meta_kubernetes_pod_container_port_name"
    job = "__meta_kubernetes_service_name" if of_services else None
    for endpoint in spec["endpoints" if of_services else "podMetricsEndpoints"]:
        relabel: list[Object] = [
            {"source_labels": [_LABEL.format(kind=kind, name=plain(key))], "regex": value, "action": "keep"}
            for key, value in spec["selector"]["matchLabels"].items()
        ]
        relabel.append({"source_labels": [port], "regex": endpoint["port"], "action": "keep"})
        for label, source in (("namespace", "__meta_kubernetes_namespace"), ("pod", "__meta_kubernetes_pod_name")):
            relabel.append({"source_labels": [source], "target_label": label})
        if job is not None:
            relabel.append({"source_labels": [job], "target_label": "job"})
        relabel += [
            {"source_labels": one["sourceLabels"], "target_label": one["targetLabel"]}
            for one in endpoint.get("relabelings", ())
        ]
        discovery: Object = {"role": role, "kubeconfig_file": str(kubeconfig)}
        if of_services:
            discovery["namespaces"] = {"names": [meta["namespace"]]}
        yield {
            "job_name": f"{meta['namespace']}/{meta['name']}/{endpoint['port']}",
            "metrics_path": endpoint.get("path", "/metrics"),
            "honor_labels": endpoint.get("honorLabels", False),
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": relabel,
        }


def plain(label: str) -> str:
    """As Prometheus writes it."""
    return "".join(letter if letter.isalnum() else "_" for letter in label)


@pytest.fixture(scope="module")
def watching(kube: Kube, digits: ColdStart) -> Iterator[Prometheus]:  # noqa: ARG001  # what it brings up is all that is wanted
    """A Prometheus that scrapes as long as the tests last."""
    chart = rendered(kube)
    [service] = [one for one in chart if one["kind"] == "Service" and one["metadata"]["name"] == METRICS]
    made = [
        job for one in chart if one["kind"] in {"ServiceMonitor", "PodMonitor"} for job in jobs(one, kube.kubeconfig)
    ]
    kube("apply", "-f", "-", stdin=models.as_text(service), namespace=SYSTEM)
    try:
        with prometheus(made) as running:
            yield running
    finally:
        kube("delete", "service", METRICS, namespace=SYSTEM)


def test_what_the_monitors_choose_is_scraped(kube: Kube, watching: Prometheus) -> None:
    def up() -> dict[str, float]:
        found = {
            "operator": f'sum(up{{job="{METRICS}"}})',
            "HAProxy": f'sum(up{{job="{SYSTEM}/halcyon-balancers/metrics",model_deployment="{DIGITS}"}})',
            "agents": f'sum(up{{job="{SYSTEM}/halcyon-balancers/agent",model_deployment="{DIGITS}"}})',
            "Triton": f'sum(up{{job="{SYSTEM}/halcyon-servers/metrics",model_deployment="{DIGITS}"}})',
        }
        return {name: sum(values(watching.address, query)) for name, query in found.items()}

    balancers = len(kube.pods(DIGITS, "balancer"))
    there = {
        "operator": len(kube.operators()),
        "HAProxy": balancers,
        "agents": balancers,
        "Triton": len(kube.pods(DIGITS, "server")),
    }
    wait_for(lambda: up() == there, what=f"{there} are scraped", limit_s=LIMIT_S)


def test_every_query_of_dashboards_and_alerts_has_data(kube: Kube, watching: Prometheus) -> None:
    chosen = {"namespace": "default", "model": ".*", "job": METRICS, "__rate_interval": "1m"}
    asked = [*queries.panels(chosen), *queries.watched(PLACES)]
    left = [one for one in asked if not any(name in one.expression for name in NOT_ON_CPU)]
    many = len(left)
    assert len(asked) - many <= 2 * len(NOT_ON_CPU)
    broken = models.variant(BROKEN)
    broken["spec"]["model"] = {"source": {"configMap": {"name": "absent", "items": [{"key": "k", "path": "k"}]}}}
    kube.apply(broken)
    load = Load(address=kube.must_address(DIGITS, models.GRPC_PORT), model=DIGITS, clients=48, duration_s=4 * LIMIT_S)
    try:
        with process.RunningLoad(load):

            def ask() -> bool:
                # Rates come and go: one that had data once has it.
                left[:] = unanswered(watching.address, left)
                return not left

            try:
                wait_for(ask, what="every query has data", limit_s=LIMIT_S)
            finally:
                said = [f"{one.where}: {one.expression}" for one in left]
                assert said == []
    finally:
        models.delete(kube, BROKEN, wait=False)
        wait_for(lambda: models.ready_servers(kube, DIGITS) == 1, what="one server, as before", limit_s=LIMIT_S)
    figures.record("queries_with_data", many - len(left))
    figures.record("queries_asked_live", many)
