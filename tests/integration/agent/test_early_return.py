"""A model whose `execute` returns before its responses, on real Triton and HAProxy, and the replicas that the planner asks for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import aiohttp
import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, METRICS_PORT
from benchmarks.right.shown.in_process import MODEL, Operator, balancer
from halcyon.api.spec.parse import parse
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from halcyon.triton import pod_sampler
from halcyon.triton.client import Endpoint, TritonClient

pytestmark = pytest.mark.more

AT_ONCE, TAKES_S, RATE, SECONDS = 4, 2, 4, 30
SOURCE = {"configMap": {"name": MODEL, "items": [{"key": "model.py", "path": "1/model.py"}]}}
SPEC = {"model": {"source": SOURCE}, "scaling": {"minReplicas": 1, "maxReplicas": 10}}
_MODEL = """import threading
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.room = threading.Semaphore(4)

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            threading.Thread(target=self.answer, args=(request.get_response_sender(), x), daemon=True).start()

    def answer(self, sender, x):
        with self.room:
            time.sleep(2)
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]), flags=final)
"""
_CONFIG = """backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}


@dataclass(frozen=True)
class EarlyReturn:
    """A model that executes four requests at once, each for 2 s, after `execute` has returned."""

    name: str = MODEL

    @property
    def files(self) -> Mapping[str, str]:
        """Its files, by path."""
        return {"config.pbtxt": _CONFIG, "1/model.py": _MODEL}


async def test_the_planner_counts_responses_and_not_the_time_of_execute() -> None:
    spec, operator, statuses = parse(MODEL, SPEC), Operator(gauge=True), Counter[int]()
    counts: list[int] = []
    with ExitStack() as stack:
        servers = list(stack.enter_context(tritons.running([EarlyReturn()])))
        endpoints = tuple(
            Endpoint("a", server.address, server.address, serving=True, terminating=False) for server in servers
        )
        async with balancer(servers, stack) as (controller, haproxy), aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{haproxy.ports.http}/v2/models/{MODEL}/infer"

            async def send() -> None:
                async with session.post(url, json=BODY) as response:
                    statuses[response.status] += 1

            async def send_all() -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(RATE * SECONDS):
                        group.create_task(send())
                        await asyncio.sleep(1 / RATE)

            sending = asyncio.create_task(send_all())
            sampler = pod_sampler.PodSampler(TritonClient(session, MODEL, HTTP_PORT, METRICS_PORT), time.time)
            for _ in range(SECONDS):
                samples = await sampler.sample(endpoints)
                await controller.run_pass(endpoints)
                report = pod_sampler.report(
                    namespace="n",
                    name=MODEL,
                    agent="b",
                    at=time.time(),
                    balancer=balancer_sample(controller.reading),
                    endpoints=endpoints,
                    samples=samples,
                    maintenance=frozenset(),
                )
                now = time.monotonic()
                operator.receive(report, now)
                counts.append(operator.planner(spec, now, max(counts, default=1))[1])
                await asyncio.sleep(1)
            await sending
    assert statuses[200] >= AT_ONCE / TAKES_S * (SECONDS - 2 * TAKES_S)
    assert operator.planned.evidence.is_in_force
    # Twice as many requests arrive as one pod can answer.
    assert operator.planned.evidence.rps == pytest.approx(AT_ONCE / TAKES_S, rel=0.2)
    assert counts[-1] >= RATE * TAKES_S / AT_ONCE
