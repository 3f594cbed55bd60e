"""Models with unusual inputs on a real Triton: it loads them with a warm-up from the spec, and the agent's probe succeeds."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton
from halcyon.api.documents.model_overlay import OverlayWarmup
from halcyon.triton.probe_request import build
from tests.integration.fetch.test_model_repository import fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.more

_MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            rows = request.inputs()[0].as_numpy().shape[0]
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.full((rows, 1), rows, np.float32))]))
        return made
"""
_DECOUPLED_MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            rows, sender = request.inputs()[0].as_numpy().shape[0], request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.full((rows, 1), rows, np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_OUTPUT = 'backend: "python"\noutput [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
_BATCHES = "max_batch_size: 4\ndynamic_batching { }\n"
_DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def inputs(*tensors: str) -> str:
    return f"input [ {', '.join(f'{{ {tensor} }}' for tensor in tensors)} ]\n"


def sequences(data_type: str, strategy: str = "direct { }") -> str:
    control = f"control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: {data_type} }} ]"
    return f'max_batch_size: 4\nsequence_batching {{ {strategy} control_input [ {{ name: "ID" {control} }} ] }}\n'


_NUMBER, _TEXT = 'name: "x" data_type: TYPE_FP32 dims: [ 1 ]', 'name: "x" data_type: TYPE_STRING dims: [ 2 ]'
CONFIGS: Final = {
    "text_id": inputs(_NUMBER) + sequences("TYPE_STRING"),
    "text_id_oldest": inputs(_NUMBER) + sequences("TYPE_STRING", "oldest { max_candidate_sequences: 4 }"),
    "short_id": inputs(_NUMBER) + sequences("TYPE_INT32"),
    "texts": inputs(_TEXT) + _BATCHES,
    "reshaped": inputs(f"{_NUMBER} reshape {{ shape: [ ] }}") + _BATCHES,
    "optional": inputs(_NUMBER, 'name: "z" data_type: TYPE_FP32 dims: [ 1 ] optional: true') + _BATCHES,
    "half": inputs('name: "x" data_type: TYPE_FP16 dims: [ 3 ]') + _BATCHES,
    "flags": inputs('name: "x" data_type: TYPE_BOOL dims: [ 1 ]') + _BATCHES,
    "ragged": inputs('name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true') + _BATCHES,
    "decoupled": inputs('name: "x" data_type: TYPE_FP32 dims: [ 1, 3 ]', 'name: "s" data_type: TYPE_STRING dims: [ 1 ]')
    + _BATCHES
    + _DECOUPLED,
    "decoupled_one": inputs('name: "x" data_type: TYPE_INT32 dims: [ 3 ]') + _DECOUPLED,
    "decoupled_ragged": inputs('name: "x" data_type: TYPE_BOOL dims: [ -1 ]') + _BATCHES + _DECOUPLED,
}


@dataclass(frozen=True)
class Repository:
    """A model repository, as the fetcher makes it from the sources of several models."""

    files: dict[str, str] = field(default_factory=dict)
    name: str = next(iter(CONFIGS))


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    repository = Repository()
    for name, config in CONFIGS.items():
        model = _DECOUPLED_MODEL if _DECOUPLED in config else _MODEL
        for data in ("zero", "random"):
            source = {"config.pbtxt": config + _OUTPUT, "1/model.py": model}
            brought = fetched(tmp_path_factory.mktemp(name), source, f"{name}_{data}", warmup=OverlayWarmup(data=data))
            repository.files.update(brought.files)
    # `name` is only the folder to which the paths are relative.
    repository.files[f"../{repository.name}/config.pbtxt"] = CONFIGS[repository.name] + _OUTPUT
    repository.files[f"../{repository.name}/1/model.py"] = _MODEL
    with tritons.running([repository], arguments=["--disable-auto-complete-config"]) as (server,):
        yield server


def read(url: str, data: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=20) as answer:
        content: bytes = answer.read()
        return content


@pytest.mark.parametrize("data", ["zero", "random"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_warmed_up_model_of_unusual_inputs_can_be_probed(triton: Triton, name: str, data: str) -> None:
    url = f"http://{triton.address}:{HTTP_PORT}/v2/models/{name}_{data}"
    config: dict[str, Any] = json.loads(read(f"{url}/config"))
    assert config["model_warmup"]
    probe = build(config)
    assert probe is not None
    answer = read(f"{url}/{probe.path}", probe.body, dict(probe.headers))
    if probe.path == "generate_stream":
        values = json.loads(answer.removeprefix(b"data: "))["y"]
        assert config["max_batch_size"] == 0 or values == ([4.0] * 4 if probe.rows == 4 else 1.0)
    else:
        outputs = json.loads(answer[: answer.index(b"}]}") + 3])["outputs"]
        assert outputs[0]["shape"] == [probe.rows, 1]
    fills = name in {"texts", "reshaped", "optional", "half", "flags", "ragged", "decoupled"}
    assert (probe.rows, probe.is_alone) == (4 if fills else 1, fills or name == "decoupled_one")
