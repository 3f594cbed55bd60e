"""An operator, a balancer with its agent, a Prometheus and the command line as processes, for a model on real Triton.

The API server is the integration tests' (etcd, API server, controllers, scheduler; KWOK plays the kubelet). The agent's
reports go to a collector of this process, which passes them on to the operator with the names of the pods that KWOK runs;
EndpointSlices can't have addresses on loopback, so the agent can't find Triton in this API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.dataplane import ways
from benchmarks.dataplane.tritons import Triton
from benchmarks.right.shown.load import BATCH, MODEL, QUEUE_LIMIT
from e2e.cluster import cluster as clusters
from e2e.cluster.options import Options
from e2e.cluster.processes import wait_until
from halcyon.api.documents.observation_report import AUDIENCE, AgentReport
from tests.integration.autoscaling.test_direct_scaling import Agent, servers
from tests.integration.operator.test_leader_election import pods_of_account, token
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, deployment, files
from tests.integration.real_prometheus import Prometheus, prometheus
from tests.ports import free_ports

STAND_INS = (
    "in the parts `shown`, KWOK plays the kubelet, and reports are passed on with the names of KWOK's pods, because the API server "
    "allows no endpoints on loopback; these parts have balancers only; sleeping stands in for a GPU"
)
_FORWARD_INTERVAL_S = 0.05


def spec(pods: int) -> dict[str, Any]:
    """Return the fields of the spec. Mode Recommend decides and writes nothing, so the replicas stay."""
    return {
        "replicas": pods,
        "runtime": {"gpu": {"count": 1}},
        "batching": {"maxBatchSize": BATCH},
        "traffic": {"balancerReplicas": 1},
        "scaling": {"mode": "Recommend", "minReplicas": 1, "maxReplicas": 8, "targets": {"queueDepth": BATCH}},
    }


@dataclass(frozen=True)
class Scene:
    """The processes, and how to read what they show."""

    operator: Operator
    space: Space
    kubeconfig: Path
    dashboard_port: int
    balancer: ways.Balancer
    site: Prometheus

    @property
    def haproxy(self) -> str:
        """Return the path of HAProxy's socket."""
        return str(self.balancer.balanced.haproxy.directory / "haproxy.sock")

    def page(self, path: str) -> dict[str, Any]:
        """Return a document of the dashboard about the model."""
        url = f"http://127.0.0.1:{self.dashboard_port}/api/models/{self.space.namespace}/{MODEL}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    async def program(self, *arguments: str) -> str:
        """Run a command of the command line, and return what it prints."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "halcyon.main", *arguments),
            *("--kubeconfig", str(self.kubeconfig), "-n", self.space.namespace),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, (arguments, err.decode()[-500:])
        return out.decode()


@contextlib.contextmanager
def _site(pods: int, folder: Path) -> Iterator[tuple[Operator, Space, Path, int]]:
    """Start a control plane and an operator, and serve the model in a new namespace."""
    # The tests' cluster fixture removes clusters with names like these whose process has ended.
    name, [port] = f"test-{os.getpid()}", free_ports(1)
    try:
        cluster = clusters.up(name, Options(control_plane_only=True))
        options = ("--dashboard=localhost", f"--dashboard-port={port}")
        with running(cluster, folder, more=options) as operator:
            operator.wait_ready()
            space = Space(cluster.api, f"t-{uuid.uuid4().hex[:8]}")
            space.make()
            for required in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
                path = f"/api/v1/namespaces/{space.namespace}/{required}"
                wait_until(lambda path=path: cluster.api.exists(path), goal=f"{path} exists", limit_s=30, every_s=0.05)  # type: ignore[misc]  # a default is how a lambda in a loop keeps its own
            space.apply(files(f"max_batch_size: {BATCH}"), deployment(MODEL, **spec(pods)))
            space.wait_settled(MODEL)
            yield operator, space, cluster.kubeconfig, port
    finally:
        clusters.down(name)


@contextlib.asynccontextmanager
async def scene(tritons: Sequence[Triton]) -> AsyncIterator[Scene]:
    """Run all processes for a model that has one pod per Triton."""
    plan = replace(
        ways.plan(MODEL, max_connections=3 * BATCH),
        queue_limit=QUEUE_LIMIT,
        queue_timeout_ms=60000,
        response_timeout_ms=60000,
    )
    addresses = [triton.address for triton in tritons]
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-shown-")))
        site = _site(len(tritons), folder)
        operator, space, kubeconfig, port = await asyncio.to_thread(site.__enter__)
        stack.push(site.__exit__)
        [balancer] = await stack.enter_async_context(ways.balancers(1, plan, addresses))
        names = dict(zip(map(ways.pod_name, addresses), sorted(servers(space)), strict=True))
        forwarding = asyncio.create_task(_forward(balancer, operator, space, names))
        stack.push_async_callback(_ended, forwarding)
        jobs = _jobs(operator, balancer, tritons, sorted(names.values()), space.namespace)
        prometheus_context = prometheus(jobs)
        prometheus_server = await asyncio.to_thread(prometheus_context.__enter__)
        stack.push(prometheus_context.__exit__)
        yield Scene(operator, space, kubeconfig, port, balancer, prometheus_server)
        if forwarding.done():
            forwarding.result()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _forward(balancer: ways.Balancer, operator: Operator, space: Space, names: dict[str, str]) -> None:
    """Pass the agent's reports on to the operator, with the names of this namespace's pods."""
    [collector] = balancer.agent.collectors
    agent = min(pods_of_account(space, f"{MODEL}-balancer"))
    passed = 0
    async with Agent(operator, space, token(space, f"{MODEL}-balancer", AUDIENCE)) as stream:
        while True:
            for _, report in collector.records[passed:]:
                await stream.send_str(_renamed(report, agent, space.namespace, names).to_json())
            passed = len(collector.records)
            await asyncio.sleep(_FORWARD_INTERVAL_S)


def _renamed(report: AgentReport, agent: str, namespace: str, names: dict[str, str]) -> AgentReport:
    pods = tuple(replace(pod, name=names[pod.name]) for pod in report.pods if pod.name in names)
    return replace(report, namespace=namespace, name=MODEL, agent=agent, pods=pods)


def _jobs(
    operator: Operator, balancer: ways.Balancer, tritons: Sequence[Triton], pods: Sequence[str], namespace: str
) -> list[object]:
    """Return what Prometheus scrapes, with the labels that the chart's monitors give."""
    labels = {"namespace": namespace, "model_deployment": MODEL}
    agent = f"{balancer.agent.host}:{balancer.agent.port}"
    targets = {
        "halcyon-metrics": [
            {"targets": [f"127.0.0.1:{operator.http_port}"], "labels": {"namespace": operator.namespace}}
        ],
        "balancers": [{"targets": [agent], "labels": {**labels, "pod": f"{MODEL}-balancer-0"}}],
        "servers": [
            {"targets": [f"{triton.address}:{triton.metrics_port}"], "labels": {**labels, "pod": pod}}
            for triton, pod in zip(tritons, pods, strict=True)
        ],
    }
    return [
        {"job_name": name, "honor_labels": name == "halcyon-metrics", "static_configs": static_configs}
        for name, static_configs in targets.items()
    ]
