"""Models on a real Triton that take other inputs than most: BF16, few rows, several answers to a request."""

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


@dataclass(frozen=True)
class Odd:
    """A model with one input of some type."""

    name: str
    datatype: str
    more: str = ""

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        config = f"""backend: "python"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_{self.datatype} dims: [ 3 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
{self.more}
"""
        return {"config.pbtxt": config, "1/model.py": _MODEL}


@pytest.fixture(scope="module")
def served() -> Iterator[list[Triton]]:
    """Start a model of BF16, and a decoupled one."""
    decoupled = Odd("stream", "FP32", "model_transaction_policy { decoupled: true }")
    with tritons.running([Odd("half", "BF16"), decoupled]) as made:
        yield made


def measurement(triton: Triton, protocol: str, **others: Any) -> Measurement:
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    url = f"{protocol}://{triton.address}:{port}"
    to = target.parse(url, api="kserve", transport=None, encoding=None, model=triton.model)
    return Measurement(target=to, scenario=Scenario(requests=8), warm_up=WarmUp(0.0, fixed=True), **others)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_of_bf16_are_answered(served: list[Triton], protocol: str) -> None:
    ready = measurement(served[0], protocol, payload=PayloadSettings(rows=Rows(1, 4))).prepare()
    made = ready.document(ready.run(), made_by="test")
    assert (made.requests.answered, made.requests.due) == (8, 8)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_that_the_model_rejects_are_an_error_before_the_load(served: list[Triton], protocol: str) -> None:
    half, stream = served
    with pytest.raises(TensorError, match=r"a request has 8 rows, but half takes at most 4 .*; for example --rows 4"):
        measurement(half, protocol, payload=PayloadSettings(rows=Rows(1, 8))).prepare()
    with pytest.raises(ScenarioError, match="stream may send several answers to one request"):
        measurement(stream, protocol).prepare()
