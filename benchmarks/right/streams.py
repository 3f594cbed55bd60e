"""Clients of the decoupled model `events`: one request with many responses, over HTTP (`generate_stream`) and gRPC."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from dataclasses import dataclass, field
from typing import Literal

import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
CUT_GRPC = "UNAVAILABLE"
"""Status of a gRPC stream that was cut off, for which the client opens another one."""


@dataclass
class Stream:
    """One request and its responses."""

    expected: int
    headers_s: float = 0.0
    """Time from sending the request to the response headers, in seconds. 0 if not measured."""
    first_s: float = 0.0
    """Time from sending the request to the first event, in seconds."""
    delays_ms: list[float] = field(default_factory=list)
    """Time from the model to the client of each event, in milliseconds."""
    end: Literal["whole", "cut", "error"] = "error"
    """`whole`: the protocol says that the response is complete. `cut`: it says that it is not. `error`: anything else."""
    detail: str = ""
    """How a stream ended that isn't whole."""

    @property
    def is_lost(self) -> bool:
        """Whether the client takes a part for the whole, or gets an error that it can't tell from a failure of the model."""
        return self.end == "error" or (self.end == "whole" and len(self.delays_ms) < self.expected)

    def add(self, word: str, began_s: float) -> None:
        """Add an event with the text `word`, of a request that was sent at `began_s` of the monotonic clock."""
        self.first_s = self.first_s or time.monotonic() - began_s
        self.delays_ms.append((time.monotonic_ns() - int(word.split()[1])) / 1e6)


async def over_http(address: str, count: int, pause_s: float) -> Stream:
    """Request `count` events with `pause_s` seconds before each by generate_stream at `address` (host:port)."""
    stream = Stream(count)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"x": [count, pause_s]}).encode()
    head = f"POST /v2/models/events/generate_stream HTTP/1.1\r\nHost: m\r\nContent-Length: {len(body)}\r\n\r\n"
    began_s = time.monotonic()
    try:
        writer.write(head.encode() + body)
        fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        stream.headers_s = time.monotonic() - began_s
        if not fields.startswith("http/1.1 200") or "transfer-encoding: chunked" not in fields:
            stream.detail = fields
            return stream
        rest = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            rest += (await reader.readexactly(size + 2))[:-2]
            *texts, rest = rest.split(b"\n\n")
            for text in texts:
                stream.add(json.loads(text.removeprefix(b"data: "))["word"], began_s)
        stream.end = "whole"
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        stream.end, stream.detail = "cut", repr(error)
    finally:
        writer.close()
    return stream


async def over_grpc(channel: grpc.aio.Channel, count: int, pause_s: float) -> Stream:
    """Request `count` events with `pause_s` seconds before each on a gRPC stream of its own."""
    stream = Stream(count)
    request = service_pb2.ModelInferRequest(model_name="events")
    tensor = request.inputs.add(name="x", datatype="FP32")
    tensor.shape.extend([2])
    request.raw_input_contents.append(struct.pack("<ff", count, pause_s))
    began_s = time.monotonic()
    call = channel.stream_stream(
        METHOD,
        request_serializer=service_pb2.ModelInferRequest.SerializeToString,
        response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
    )(iter([request]))
    try:
        async for answer in call:
            stream.add(answer.infer_response.raw_output_contents[0][4:].decode(), began_s)
        stream.end = "whole"
    except grpc.aio.AioRpcError as error:
        stream.end = "cut" if error.code().name == CUT_GRPC else "error"
        stream.detail = f"{error.code().name} {error.details()}"
    return stream
