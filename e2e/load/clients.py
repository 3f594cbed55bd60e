"""One request over gRPC or HTTP with tritonclient, and what kind of failure an error is."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from e2e.load.settings import Load

_INPUTS = 64
_LONGEST_KIND = 120


@dataclass(frozen=True)
class Answer:
    """What one answer told; None where the model has no such output."""

    batch: int | None
    who: str | None


class Caller(Protocol):
    """Sends one request; number `n` chooses among prepared inputs and connections."""

    async def __call__(self, n: int) -> Answer:
        """Return the answer, or raise."""


class Connections:
    """The connections of a load, open while this context is."""

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
        """What the load sends with."""
        load = self._load
        outputs = [name for name in (load.batch_output, load.who_output) if name is not None]
        values = np.random.default_rng(load.seed).uniform(0, 16, (_INPUTS, *load.shape)).astype(np.float32)
        if load.protocol == "grpc":
            return self._grpc(values, outputs)
        return self._http(values, outputs)

    def _grpc(self, values: Any, outputs: list[str]) -> Caller:
        load = self._load
        clients = []
        for _ in range(load.channels):
            # Without a pool of its own a channel to an address that is known already would share its connection.
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
            client = grpc_aio.InferenceServerClient(load.address, channel_args=options)
            self._stack.push_async_callback(client.close)
            clients.append(client)
        inputs = [_filled(grpc_aio.InferInput(load.input, list(load.shape), "FP32"), value) for value in values]
        wanted = [grpc_aio.InferRequestedOutput(name) for name in outputs] or None

        def send(n: int) -> Awaitable[Any]:
            client = clients[n % len(clients)]
            return client.infer(load.model, inputs[n % _INPUTS], outputs=wanted, client_timeout=load.timeout_s)  # type: ignore[no-any-return]  # tritonclient has no types

        return _reading(send, load)

    def _http(self, values: Any, outputs: list[str]) -> Caller:
        load = self._load
        client = http_aio.InferenceServerClient(load.address, conn_limit=load.clients, conn_timeout=load.timeout_s)
        self._stack.push_async_callback(client.close)
        inputs = [_filled(http_aio.InferInput(load.input, list(load.shape), "FP32"), value) for value in values]
        wanted = [http_aio.InferRequestedOutput(name) for name in outputs] or None

        def send(n: int) -> Awaitable[Any]:
            return client.infer(load.model, inputs[n % _INPUTS], outputs=wanted)  # type: ignore[no-any-return]  # tritonclient has no types

        return _reading(send, load)


def _filled(tensor: Any, value: Any) -> list[Any]:
    tensor.set_data_from_numpy(value)
    return [tensor]


def _reading(send: Callable[[int], Awaitable[Any]], load: Load) -> Caller:
    async def call(n: int) -> Answer:
        # The client's own time-out covers a gRPC call; this also bounds HTTP, which would wait for minutes.
        async with asyncio.timeout(load.timeout_s + 1):
            result = await send(n)
        batch = None if load.batch_output is None else int(result.as_numpy(load.batch_output).flat[0])
        who = None if load.who_output is None else bytes(result.as_numpy(load.who_output).flat[0]).decode()
        return Answer(batch, who)

    return call


def kind_of(error: BaseException) -> str:
    """A failure in a few words: `StatusCode.UNAVAILABLE: ...`, `503: ...`, `ClientOSError: ...`."""
    if isinstance(error, InferenceServerException):
        said = f"{error.status() or 'error'}: {error.message()}"
    else:
        said = f"{type(error).__name__}: {error}"
    return " ".join(said.split())[:_LONGEST_KIND]


def numbers() -> Callable[[], int]:
    """0, 1, 2, ..."""
    return itertools.count().__next__
