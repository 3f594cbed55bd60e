"""Traces of a real operator at a real OpenTelemetry Collector (built from its Go modules), which writes what it gets into its log."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from e2e.cluster import binaries
from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube.rbac_denials import needed_right
from tests.integration.autoscaling.test_direct_scaling import SCALING, Agent, until_then
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports

pytestmark = pytest.mark.more

_FIELD = re.compile(r"^ +(Trace ID|Parent ID|ID|Name|Status code) +: ?(.*)$")
_ATTRIBUTE = re.compile(r"^ +-> ([\w.]+): \w+\((.*)\)$")


@dataclass
class Span:
    """As the collector tells it."""

    fields: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.fields["Name"]


def spans(log: str) -> list[Span]:
    """What the debug exporter has written, in order."""
    parsed: list[Span] = []
    for line in log.splitlines():
        if line.startswith("Span #"):
            parsed.append(Span())
        elif parsed and (match := _FIELD.match(line)):
            parsed[-1].fields[match[1]] = match[2]
        elif parsed and (match := _ATTRIBUTE.match(line)):
            parsed[-1].attributes[match[1]] = match[2]
    return parsed


@contextmanager
def collector(directory: Path, port: int) -> Iterator[Path]:
    """A collector while the block runs; gives its log."""
    config = directory / "collector.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
                "exporters": {"debug": {"verbosity": "detailed"}},
                "service": {
                    "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
                    "telemetry": {"metrics": {"level": "none"}},
                },
            }
        )
    )
    log = directory / "collector.log"
    with log.open("wb") as output:
        command = [str(binaries.extra_program("otelcol")), f"--config=file:{config}"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        until(
            lambda: "Everything is ready" in log.read_text(), bool, goal="the collector is ready", context=log.read_text
        )
        yield log
    finally:
        process.terminate()
        process.wait(10 * PATIENCE)


@contextmanager
def leading(cluster: Cluster, directory: Path, *more: str) -> Iterator[Operator]:
    operator = Operator(install(cluster), "op-0", cluster.kubeconfig, directory, more=more)
    operator.start()
    try:
        operator.wait_leading()
        operator.wait_ready()
        yield operator
    finally:
        operator.stop()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{operator.namespace}")


async def test_a_models_reconcile_is_recorded_in_spans(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    [port] = free_ports(1)
    space = Space(cluster.api, namespace)
    with collector(tmp_path, port) as log:
        with leading(cluster, tmp_path, f"--traces-endpoint=http://127.0.0.1:{port}/v1/traces") as operator:
            space.serve(scaling=SCALING)
            async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
                await until_then(space, 5, stream, queued=48)
        # An operator that ends sends what is left.
        until(lambda: "scale" in {span.name for span in spans(log.read_text())}, bool, goal="the spans are there")
        text = log.read_text()
    exported = spans(text)
    # The operator looks at every namespace, and models of tests that have ended may be about to go.
    here = [span for span in exported if span.attributes.get("k8s.namespace.name") == namespace]
    mine = [span for span in here if span.attributes.get("halcyon.model") == "m"]

    assert "service.name: Str(halcyon)" in text
    assert "service.instance.id: Str(op-0)" in text
    assert {"reconcile", "decide", "scale"} <= {span.name for span in mine}
    by_id = {span.fields["ID"]: span for span in exported}
    parents = {(span.name, getattr(by_id.get(span.fields["Parent ID"]), "name", "")) for span in exported}
    assert {("reconcile", ""), ("observe", "reconcile"), ("apply", "reconcile"), ("status", "reconcile"), ("decide", ""), ("scale", "")} <= parents  # fmt: skip
    assert {("PATCH deployments", "apply"), ("PATCH modeldeployments/status", "status"), ("PATCH modeldeployments/scale", "scale")} <= parents  # fmt: skip
    (decided,) = (s for s in mine if s.name == "decide" and s.attributes["halcyon.desired"] == "5")
    assert "48" in decided.attributes["halcyon.why"]
    (scaled,) = (s for s in mine if s.name == "scale" and s.attributes["halcyon.replicas"] == "5")
    assert scaled.attributes["halcyon.before"] == decided.attributes["halcyon.before"] == "1"
    written = next(s for s in exported if s.name == "PATCH deployments")
    assert written.attributes["http.request.method"] == "PATCH"
    assert written.attributes["http.response.status_code"] in {"200", "201"}
    # Its own Lease, lists and watches are part of no trace. Models of earlier tests may name an operator that has ended: a reconcile of
    # such a model reads the Lease of that operator, which is part of the trace.
    reads = {s.attributes["url.path"] for s in exported if s.attributes.get("http.request.method") == "GET"}
    assert not [path for path in reads if f"/namespaces/{operator.namespace}/leases/" in path]
    assert {needed_right("GET", path, watching=False)[1].verb for path in reads} <= {"get"}


def test_a_collector_that_is_away_costs_nothing_but_the_traces(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    space = Space(cluster.api, namespace)
    with leading(cluster, tmp_path, f"--traces-endpoint=http://127.0.0.1:{port}/v1/traces"):
        space.serve()
        space.wait_condition("Accepted", "True")
        until(lambda: space.status().get("observedGeneration"), bool, goal="the status is written")
