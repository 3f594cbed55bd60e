"""Models and places for measurements of clients: real Triton servers, and a real HAProxy with the agent's configuration before them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Triton
from halcyon.api.documents.balancer_plan import BalancerPlan
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.triton.client import Endpoint
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.real_haproxy import Haproxy

_WIDE: Final = """backend: "python"
max_batch_size: 1
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "outputs" value { string_value: "OUTPUTS" } }
"""
_WIDE_MODEL: Final = """import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.outputs = int(json.loads(args["model_config"])["parameters"]["outputs"]["string_value"])

    def execute(self, requests):
        answer = np.ones((1, self.outputs), np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", answer)]) for _ in requests]
"""
_EVENTS: Final = """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "word" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
_EVENTS_MODEL: Final = """import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count, pause_s = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            arguments = (request.get_response_sender(), int(count), float(pause_s))
            threading.Thread(target=self.send, args=arguments, daemon=True).start()

    def send(self, sender, count, pause_s):
        for number in range(count):
            time.sleep(pause_s)
            word = f"{number} {time.monotonic_ns()}".encode()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("word", np.array([word], object))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@dataclass(frozen=True)
class Wide:
    """A model `wide` that takes rows of FP32 of any length, and responds at once with a row of `outputs` numbers."""

    outputs: int = 1
    name: str = "wide"

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        return {"config.pbtxt": _WIDE.replace("OUTPUTS", str(self.outputs)), "1/model.py": _WIDE_MODEL}


@dataclass(frozen=True)
class Events:
    """A decoupled model `events`: input `x` is [number of responses, pause in seconds before each].

    Each response is the text `NUMBER NS`: its number from 0, and the machine's monotonic clock when it was sent, in nanoseconds.
    """

    name: str = "events"

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        return {"config.pbtxt": _EVENTS, "1/model.py": _EVENTS_MODEL}


def endpoint(triton: Triton, slot: str = "a", *, terminating: bool = False) -> Endpoint:
    """Return the endpoint of the server's pod for the agent."""
    pod = "pod-" + triton.address.replace(".", "-")
    return Endpoint(slot, pod, triton.address, serving=True, terminating=terminating)


@dataclass
class Balancer:
    """A running HAProxy, and the part of the agent that configures it."""

    haproxy: Haproxy
    controller: HaproxyController

    @property
    def http(self) -> str:
        """Return host:port of the HTTP endpoint."""
        return f"127.0.0.1:{self.haproxy.ports.http}"

    @property
    def grpc(self) -> str:
        """Return host:port of the gRPC endpoint."""
        return f"127.0.0.1:{self.haproxy.ports.grpc}"


@contextlib.asynccontextmanager
async def balancer(servers: Sequence[Triton], plan: BalancerPlan | None = None) -> AsyncIterator[Balancer]:
    """Start HAProxy with the configuration for these servers of one model, and end it when the context is left."""
    with real_haproxy.haproxy() as haproxy:
        ports = replace(haproxy.ports, server_http=tritons.HTTP_PORT, server_grpc=tritons.GRPC_PORT)
        haproxy.listen = replace(haproxy.listen, ports=ports)
        controller = HaproxyController(haproxy.runtime_of(ports), haproxy.config, haproxy.listen)
        controller.accept(plan or ways.plan(servers[0].model))
        endpoints = tuple(endpoint(triton) for triton in servers)
        await controller.run_pass(endpoints)
        await asyncio.to_thread(haproxy.start)
        await controller.run_pass(endpoints)
        await controller.run_pass(endpoints)
        yield Balancer(haproxy, controller)
