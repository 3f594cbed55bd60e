"""Latency of clients on a model's page: what balancers have counted, told by agents, as quantiles of the last ten seconds."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.balancer.config.latency_buckets import SHOWN_MS
from tests.integration.autoscaling.test_direct_scaling import Agent, record
from tests.integration.dashboard_client import Reader
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.ports import free_ports

pytestmark = pytest.mark.more

LIMIT_S = 180


def report_json(space: Space, *, within_100_ms: int, within_1_s: int) -> str:
    """A record with so many answers counted."""
    counts = [0] * (len(SHOWN_MS) + 1)
    counts[SHOWN_MS.index(100)], counts[SHOWN_MS.index(1000)] = within_100_ms, within_1_s
    report = json.loads(record(space))
    report["balancer"]["clients"] = {"bounds_ms": SHOWN_MS, "counts": counts}
    return json.dumps(report)


async def test_quantiles_of_clients_are_on_the_page_of_a_model(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    space, reader = Space(cluster.api, namespace), Reader(port)
    more = ("--dashboard=localhost", f"--dashboard-port={port}")
    operator = Operator(install(cluster), "op-0", cluster.kubeconfig, tmp_path, more=more)
    scaling = {"minReplicas": 1, "maxReplicas": 8, "targets": {"latency": "400ms"}}
    space.apply(files(), deployment(scaling=scaling))
    operator.start()
    try:
        operator.wait_leading()
        operator.wait_ready()
        space.wait_settled()
        async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
            began, answered = time.monotonic(), 0
            history: dict[str, list[float | None]] = {"p50": []}
            while not any(history["p50"]):
                assert time.monotonic() - began < LIMIT_S, history
                answered += 10
                # What was counted before anybody looked is no answer of these ten seconds.
                await stream.send_str(report_json(space, within_100_ms=9 * answered, within_1_s=10_000 + answered))
                await asyncio.sleep(0.5)
                history = reader.ask(f"/api/models/{namespace}/m/history").body
        [(p50, p95, p99)] = {
            point for point in zip(history["p50"], history["p95"], history["p99"], strict=True) if any(point)
        }
        # Nine of ten lie from 50 to 100 ms, evenly, the others from 500 ms to 1 s.
        assert (p50, p95, p99) == (77.8, 750, 950)
        assert reader.ask(f"/api/models/{namespace}/m").body["latency_target_ms"] == 400
        assert not operator.complaints(), operator.complaints()
    finally:
        operator.stop()
