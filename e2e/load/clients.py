"""Single requests over gRPC or HTTP with tritonclient, and the classification of errors."""

import asyncio
import itertools
import json
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import numpy as np
import tritonclient.http.aio as http_aio
from tritonclient import http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from e2e.load.plain_connections import PlainConnections, plain_request
from e2e.load.settings import Load

_INPUTS = 64
_LONGEST_KIND = 240
_REPEATED_AFTER_S = 1.0
_INT32 = struct.Struct("<i")


@dataclass(frozen=True)
class Answer:
    """Values from one response; None if the model has no such output."""

    batch: int | None
    who: str | None


class Caller(Protocol):
    """Function that sends one request. The number `n` selects one of the prepared inputs and connections."""

    async def __call__(self, n: int) -> Answer:
        """Send request number `n`, and return the values from the response, or raise an exception."""


class Connections:
    """The connections of a load, which are open while this context is."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def caller(self) -> Caller:
        """Return the function that sends a request."""
        load = self._load
        outputs = [name for name in (load.batch_output, load.who_output) if name is not None]
        values = np.random.default_rng(load.seed).uniform(0, 16, (_INPUTS, *load.shape)).astype(np.float32)
        if load.protocol == "grpc":
            return self._grpc(values, outputs)
        if load.connections != "library":
            return self._plain_http(values)
        return self._http(values, outputs)

    def _grpc(self, values: Any, outputs: list[str]) -> Caller:
        """Return a caller that uses Triton's gRPC stub with prepared messages.

        Creating messages for each request would take CPU time from the server on the same machine.
        """
        load = self._load
        stubs = []
        for _ in range(load.channels):
            # Without its own subchannel pool, a channel shares its connection with other channels to the same address.
            options: list[tuple[str, Any]] = [
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
            ]
            if load.keepalive_s is not None:
                keepalive_ms = round(load.keepalive_s * 1000)
                options += [("grpc.keepalive_time_ms", keepalive_ms), ("grpc.keepalive_timeout_ms", keepalive_ms)]
            if load.repeats:
                options.append(("grpc.service_config", _retries(load.repeats)))
            channel = grpc.aio.insecure_channel(load.address, options=options)
            self._stack.push_async_callback(channel.close)
            stubs.append(service_pb2_grpc.GRPCInferenceServiceStub(channel))
        requests = [_message(load, value, outputs) for value in values]

        async def call(n: int) -> Answer:
            answer = await stubs[n % len(stubs)].ModelInfer(requests[n % _INPUTS], timeout=load.timeout_s)
            contents = {
                output.name: raw for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
            }
            batch = None if load.batch_output is None else _INT32.unpack_from(contents[load.batch_output])[0]
            # A string is prefixed with its length.
            replica = None if load.who_output is None else contents[load.who_output][_INT32.size :].decode()
            return Answer(batch, replica)

        return call

    def _http(self, values: Any, outputs: list[str]) -> Caller:
        load = self._load
        client = http_aio.InferenceServerClient(load.address, conn_limit=load.clients, conn_timeout=load.timeout_s)
        self._stack.push_async_callback(client.close)
        inputs = [
            [http_aio.InferInput(load.input, list(load.shape), "FP32").set_data_from_numpy(value)] for value in values
        ]
        requested = [http_aio.InferRequestedOutput(name) for name in outputs] or None

        async def call(n: int) -> Answer:
            # The client has no timeout for a whole request, and would wait for minutes.
            async with asyncio.timeout(load.timeout_s + 1):
                result = await client.infer(load.model, inputs[n % _INPUTS], outputs=requested)
            batch = None if load.batch_output is None else int(result.as_numpy(load.batch_output).flat[0])
            replica = None if load.who_output is None else bytes(result.as_numpy(load.who_output).flat[0]).decode()
            return Answer(batch, replica)

        return call

    def _plain_http(self, values: Any) -> Caller:
        """Return a caller whose connections are known, and which takes a third of the CPU time of tritonclient."""
        load = self._load
        connections = PlainConnections(load.address, is_shared=load.connections == "pool")
        self._stack.callback(connections.close)
        requests = []
        for value in values:
            tensor = http.InferInput(load.input, list(load.shape), "FP32").set_data_from_numpy(value)
            body, size = http.InferenceServerClient.generate_request_body([tensor])
            requests.append(plain_request(f"/v2/models/{load.model}/infer", load.address, bytes(body), size))

        async def call(n: int) -> Answer:
            async with asyncio.timeout(load.timeout_s + 1):
                status = await connections.send(requests[n % _INPUTS], load.repeats, _REPEATED_AFTER_S)
            if status != 200:
                raise InferenceServerException(msg="the response's status", status=str(status))
            return Answer(None, None)

        return call


def _retries(count: int) -> str:
    """Return the service configuration of a gRPC client that repeats rejected requests."""
    policy = {
        "maxAttempts": count + 1,
        "initialBackoff": f"{_REPEATED_AFTER_S:g}s",
        "maxBackoff": f"{_REPEATED_AFTER_S:g}s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    name = {"service": "inference.GRPCInferenceService"}
    return json.dumps({"methodConfig": [{"name": [name], "retryPolicy": policy}]})


def _message(load: Load, value: Any, outputs: list[str]) -> Any:
    kinds = service_pb2.ModelInferRequest
    return kinds(
        model_name=load.model,
        inputs=[kinds.InferInputTensor(name=load.input, datatype="FP32", shape=load.shape)],
        outputs=[kinds.InferRequestedOutputTensor(name=name) for name in outputs],
        raw_input_contents=[value.tobytes()],
    )


def kind_of(error: BaseException) -> str:
    """Return a short text for a failure: `StatusCode.UNAVAILABLE: ...`, `503: ...`, `ClientOSError: ...`."""
    if isinstance(error, grpc.aio.AioRpcError):
        text = f"{error.code()}: {error.details()}"
    elif isinstance(error, InferenceServerException):
        text = f"{error.status() or 'error'}: {error.message()}"
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_LONGEST_KIND]


def numbers() -> Callable[[], int]:
    """Yield 0, 1, 2, ..."""
    return itertools.count().__next__
