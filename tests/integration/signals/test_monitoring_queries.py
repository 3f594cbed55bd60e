"""Every query of the dashboards and alerts, put to a real Prometheus that scrapes real pages.

The operator's page is a real operator's on the tests' API server, the agent's a real agent's beside a real HAProxy that serves
requests. Triton's is a stand-in's (`triton_page`). What the operator is told of load comes from an imitated agent.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.queries import CLIENT_METRIC, STREAM_METRIC, unanswered, values
from generators.monitoring import queries
from halcyon.api.documents.observation_report import (
    AUDIENCE,
    AgentReport,
    BalancerSample,
    BatchStats,
    PodSample,
)
from halcyon.kube import kinds
from halcyon.monitoring import operator_metrics as listed
from halcyon.monitoring import per_model_metrics
from tests.integration.alert_cases import PLACES
from tests.integration.autoscaling.test_direct_scaling import Agent, servers
from tests.integration.balanced import agent, endpoint, new_balanced
from tests.integration.balanced import until as until_true
from tests.integration.balancer.test_haproxy import Load
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space, deployment
from tests.integration.real_prometheus import prometheus, served
from tests.integration.triton_page import pages
from tests.integration.waiting import until
from tests.ports import free_ports
from tests.unit.balancer.stand_in_api import SLICES, slice_of

pytestmark = pytest.mark.more

BEAT_S = 0.25
BATCH = 8
MODEL: dict[str, Any] = {
    "runtime": {"gpu": {"count": 1}},
    "scaling": {"maxReplicas": 2, "actuator": "Direct", "targets": {"latency": "1s"}},
    "traffic": {"balancerReplicas": 1},
}
"""Two replicas are too few for what is asked, so a limit is told."""
RAISED = {
    "HalcyonModelNotReady",
    "HalcyonModelAtMax",
    "HalcyonErrorRatioHigh",
    "HalcyonAutoscalerConflict",
    "HalcyonGPUIdle",
    "HalcyonReplicaMissing",
}
"""What the scene is enough for."""
FOREIGN = {
    "apiVersion": kinds.HPA.api_version,
    "kind": kinds.HPA.kind,
    "metadata": {"name": "somebodys"},
    "spec": {
        "scaleTargetRef": {
            "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
            "kind": kinds.MODEL_DEPLOYMENT.kind,
            "name": "fought-over",
        },
        "maxReplicas": 3,
    },
}


@pytest.fixture(scope="module")
def operator(operator: Operator) -> Operator:
    operator.wait_ready()
    return operator


def record(space: Space, requests: int) -> str:
    """What an agent would tell of a model with two pods that compute batches of 8 in 128 ms, and of a queue."""
    now = time.time()
    stats = BatchStats(now, ((1, 1, 86_000), (BATCH, requests // BATCH + 1, (requests // BATCH + 1) * 128_000)))
    pods = tuple(
        PodSample(
            pod,
            "ready",
            now,
            pending=30,
            succeeded=requests,
            failed=0,
            rows=requests,
            executions=requests // BATCH,
            gpu=0.02,
            batches=stats,
        )
        for pod in servers(space)
    )
    names = [p["metadata"]["name"] for p in space.every(kinds.POD)]
    balancer = min(str(name) for name in names if name.startswith("m-balancer-"))
    sample = BalancerSample(200, 16, requests, rejected=0, errors=0)
    return AgentReport(space.namespace, "m", balancer, now, sample, pods).to_json()


@contextlib.asynccontextmanager
async def reported_load(operator: Operator, space: Space) -> AsyncIterator[None]:
    """While it lasts, the operator hears of 400 requests per second, far more than two replicas can do."""
    began = time.monotonic()

    async def send_reports() -> None:
        async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
            while True:
                text = await asyncio.to_thread(record, space, int(400 * (time.monotonic() - began)))
                await stream.send_str(text)
                await asyncio.sleep(BEAT_S)

    task = asyncio.ensure_future(send_reports())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def real_agent(tmp_path: Path) -> AsyncIterator[str]:
    """A real agent and HAProxy under load; gives HOST:PORT of its page."""
    [metrics_port] = free_ports(1)
    async with new_balanced() as balanced, agent(balanced, tmp_path, metrics_port=metrics_port) as running:
        pods = await balanced.start(2)
        names = {endpoint(pod).pod: pod.address for pod in pods}
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", names))
        # HAProxy starts when the agent is healthy: its configuration is there then.
        await until_true(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until_true(lambda: running.is_("/readyz", 200), 10)
        async with Load(balanced, loops=2, pause_s=0.02):
            yield f"127.0.0.1:{running.port}"


def job(name: str, *addresses: str, **labels: str) -> dict[str, object]:
    """As the chart's monitors have it: the operator's labels of models stand, the others' are those of their pods."""
    targets = [
        {"targets": [a], "labels": labels | ({"pod": f"{name}-{n}"} if name != "halcyon-metrics" else {})}
        for n, a in enumerate(addresses)
    ]
    return {"job_name": name, "honor_labels": name == "halcyon-metrics", "static_configs": targets}


