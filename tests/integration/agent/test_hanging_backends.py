"""Backends that stop answering, on real Triton servers, with the agents' examinations and the operator's restarts.

benchmarks/right/backend_pods.py says what stands in for the kubelet, the API server and the balancers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.dataplane.tritons import HTTP_PORT
from benchmarks.right.backend_pods import MODEL, Fleet, ServerPod, running
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

_CONFIG = """backend: "python"
max_batch_size: 0
%s
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
_PLAIN = """import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0] == -5:
                time.sleep(86400)
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return made
"""
_ENGINE = """import threading

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    # The worker ends at the first request of -5; execute goes on taking requests, which nobody answers.
    ended = False

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            self.ended = self.ended or x[0] == -5
            sender = request.get_response_sender()
            if self.ended:
                self.kept = getattr(self, "kept", []) + [sender]
            else:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]), flags=FINAL)
"""
DECOUPLED = "model_transaction_policy { decoupled: true }"
MODELS = {
    "sleeps for ever": {"config.pbtxt": _CONFIG % "", "1/model.py": _PLAIN},
    "decoupled, its worker ends": {"config.pbtxt": _CONFIG % DECOUPLED, "1/model.py": _ENGINE},
}


async def send(
    session: aiohttp.ClientSession,
    fleet: Fleet,
    pod: ServerPod,
    value: float,
    *,
    decoupled: bool,
    timeout_s: float = 300.0,
) -> int:
    """Send a request, and return its status; 0 if it has no answer."""
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [value]}]}
    verb, sent = ("generate", {"x": value}) if decoupled else ("infer", body)
    url = f"http://{pod.address}:{HTTP_PORT}/v2/models/{MODEL}/{verb}"
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    with fleet.counted(pod) as statuses:
        try:
            async with session.post(url, data=json.dumps(sent), timeout=timeout) as response:
                statuses.append(response.status)
        except (aiohttp.ClientError, TimeoutError):
            statuses.append(0)
    return statuses[0]


async def impatient(session: aiohttp.ClientSession, fleet: Fleet, pod: ServerPod, *, decoupled: bool) -> None:
    """Send requests for ever that give up after 4 s."""
    while True:
        await send(session, fleet, pod, 1.0, decoupled=decoupled, timeout_s=4.0)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", MODELS)
async def test_a_backend_that_answers_nothing_is_found_and_restarted(kind: str, tmp_path: Path) -> None:
    decoupled = "decoupled" in kind
    async with running(tmp_path, 1, MODELS[kind]) as (fleet, session):
        [pod] = fleet.pods.values()
        for _ in range(8):
            assert await send(session, fleet, pod, 1.0, decoupled=decoupled) == 200
            await asyncio.sleep(0.5)
        began = time.monotonic()
        hung: list[asyncio.Task[Any]] = [
            asyncio.create_task(send(session, fleet, pod, -5.0, decoupled=decoupled)),
            *(asyncio.create_task(impatient(session, fleet, pod, decoupled=decoupled)) for _ in range(2)),
        ]
        try:
            async with asyncio.timeout(90):
                while not pod.restarts or pod not in fleet.candidates():  # noqa: ASYNC110 - the kubelet's part sets both
                    await asyncio.sleep(0.1)
            assert fleet.ever_out == {pod.name}
            # A hang takes 30 s to prove.
            assert 29 <= pod.times["restarted"] - began <= 70
            assert await send(session, fleet, pod, 1.0, decoupled=decoupled) == 200
            assert "answered" in fleet.events.recorded[0].message, fleet.events.recorded[0].message
        finally:
            for task in hung:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*hung, return_exceptions=True)


async def test_a_decoupled_model_whose_process_ended_restarts_without_a_request(tmp_path: Path) -> None:
    async with running(tmp_path, 1, MODELS["decoupled, its worker ends"]) as (fleet, session):
        [pod] = fleet.pods.values()
        assert await send(session, fleet, pod, 1.0, decoupled=True) == 200
        await asyncio.sleep(3)
        pod.kill_stub()
        failed = await send(session, fleet, pod, 1.0, decoupled=True)
        assert failed != 200
        async with asyncio.timeout(60 * PATIENCE):
            while not pod.restarts or pod not in fleet.candidates():  # noqa: ASYNC110 - the kubelet's part sets both
                await asyncio.sleep(0.1)
        assert await send(session, fleet, pod, 1.0, decoupled=True) == 200
        assert "signal 9" in fleet.events.recorded[0].message
