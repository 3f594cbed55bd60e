"""What the benchmark applies is what the API takes: found out here, and not when a cluster is up."""

from typing import Any

import pytest

from benchmarks import pods, step
from benchmarks.plane import model
from halcyon.api.spec.parse import parse
from halcyon.api.types import duration_s

DOCUMENTS = {
    "fleet": model("m", most=10, targets={"latency": "500ms"}),
    "parity": model("m", most=40, actuator="Direct"),
    "one": pods.model("m", start_s=0.5, scaling={"maxReplicas": 4, "targets": {"latency": "500ms"}}),
    **{scaler.name: scaler.model("m") for scaler in (step.HALCYON, step.HALCYON_TUNED, *step.PEERS)},
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_the_benchmark_is_valid(name: str) -> None:
    document: dict[str, Any] = DOCUMENTS[name]
    spec = parse("m", document["spec"])
    assert spec.batching is not None
    assert spec.batching.max_batch_size == pods.LAW.max_batch


def test_only_fixed_replicas_have_no_scaling() -> None:
    specs = {scaler.name: parse("m", scaler.model("m")["spec"]) for scaler in (step.HALCYON_TUNED, *step.PEERS)}
    assert [name for name, spec in specs.items() if spec.scaling is None] == ["static 4"]
    for spec in specs.values():
        assert duration_s(spec.traffic.queue_timeout) == duration_s(spec.traffic.response_timeout) == step.DEADLINE_S


def test_the_default_document_sets_no_field_of_traffic_and_no_warmup() -> None:
    document = step.HALCYON.model("m")["spec"]
    assert document["traffic"] == {}
    assert "warmup" not in document["model"]


def test_the_models_files_say_the_names_that_the_load_uses() -> None:
    files = pods.files()["data"]
    assert 'name: "x"' in files["config.pbtxt"]
    compile(files["model.py"], "model.py", "exec")