def serve_several(space: Space) -> None:
    """One that is served, one that another autoscaler scales and whose pod is evicted, one whose source doesn't exist."""
    space.serve(**MODEL)
    absent = {"source": {"configMap": {"name": "absent", "items": [{"key": "k", "path": "k"}]}}}
    space.apply(deployment("fought-over", scaling={"maxReplicas": 2}), FOREIGN, deployment("broken", model=absent))
    space.wait_condition("AutoscalerConflict", "True", "ExternalAutoscaler", name="fought-over")
    space.wait_condition("Ready", "False", name="broken")
    pods = (p["metadata"]["name"] for p in space.every(kinds.POD))
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
    pod = next(name for name in pods if name.startswith("fought-over-a-"))
    space.merge(kinds.POD, pod, {"status": evicted}, subresource="status")


async def test_queries_of_dashboards_and_alerts_have_data_and_series_go_with_models(
    operator: Operator, space: Space, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    labels = {"namespace": space.namespace, "model_deployment": "m"}
    chosen = {
        "cluster": ".*",
        "namespace": space.namespace,
        "model": ".*",
        "job": "halcyon-metrics",
        "__rate_interval": "1m",
    }
    expected = [*queries.panels(chosen), *queries.watched(PLACES)]
    async with real_agent(tmp_path) as balancer:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(served(pages()))
            jobs = [
                job("halcyon-metrics", f"127.0.0.1:{operator.http_port}", namespace="halcyon-system"),
                job("balancers", balancer, **labels),
                job("servers", server, server, **labels),
            ]
            site = await asyncio.to_thread(stack.enter_context, prometheus(jobs))

            async def so(look: Callable[[], list[str]], description: str) -> None:
                await asyncio.to_thread(until, look, lambda left: not left, goal=description, limit_s=60, every_s=0.5)

            def scraped() -> list[str]:
                return [
                    j
                    for j in ("halcyon-metrics", "balancers", "servers")
                    if not values(site.address, f'up{{job="{j}"}} == 1')
                ]

            await so(scraped, "every page was scraped")
            await asyncio.to_thread(serve_several, space)
            async with reported_load(operator, space):
                left = [
                    query
                    for query in expected
                    if STREAM_METRIC not in query.expression and CLIENT_METRIC not in query.expression
                ]
                assert len(expected) - len(left) == 4, "p50, p95 and p99 of one panel, and requests by client"

                def ask() -> list[str]:
                    # Rates come and go: one that had data once has it.
                    left[:] = unanswered(site.address, left)
                    return [f"{query.location}: {query.expression}" for query in left]

                await so(ask, "every query has data")
                await so(lambda: sorted(RAISED - raised(site.address)), "what is wrong here would raise its alerts")
                await so(lambda: missing(operator.fetch("/metrics")), "every family that is there always is there")
                check_page(operator.fetch("/metrics"))
            record_testsuite_property("queries that have data", f"{len(expected)} of {len(expected)}")
            space.delete(kinds.MODEL_DEPLOYMENT, "fought-over")
            mark = 'model_deployment="fought-over"'
            await so(lambda: [mark] if mark in operator.fetch("/metrics") else [], "its series are gone")
            await so(lambda: list(map(str, values(site.address, f"count({{{mark}}})"))), "Prometheus has them no more")


def raised(address: str) -> set[str]:
    """Alerts whose expressions hold now; for how long is promtool's matter."""
    return {alert.location for alert in queries.raised(PLACES) if values(address, alert.expression)}


LISTED = {metric.name.removesuffix("_total"): metric for metric in (*per_model_metrics.METRICS, *listed.METRICS)}
"""As the parser names them."""


def missing(page: str) -> list[str]:
    """Families that are there in every installation, but not on the page."""
    lacks = LISTED.keys() - {family.name for family in text_string_to_metric_families(page)}
    return sorted(name for name in lacks if "Present only " not in LISTED[name].meaning)


def check_page(page: str) -> None:
    """What is on the operator's page is as the lists say, and nothing of ours is on it that they lack."""
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert {name for name in families if name.startswith("halcyon_")} <= LISTED.keys()
    for name in LISTED.keys() & families.keys():
        assert families[name].type == LISTED[name].kind, name
        for sample in families[name].samples:
            assert set(sample.labels) - {"le"} == set(LISTED[name].labels), name
        if name.startswith("halcyon_"):
            assert families[name].documentation == LISTED[name].meaning
