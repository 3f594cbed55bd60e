"""Advice through a real API server: from an agent's reports into the status, over a restart, and out of it when it was followed.

The operator takes samples each second and holds advice for seconds, so that minutes aren't waited for. All else is as in
test_planner: the agent is imitated, the pods are KWOK's.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from typing_extensions import override

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, BatchStats, PodSample
from halcyon.kube import kinds
from halcyon_cli.explain.build import report
from tests.integration.autoscaling.test_planner import Load, reached
from tests.integration.operator_process import Operator, environment, install
from tests.integration.operator_space import Space
from tests.integration.waiting import always

pytestmark = pytest.mark.more

QUICK = """
import sys
from halcyon.control.advice import selection
from halcyon.control.reporting import model_advice
from halcyon.main import main
model_advice.SAMPLE_INTERVAL_S, model_advice.SAMPLES = 1.0, 6
selection.HOLD_S = selection.WRITE_INTERVAL_S = 8.0
sys.exit(main(sys.argv[1:]))
"""
"""`halcyon`, with samples and advice of seconds."""


class QuickOperator(Operator):
    """An operator with samples and advice of seconds."""

    @override
    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        command = [sys.executable, "-c", QUICK, "operator", *self.arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    started = QuickOperator(install(cluster), "op-0", cluster.kubeconfig, tmp_path_factory.mktemp("operator"))
    started.start()
    try:
        started.wait_leading()
        started.wait_ready()
        yield started
        assert not started.complaints(), started.complaints()
    finally:
        started.stop()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{started.namespace}")


class DelayedLoad(Load):
    """Requests that wait 42 ms in Triton's queue, in batches of one row (22 ms) and of eight (36 ms)."""

    @override
    def _record(self, pods: list[str], sender: str) -> str:
        now = time.time()
        last, self._counted = self._counted, now
        self._requests += self.rate * (now - last)
        done = int(self._requests)
        small, large = done // 2, done // 16
        sizes = ((1, small, small * 22_000), (8, large, large * 36_000)) if large else ()
        samples = tuple(
            PodSample(
                pod,
                "ready",
                now,
                pending=0,
                succeeded=done,
                failed=0,
                rows=done,
                executions=small + large,
                queue_us=42_000 * done,
                batches=BatchStats(now, sizes) if sizes else None,
            )
            for pod in pods[:1]
        )
        balancer = BalancerSample(0, 1, done, rejected=0, errors=0)
        return AgentReport(self._space.namespace, "m", sender, now, balancer, samples).to_json()


def advice(space: Space) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = space.status().get("advice") or []
    return entries


async def test_advice_is_in_the_status_over_a_restart_until_it_is_followed(operator: Operator, space: Space) -> None:
    batching = {"maxBatchSize": 32, "maxQueueDelay": "50ms"}
    scaling = {"maxReplicas": 1, "actuator": "Direct"}
    space.serve(scaling=scaling, batching=batching, traffic={"balancerReplicas": 1})
    async with DelayedLoad(operator, space) as load:
        load.rate = 40
        (entry,) = await reached(lambda: advice(space), bool, goal="the delay is advised away", limit_s=40)
        assert (entry["rule"], entry["field"]) == ("DelayOnlyCosts", "spec.batching.maxQueueDelay")
        assert (entry["currentValue"], entry["value"]) == ("50ms", "0us")
        assert entry["evidence"].startswith("a request waits 42 ms in Triton's queue, batches have 1.8 rows")
        assert 40 <= entry["gainPercent"] <= 60
        stored = space.must(kinds.MODEL_DEPLOYMENT, "m")
        await asyncio.to_thread(
            always,
            lambda: advice(space),
            lambda entries: entries == [entry],
            goal="it stays as it was written",
            for_s=5,
        )
    # Without its agent, the model has no signals: the next process keeps the advice.
    await asyncio.to_thread(operator.stop)
    operator.start()
    await asyncio.to_thread(operator.wait_leading)
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"team/note": "written"}}})
    await asyncio.to_thread(
        always, lambda: advice(space), lambda entries: entries == [entry], goal="the advice stays", for_s=5
    )
    (shown,) = report(stored, datetime.now(UTC)).advice
    space.merge(kinds.MODEL_DEPLOYMENT, "m", dict(shown.patch))
    assert space.must(kinds.MODEL_DEPLOYMENT, "m")["spec"]["batching"]["maxQueueDelay"] == "0us"
    await reached(lambda: advice(space), lambda entries: not entries, goal="followed advice is gone")


async def test_the_api_server_holds_the_bounds_of_advice(space: Space) -> None:
    space.serve()
    entry = {
        "field": "spec.batching.maxBatchSize",
        "value": "16",
        "evidence": "full",
        "gain": "45 %",
        "gainPercent": 31,
        "since": "2026-11-29T01:00:00Z",
    }

    def written(entries: list[dict[str, Any]]) -> int:
        path = kinds.MODEL_DEPLOYMENT.path(space.namespace, "m", "status") + "?fieldManager=test&dryRun=All"
        body = {"status": {"advice": entries}}
        return space.api.call("PATCH", path, body, content_type="application/merge-patch+json").status

    assert written([entry | {"rule": f"Rule{number}"} for number in range(5)]) == 200
    assert written([entry | {"rule": f"Rule{number}"} for number in range(6)]) == 422
    assert written([entry | {"rule": "Twice"}, entry | {"rule": "Twice"}]) == 422
    assert written([entry | {"rule": "Rule", "gainPercent": 101}]) == 422
    assert written([entry]) == 422
