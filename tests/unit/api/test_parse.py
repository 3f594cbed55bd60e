"""Every rule of the spec: what it accepts, what it refuses, and the sentence that it says."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings

from halcyon.api.parse import SpecError, parse
from halcyon.api.spec import Spec
from tests.strategies import documents

PVC = {"persistentVolumeClaim": {"claimName": "models"}}
CONFIG_MAP = {"configMap": {"name": "m", "items": [{"key": "a", "path": "1/model.onnx"}]}}
ITEM = {"key": "a", "path": "1/model.onnx"}
DURATION = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?([0-9]{1,6}us)?$"


def document(path: str = "", value: Any = None) -> dict[str, Any]:
    """The least spec, with one field set."""
    spec: dict[str, Any] = {"model": {"source": copy.deepcopy(PVC)}}
    if path:
        *parents, last = path.split(".")
        part = spec
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return spec


def refusal(path: str, value: Any) -> str:
    with pytest.raises(SpecError) as error:
        parse("digits", document(path, value))
    return str(error.value)


def test_the_least_spec_has_every_default() -> None:
    spec = parse("digits", document())

    assert spec == Spec.model_validate(document())
    assert (spec.replicas, spec.runtime.gpu.count, spec.runtime.shared_memory) == (1, 1, "256Mi")
    assert (spec.runtime.startup_timeout, spec.traffic.drain, spec.traffic.request_timeout) == ("10m", "30s", "1m")
    assert (spec.traffic.balancer_replicas, spec.traffic.queue_limit) == (2, 200)
    assert spec.batching is None
    assert spec.scaling is None


GOOD: list[tuple[str, Any]] = [
    ("replicas", 0),
    ("replicas", 1000),
    ("model.source", CONFIG_MAP),
    ("model.source", {"persistentVolumeClaim": {"claimName": "a.b", "path": "team/resnet50"}}),
    ("model.name", "ResNet_50.v2-x"),
    ("model.revision", ""),
    ("model.versions", {"latest": 100}),
    ("model.versions", {"specific": [3, 1]}),
    ("model.versions", {"all": True}),
    ("model.backend", "onnxruntime"),
    ("model.parameters", {"gpu_ms": "5", "A-b.c": ""}),
    ("model.warmup", {}),
    ("model.warmup", {"batchSizes": [1, 8], "iterations": 100, "data": "Random"}),
    ("model.warmup.inputs", [{"name": "x", "dataType": "FP32", "dims": [3, 224, 224]}]),
    ("model.warmup.inputs", [{"name": "x", "dataType": "STRING", "dims": []}]),
    ("runtime.image", "registry.example:5000/a/b_c@sha256:" + "0" * 64),
    ("runtime.image", "nvcr.io/nvidia/tritonserver:24.10-py3"),
    ("runtime.imagePullSecrets", [{"name": "a"}, {"name": "b"}]),
    ("runtime.gpu.count", 16),
    ("runtime.resources", {"cpu": "500m", "memory": "8Gi"}),
    ("runtime.instancesPerGPU", 64),
    ("runtime.env", [{"name": "MODE", "value": "fast"}, {"name": "A", "secretKeyRef": {"name": "s", "key": "k"}}]),
    ("runtime.env", [{"name": "PATHOS", "value": ""}]),
    ("runtime.placement.nodeSelector", {"example.com/pool": "gpu", "zone": ""}),
    ("runtime.placement.tolerations", [{"key": "a", "operator": "Exists"}, {"key": "a", "value": "b"}]),
    ("runtime.startupTimeout", "24h"),
    ("batching", {}),
    ("batching", {"maxBatchSize": 8, "preferredBatchSizes": [8, 4]}),
    ("batching.preferredBatchSizes", [65536]),
    ("batching.maxQueueDelay", "1m"),
    ("scaling", {"minReplicas": 8, "maxReplicas": 8}),
    ("scaling", {"maxReplicas": 8, "targets": {"queueDepth": 4, "gpuUtilization": 100}}),
    ("scaling", {"maxReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}),
    ("traffic", {"balancerReplicas": 1, "queueLimit": 100000, "requestTimeout": "10ms", "drain": "1h"}),
]


@pytest.mark.parametrize(("path", "value"), GOOD)
def test_what_the_reference_allows_is_accepted(path: str, value: Any) -> None:
    parse("digits", document(path, value))


BAD: list[tuple[str, Any, str]] = [
    (
        "model.source",
        {},
        "spec.model.source needs exactly one of configMap, persistentVolumeClaim; for example "
        "source: {persistentVolumeClaim: {claimName: models, path: resnet50}}",
    ),
    (
        "model.source",
        PVC | CONFIG_MAP,
        "spec.model.source needs exactly one of configMap, persistentVolumeClaim; for example "
        "source: {persistentVolumeClaim: {claimName: models, path: resnet50}}",
    ),
    (
        "model.versions",
        {"latest": 1, "all": True},
        "spec.model.versions needs exactly one of latest, specific, all; for example versions: {latest: 1}",
    ),
    (
        "model.versions",
        {},
        "spec.model.versions needs exactly one of latest, specific, all; for example versions: {latest: 1}",
    ),
    (
        "runtime.env",
        [{"name": "A"}],
        "an entry of spec.runtime.env needs exactly one of value, secretKeyRef; for example {name: MODE, value: fast}",
    ),
    *(
        (
            "runtime.env",
            [{"name": name, "value": "x"}],
            f"spec.runtime.env: {name} is reserved: names must not start with LD_, NVIDIA_, CUDA_, KUBERNETES_, AIP_ or "
            "PYTHON; use for example MODEL_MODE",
        )
        for name in ("LD_PRELOAD", "NVIDIA_X", "CUDA_X", "KUBERNETES_PORT", "AIP_MODE", "PYTHONPATH")
    ),
    (
        "runtime.placement.tolerations",
        [{"key": "pool", "operator": "Exists", "value": "x"}],
        "spec.runtime.placement.tolerations: pool has operator Exists and a value; leave the value out, or use operator "
        "Equal",
    ),
    (
        "runtime",
        {"sharedMemory": "4Gi", "resources": {"memory": "4096Mi"}},
        "spec.runtime.sharedMemory is 4Gi; it counts against spec.runtime.resources.memory, which is 4096Mi, and must be "
        "smaller; for example resources: {memory: 4Gi}, sharedMemory: 1Gi",
    ),
    (
        "batching",
        {"maxBatchSize": 8, "preferredBatchSizes": [4, 16]},
        "spec.batching.preferredBatchSizes is [4, 16] and has a size above spec.batching.maxBatchSize, which is 8; for "
        "example maxBatchSize: 16, preferredBatchSizes: [8, 16]",
    ),
    (
        "scaling",
        {"minReplicas": 5, "maxReplicas": 4},
        "spec.scaling.minReplicas is 5 and must not be above spec.scaling.maxReplicas, which is 4; for example "
        "minReplicas: 1, maxReplicas: 8",
    ),
    ("replicas", -1, "spec.replicas is -1: Input should be greater than or equal to 0"),
    ("replicas", 1001, "spec.replicas is 1001: Input should be less than or equal to 1000"),
    ("batching.maxBatchSize", 0, "spec.batching.maxBatchSize is 0: Input should be greater than or equal to 1"),
    ("runtime.startupTimeout", "9s", 'spec.runtime.startupTimeout is "9s": must lie between 10s and 24h'),
    ("batching.maxQueueDelay", "61s", 'spec.batching.maxQueueDelay is "61s": must lie between 0us and 1m'),
    ("traffic.requestTimeout", "9ms", 'spec.traffic.requestTimeout is "9ms": must lie between 10ms and 1h'),
    ("traffic.drain", "2h", 'spec.traffic.drain is "2h": must lie between 1s and 1h'),
    (
        "traffic.drain",
        "10",
        f"spec.traffic.drain is \"10\": String should match pattern '{DURATION}'; write for example 500us, 2ms, 30s, "
        "1m30s or 2h",
    ),
    (
        "runtime.sharedMemory",
        "1Q",
        'spec.runtime.sharedMemory is "1Q": String should match pattern '
        r"'^[0-9]{1,12}(\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$'; write for example 500m, 2 or 4Gi",
    ),
    (
        "model.versions.specific",
        [1, 2, 1],
        "spec.model.versions.specific is [1, 2, 1]: item 1 is there more than once; write each once",
    ),
    (
        "runtime.imagePullSecrets",
        [{"name": "a"}, {"name": "a"}],
        'spec.runtime.imagePullSecrets is [{"name": "a"}, {"name": "a"}]: name a is there more than once; write each once',
    ),
    (
        "runtime.imagePullSecrets",
        [],
        "spec.runtime.imagePullSecrets is []: List should have at least 1 item, not 0",
    ),
    (
        "model.parameters",
        {"a/b": "x"},
        "spec.model.parameters.a/b is \"a/b\": String should match pattern '^[-._a-zA-Z0-9]+$'",
    ),
    (
        "model.warmup.data",
        "Ones",
        "spec.model.warmup.data is \"Ones\": Input should be 'Zero' or 'Random'",
    ),
    ("scaling", {"minReplicas": 1}, "spec.scaling.maxReplicas is missing"),
    ("modle", {}, "spec.modle is not a field"),
    ("runtime.gpu.cuont", 1, "spec.runtime.gpu.cuont is not a field"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), BAD)
def test_what_breaks_a_rule_is_refused_in_one_sentence(path: str, value: Any, sentence: str) -> None:
    assert refusal(path, value) == sentence


def test_a_target_for_gpus_needs_a_gpu() -> None:
    spec = document("scaling", {"maxReplicas": 2, "targets": {"gpuUtilization": 80}}) | {
        "runtime": {"gpu": {"count": 0}}
    }

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert str(error.value) == (
        "spec.scaling.targets.gpuUtilization is set and spec.runtime.gpu.count is 0: there is no GPU to measure; set "
        "gpu: {count: 1} or remove the target"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", "3"),
        ("replicas", 3.5),
        ("replicas", True),
        ("runtime.gpu.count", "1"),
        ("batching.preserveOrdering", "true"),
        ("batching.preserveOrdering", 1),
        ("model.versions.all", 1),
        ("model.revision", 7),
        ("model.parameters", {"a": 1}),
        ("runtime.resources.cpu", 4),
    ],
)
def test_a_value_of_another_type_is_refused(path: str, value: Any) -> None:
    assert refusal(path, value).startswith(f"spec.{path}")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.source", {"persistentVolumeClaim": {"claimName": "m", "path": "../other"}}),
        ("model.source", {"persistentVolumeClaim": {"claimName": "m", "path": "/etc"}}),
        ("model.source", {"persistentVolumeClaim": {"claimName": "m", "path": "a/./b"}}),
        ("model.source", {"configMap": {"name": "m", "items": [ITEM | {"path": "a/../../b"}]}}),
        ("model.source", {"configMap": {"name": "m", "items": [ITEM, ITEM | {"key": "b"}]}}),
        ("model.source", {"configMap": {"name": "a..b", "items": [ITEM]}}),
        ("model.source", {"configMap": {"name": "m", "items": []}}),
        ("model.name", "a/b"),
        ("model.name", "-a"),
        ("model.name", "a b"),
        ("model.name", ""),
        ("model.backend", "a-b"),
        ("runtime.image", "Upper/case"),
        ("runtime.image", "a b"),
        ("runtime.image", "a:b:c"),
        ("runtime.env", [{"name": "A-B", "value": "x"}]),
        ("runtime.env", [{"name": "A", "value": "x" * 4097}]),
        ("runtime.placement.nodeSelector", {"a/" + "x" * 64: "y"}),
        ("runtime.placement.nodeSelector", {"a": "x" * 64}),
        ("runtime.placement.nodeSelector", {}),
        ("runtime.placement.priorityClassName", "A"),
    ],
)
def test_what_would_leave_its_place_or_break_a_child_is_refused(path: str, value: Any) -> None:
    assert refusal(path, value).startswith("spec.")


def test_several_mistakes_are_all_named() -> None:
    spec = document("replicas", -1) | {"traffic": {"queueLimit": 0}, "x": 1}

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert [sentence.split(" ")[0] for sentence in str(error.value).split("; ")] == [
        "spec.replicas",
        "spec.traffic.queueLimit",
        "spec.x",
    ]


def test_a_list_with_a_bad_item_is_not_called_empty() -> None:
    assert refusal("runtime.imagePullSecrets", [{"name": "A"}]).startswith("spec.runtime.imagePullSecrets[0].name is ")
    assert "at least 1 item" not in refusal("runtime.imagePullSecrets", [{"name": "A"}])


def test_a_long_value_is_shown_in_part() -> None:
    assert len(refusal("model.name", "/" * 5000)) < 300


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "a.b", "a_b", "a\n", "a" * 53])
def test_a_name_that_does_not_fit_its_children_is_refused(name: str) -> None:
    with pytest.raises(SpecError) as error:
        parse(name, document())

    assert str(error.value) == (
        f"metadata.name is '{name}' ({len(name)} characters); it must match ^[a-z]([-a-z0-9]{{0,50}}[a-z0-9])?$ (at most 52 "
        "characters, so that the names of its children fit); for example resnet50"
    )


@given(documents())
@settings(max_examples=60)
def test_a_spec_written_out_is_read_back_as_itself(spec: dict[str, Any]) -> None:
    parsed = parse("digits", spec)

    assert parse("digits", parsed.to_dict()) == parsed
