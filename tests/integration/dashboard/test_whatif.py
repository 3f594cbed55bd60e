"""What if: other targets at the arrivals that a planner remembers, asked of a real operator that has read its memory from the cluster."""

import asyncio
import json
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.kube import kinds
from halcyon.kube.client import connect
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.seasonality import BIN_S, History
from halcyon.scaling.planner.outputs import PlannerMemory
from tests.integration.autoscaling.test_direct_scaling import Agent, record
from tests.integration.dashboard_client import Reader
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, deployment, files
from tests.ports import free_ports

pytestmark = pytest.mark.more

SCALING = {"minReplicas": 1, "maxReplicas": 8, "targets": {"latency": "400ms"}}
RATES = [*[20.0] * 6, *[300.0] * 6]
"""Half an hour of little and half an hour of much, in requests per second."""


def remembered() -> PlannerMemory:
    """Of a model whose replica does 80 requests per second at most: batches of 8 in 100 ms."""
    end = time.time() // BIN_S * BIN_S
    capacity = Capacity().with_batches({1: (1000, 30.0), 8: (1000, 100.0)})
    return PlannerMemory(history=History.of(RATES, end=end), capacity=capacity)


async def test_a_past_is_reckoned_again_with_other_targets(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    [port] = free_ports(1)
    space, reader = Space(cluster.api, namespace), Reader(port)
    more = ("--dashboard=localhost", f"--dashboard-port={port}")
    operator = Operator(install(cluster), "op-0", cluster.kubeconfig, tmp_path, more=more)
    space.apply(files(), deployment(scaling=SCALING, batching={"maxBatchSize": 8}))
    client = await connect(str(cluster.kubeconfig))
    try:
        memories = PlannerMemoryStore(client, operator.namespace, SYSTEM_CLOCK)
        assert await memories.load() == {}
        memories.offer(Key(namespace, "m"), space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"], remembered())
        await memories.flush(within_s=20)
    finally:
        await client.close()

    def what_if(**wish: str) -> tuple[int, dict[str, object]]:
        answer = reader.ask(f"/api/models/{namespace}/m/whatif?{urlencode(wish)}")
        return answer.status, answer.body

    operator.start()
    try:
        operator.wait_leading()
        operator.wait_ready()
        space.wait_settled()
        assert "No past arrivals are known" in str(what_if()[1]["why"])
        async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
            end = time.monotonic() + 120
            while "why" in (outcome := what_if(max="2", latency="200ms")[1]):
                assert time.monotonic() < end, outcome
                await stream.send_str(record(space))
                await asyncio.sleep(0.5)
        assert outcome["rate"] == pytest.approx(RATES, rel=1e-3)
        current, alternative = outcome["current"], outcome["alternative"]
        assert isinstance(current, list)
        assert current[0] < current[-1] < 8
        assert alternative == [1] * 6 + [2] * 6
        totals = json.loads(json.dumps(outcome["totals"]))
        assert (totals["current"]["latency_ms"], totals["alternative"]["latency_ms"]) == (400.0, 200.0)
        assert totals["current"]["short_hours"] == 0
        assert totals["alternative"]["short_hours"] == 0.5
        assert totals["current"]["replica_hours"] == pytest.approx(sum(current) / 12, abs=0.01)

        status, refused = what_if(latency="soon")
        assert (status, refused) == (400, {"error": "latency is 'soon'; it must be a duration, for example 200ms"})
        assert reader.ask(f"/api/models/{namespace}/none/whatif").status == 404
    finally:
        operator.stop()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{operator.namespace}")
