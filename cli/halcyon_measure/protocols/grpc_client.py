"""Client for the KServe v2 protocol over gRPC, with raw or typed contents.

Each message is built once and sent many times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
from google.protobuf import json_format
from tritonclient.grpc import InferResult, service_pb2

from halcyon_measure.errors import TargetError, TensorError
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.inputs.tensors import raw_content
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply, single_line
from halcyon_measure.protocols.target import Target, Tls

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_OUTCOMES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.REJECTED,
    grpc.StatusCode.UNAVAILABLE: Outcome.REJECTED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.TIMED_OUT,
}
# Messages of gRPC's core about a connection. With any other message, the status came from the server.
_BROKEN = (
    "failed to connect",
    "socket closed",
    "connection reset",
    "recvmsg",
    "goaway",
    "broken pipe",
    "dns resolution",
)
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
"""Name of the field for typed contents, by data type. The protocol has no field for FP16 and BF16."""

_WITH_LENGTH = 2
"""Protobuf's wire type for strings, bytes and messages, which begin with their length."""
_OUTPUTS_KEY = service_pb2.ModelInferResponse.OUTPUTS_FIELD_NUMBER << 3 | _WITH_LENGTH


class GrpcClient:
    """Client with several gRPC connections, which requests use in turn."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.monotonic, pod_header: str = "") -> None:
        self._target, self._clock, self._pod_header = target, clock, pod_header
        self._metadata = tuple((name.lower(), value) for name, value in target.headers)
        # Without separate subchannel pools, channels to one address share a connection.
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        self._channels = [_channel(target, options) for _ in range(target.channels)]
        # Messages are sent as serialised bytes. A response is parsed only if its outputs are needed.
        self._calls = [channel.unary_unary(_METHOD) for channel in self._channels]

    def encode(self, payload: Payload) -> Prepared:
        """Return the bytes of a request."""
        return encode(self._target, payload)

    async def send(self, request: Prepared, number: int) -> Reply:
        """Send a request and return the reply; never raise.

        The time of the first byte is that of the response's headers.
        """
        call = self._calls[number % len(self._calls)](
            request.body, timeout=self._target.timeout_s, metadata=self._metadata or None
        )
        first = 0.0
        try:
            if self._pod_header:
                headers = await call.initial_metadata()
                first = self._clock()
                pod = next((str(value) for key, value in headers if key == self._pod_header), "")
            else:
                pod = ""
            body = await call
        except grpc.aio.AioRpcError as error:
            return _failure_reply(error, first or self._clock())
        first = first or self._clock()
        if self._target.outputs and not has_outputs(body):
            return Reply(Outcome.ERROR, "OK: no outputs in the answer", first, body, pod)
        return Reply(Outcome.ANSWERED, "", first, body, pod)

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()


def encode(target: Target, payload: Payload) -> Prepared:
    """Return the bytes of a request.

    Raises:
        TensorError: the protocol has no typed contents for an input's data type.
    """
    kinds = {model_input.name: model_input.datatype for model_input in target.inputs}
    message = service_pb2.ModelInferRequest(model_name=target.model, model_version=target.version)
    for name, array in payload.tensors.items():
        tensor = message.inputs.add(name=name, datatype=kinds[name], shape=array.shape)
        if target.encoding == "typed":
            field = _CONTENTS.get(kinds[name])
            if field is None:
                raise TensorError(f"input {name} is of {kinds[name]}, which has no typed contents; use --encoding raw")
            getattr(tensor.contents, field).extend(array.ravel().tolist())
        else:
            message.raw_input_contents.append(raw_content(array, kinds[name]))
    return Prepared(message.SerializeToString(), payload.rows)


def has_outputs(body: bytes) -> bool:
    """Return whether a serialised ModelInferResponse contains an output.

    The message isn't parsed, because that would copy the tensors. The fields before the outputs are short strings.
    """
    position = 0
    try:
        while position < len(body):
            key, position = _varint(body, position)
            if key == _OUTPUTS_KEY:
                return True
            if key & 7 != _WITH_LENGTH:  # no other field of the message has another form
                return False
            length, position = _varint(body, position)
            position += length
    except IndexError:
        pass  # cut off
    return False


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position in Protobuf's variable-length encoding, and the position after it."""
    value = shift = 0
    while (byte := body[position]) >= 0x80:
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | byte << shift, position + 1


def outputs(reply: Reply) -> dict[str, Any]:
    """Return the output tensors of an answer by name."""
    result = InferResult(service_pb2.ModelInferResponse.FromString(reply.body))
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def metadata(target: Target) -> Any:
    """Return the server's metadata of the model.

    Raises:
        grpc.RpcError: the server didn't answer, or has no such model.
    """
    return call(target, "ModelMetadata", name=target.model, version=target.version)


def described(target: Target, method: Literal["ModelStatistics", "ModelConfig"]) -> dict[str, Any]:
    """Return the statistics or the configuration of the model from the server, in JSON form.

    Raises:
        TargetError: the server didn't respond, or doesn't provide them.
    """
    try:
        response = call(target, method, name=target.model, version=target.version)
    except grpc.RpcError as error:
        message = single_line(f"{error.code().name}: {error.details()}")
        raise TargetError(f"{target.url} doesn't answer {method} of {target.model}: {message}") from None
    return json_format.MessageToDict(response, preserving_proto_field_name=True)


def call(target: Target, method: str, **fields: Any) -> Any:
    """Call a method of the server with a request that has these fields, and return the response.

    Raises:
        grpc.RpcError: the server didn't respond, or returned an error.
    """
    request, response = (getattr(service_pb2, f"{method}{kind}") for kind in ("Request", "Response"))
    with _sync_channel(target) as channel:
        rpc = channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return rpc(
            request(**fields),
            timeout=target.timeout_s,
            metadata=[(name.lower(), value) for name, value in target.headers] or None,
        )


def _channel(target: Target, options: Sequence[tuple[str, int | str]]) -> Any:
    if target.encrypted:
        return grpc.aio.secure_channel(
            target.address, _credentials(target.tls), options=[*options, *_name_options(target.tls)]
        )
    return grpc.aio.insecure_channel(target.address, options=options)


def _sync_channel(target: Target) -> Any:
    if target.encrypted:
        return grpc.secure_channel(target.address, _credentials(target.tls), options=_name_options(target.tls))
    return grpc.insecure_channel(target.address)


def _name_options(tls: Tls) -> list[tuple[str, str]]:
    return [] if tls.server_name is None else [("grpc.ssl_target_name_override", tls.server_name)]


def _credentials(tls: Tls) -> Any:
    ca, key, certificate = (
        Path(path).read_bytes() if path is not None else None for path in (tls.ca, tls.key, tls.certificate)
    )
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _failure_reply(error: Any, now: float) -> Reply:
    message = single_line(f"{error.code().name}: {error.details()}")
    outcome = _OUTCOMES.get(error.code(), Outcome.ERROR)
    if outcome is Outcome.REJECTED and any(text in message.lower() for text in _BROKEN):
        outcome = Outcome.DISCONNECTED
    return Reply(outcome, message, now, b"", "")
