"""Answers over gRPC: which of them have outputs, and a server that sends none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import pytest
from tritonclient.grpc import service_pb2

from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols import target
from halcyon_measure.protocols.grpc_client import GrpcClient, has_outputs
from halcyon_measure.protocols.reply import Outcome, Prepared


def response(**fields: Any) -> service_pb2.ModelInferResponse:
    return service_pb2.ModelInferResponse(model_name="m" * 300, model_version="1", id="7", **fields)


def output() -> service_pb2.ModelInferResponse:
    message = response(raw_output_contents=[b"\x00" * 400])
    message.parameters["triton_final_response"].bool_param = True
    message.outputs.add(name="y", datatype="FP32", shape=[1, 100])
    return message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (output().SerializeToString(), True),
        (output().SerializeToString()[:320], False),
        (response().SerializeToString(), False),
        (response(raw_output_contents=[b"*" * 400]).SerializeToString(), False),
        (b"", False),
        (b"*", True),
        (b"\xff\xff", False),
        (b"<html>", False),
    ],
)
def test_outputs_of_a_message_are_found_without_parsing_it(body: bytes, expected: bool) -> None:
    assert has_outputs(body) is expected


@pytest.mark.parametrize(("has_output", "outcome"), [(True, Outcome.ANSWERED), (False, Outcome.ERROR)])
def test_answer_without_outputs_is_an_error_over_grpc(has_output: bool, outcome: Outcome) -> None:
    async def answer(_: bytes, __: Any) -> bytes:
        return bytes((output() if has_output else response()).SerializeToString())

    async def sent() -> tuple[Outcome, str]:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(answer)
        service = "inference.GRPCInferenceService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ModelInfer": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        to = target.parse(f"grpc://127.0.0.1:{port}", api="kserve", transport=None, encoding=None, model="m")
        client = GrpcClient(replace(to, outputs=(ModelInput("y", "FP32", (-1, 1)),), timeout_s=20.0))
        try:
            reply = await client.send(Prepared(b"", 1), 0)
        finally:
            await client.close()
            await server.stop(None)
        return reply.outcome, reply.message

    assert asyncio.run(sent()) == (outcome, "" if has_output else "OK: no outputs in the answer")
