"""Models on a real Triton that take other inputs than most, or give other answers.

They have inputs of BF16, few rows, optional inputs, several answers to a request, or answers without outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, Triton
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import ScenarioError, TensorError
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.schedule.scenario import Scenario

pytestmark = pytest.mark.more

_MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", np.ones((int(request.inputs()[0].shape()[0]), 1), np.float32))])
            for request in requests
        ]
"""
_EMPTY = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
_CHOOSY = _MODEL.replace(
    "        return [",
    """        for request in requests:
            if pb_utils.get_input_tensor_by_name(request, "seed") is not None:
                raise ValueError("a seed")
        return [""",
)


@dataclass(frozen=True)
class Odd:
    """A model with one input of some type."""

    name: str
    datatype: str
    more: str = ""
    code: str = _MODEL

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        config = f"""backend: "python"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_{self.datatype} dims: [ 3 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
{self.more}
"""
        return {"config.pbtxt": config, "1/model.py": self.code}


@pytest.fixture(scope="module")
def served() -> Iterator[list[Triton]]:
    """Start a model of BF16, a decoupled one, one with an optional input that it refuses, and one without outputs."""
    decoupled = Odd("stream", "FP32", "model_transaction_policy { decoupled: true }")
    seed = 'input [ { name: "seed" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]'
    with tritons.running(
        [Odd("half", "BF16"), decoupled, Odd("choosy", "FP32", seed, _CHOOSY), Odd("empty", "FP32", code=_EMPTY)]
    ) as models:
        yield models


def measurement(triton: Triton, protocol: str, **others: Any) -> Measurement:
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    url = f"{protocol}://{triton.address}:{port}"
    to = target.parse(url, api="kserve", transport=None, encoding=None, model=triton.model)
    return Measurement(target=to, scenario=Scenario(requests=8), warm_up=WarmUp(0.0, fixed=True), **others)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_of_bf16_are_answered(served: list[Triton], protocol: str) -> None:
    ready = measurement(served[0], protocol, payload=PayloadSettings(rows=Rows(1, 4))).prepare()
    document = ready.document(ready.run(), made_by="test")
    assert (document.requests.answered, document.requests.due) == (8, 8)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_that_the_model_rejects_are_an_error_before_the_load(served: list[Triton], protocol: str) -> None:
    half, stream, *_ = served
    with pytest.raises(TensorError, match=r"a request has 8 rows, but half takes at most 4 .*; for example --rows 4"):
        measurement(half, protocol, payload=PayloadSettings(rows=Rows(1, 8))).prepare()
    with pytest.raises(ScenarioError, match="stream may send several answers to one request"):
        measurement(stream, protocol).prepare()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_optional_input_is_left_out_unless_its_shape_is_given(served: list[Triton], protocol: str) -> None:
    answered = []
    for shapes in ((), (("seed", (1,)),)):
        ready = measurement(served[2], protocol, payload=PayloadSettings(shapes=shapes)).prepare()
        answered.append(ready.document(ready.run(), made_by="test").requests.answered)
    assert answered == [8, 0]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_answers_without_outputs_are_errors_of_the_run(served: list[Triton], protocol: str) -> None:
    ready = measurement(served[3], protocol).prepare()
    document = ready.document(ready.run(), made_by="test")
    assert (document.requests.answered, document.requests.errors) == (0, 8)
    assert "no outputs in the answer" in document.failures[0].message
