"""The merge: what is said wins, what is not said stays, and what can't work is refused by name."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import assume, given
from hypothesis import strategies as st

from halcyon.api.documents.model_overlay import (
    DynamicBatching,
    Overlay,
    OverlayInput,
    OverlayQueuePolicy,
    OverlayWarmup,
    VersionPolicy,
)
from halcyon.model_config import config_pbtxt, model_config_proto
from halcyon.model_config.errors import ConflictError
from halcyon.model_config.merge import changes, merge
from halcyon.model_config.model_config_proto import ModelConfig
from tests.unit.model_config.overlay_strategies import OVERLAYS

IO = 'input { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] } output { name: "Y" data_type: TYPE_FP32 dims: 4 }'
PAIR = (
    'max_batch_size: 8 input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }, '
    '{ name: "scale" data_type: TYPE_FP32 dims: [ 2, 1 ] } ]'
)
OWN = f'name: "m" backend: "python" max_batch_size: 8 {IO}'
FIXED = OverlayInput("X", "FP32", (7, 4))
CONTROLS = (
    ' sequence_batching { control_input [ { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }, '
    '{ name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } ] '
    'state { input_name: "STATE" output_name: "NEXT" data_type: TYPE_FP16 dims: [ -1, 2 ] } }'
)
ONNX = OWN.replace("python", "onnxruntime")


def threads(parameter: str, count: int) -> str:
    return f' parameters {{ key: "{parameter}" value: {{ string_value: "{count}" }} }}'


def read(text: str) -> ModelConfig:
    return config_pbtxt.parse(text.encode())


def shown(message: ModelConfig) -> str:
    return text_format.MessageToString(message, as_one_line=True)


CASES = [
    ("a missing name is set", IO, Overlay("m"), f'name: "m" {IO}'),
    ("another name is overwritten", f'name: "other" {IO}', Overlay("m"), f'name: "m" {IO}'),
    ("the batch size is overwritten", OWN, Overlay("m", max_batch_size=32), OWN.replace("8", "32")),
    ("batching is switched on", OWN, Overlay("m", dynamic_batching=DynamicBatching()), OWN + " dynamic_batching { }"),
    (
        "all of batching",
        OWN,
        Overlay("m", dynamic_batching=DynamicBatching(2000, (4, 8), True)),
        OWN
        + " dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 2000 preserve_ordering: true }",
    ),
    (
        "what the overlay doesn't say of batching stays",
        OWN
        + " dynamic_batching { preferred_batch_size: [4] priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
        Overlay("m", dynamic_batching=DynamicBatching(max_queue_delay_us=5, preserve_ordering=False)),
        OWN
        + " dynamic_batching { preferred_batch_size: [4] priority_levels: 2 default_priority_level: 1 max_queue_delay_microseconds: 5 }",
    ),
    (
        "a warm-up has the controls and states of a sequence, always with zeros",
        OWN + CONTROLS,
        Overlay("m", warmup=OverlayWarmup(batch_sizes=(1,), iterations=1, data="random")),
        OWN + CONTROLS + ' model_warmup { name: "halcyon-batch-1" batch_size: 1 count: 1 '
        'inputs { key: "X" value { data_type: TYPE_FP32 dims: [1, 4] random_data: true } } '
        'inputs { key: "START" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } '
        'inputs { key: "ID" value { data_type: TYPE_UINT64 dims: 1 zero_data: true } } '
        'inputs { key: "STATE" value { data_type: TYPE_FP16 dims: [1, 2] zero_data: true } } }',
    ),
    (
        "a warm-up may name an input that the sequence batcher adds",
        OWN + CONTROLS,
        Overlay(
            "m",
            warmup=OverlayWarmup(batch_sizes=(1,), iterations=1, inputs=(OverlayInput("STATE", "FP16", (5, 2)), FIXED)),
        ),
        OWN + CONTROLS + ' model_warmup { name: "halcyon-batch-1" batch_size: 1 count: 1 '
        'inputs { key: "X" value { data_type: TYPE_FP32 dims: [7, 4] zero_data: true } } '
        'inputs { key: "START" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } '
        'inputs { key: "ID" value { data_type: TYPE_UINT64 dims: 1 zero_data: true } } '
        'inputs { key: "STATE" value { data_type: TYPE_FP16 dims: [5, 2] zero_data: true } } }',
    ),
    (
        "priorities and a queue policy",
        OWN + " dynamic_batching { default_queue_policy { max_queue_size: 4 allow_timeout_override: true } }",
        Overlay(
            "m",
            dynamic_batching=DynamicBatching(
                priority_levels=3,
                default_priority_level=2,
                queue_policy=OverlayQueuePolicy(delay=True, timeout_us=500, max_queue_size=9),
            ),
        ),
        OWN + " dynamic_batching { priority_levels: 3 default_priority_level: 2 default_queue_policy { "
        "timeout_action: DELAY default_timeout_microseconds: 500 allow_timeout_override: true max_queue_size: 9 } }",
    ),
    (
        "the model's own timeout action is replaced",
        OWN + " dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
        Overlay("m", dynamic_batching=DynamicBatching(queue_policy=OverlayQueuePolicy(delay=False))),
        OWN + " dynamic_batching { default_queue_policy { timeout_action: REJECT } }",
    ),
    (
        "the response cache is switched on",
        OWN,
        Overlay("m", response_cache=True),
        OWN + " response_cache { enable: true }",
    ),
    (
        "the CPU limit has no effect on a backend without a parameter for threads",
        OWN,
        Overlay("m", millicores=4000),
        OWN,
    ),
    (
        "two instances by default share the CPU limit",
        ONNX,
        Overlay("m", millicores=5000),
        ONNX + threads("intra_op_thread_count", 2),
    ),
    (
        "all instances share the CPU limit",
        ONNX + " instance_group [{count: 3 kind: KIND_CPU}, {count: 1}]",
        Overlay("m", millicores=64_000),
        ONNX + " instance_group [{count: 3 kind: KIND_CPU}, {count: 1}]" + threads("intra_op_thread_count", 16),
    ),
    (
        "instances of the spec share the CPU limit",
        'name: "m" platform: "pytorch_libtorch"',
        Overlay("m", millicores=6000, instances=2),
        'name: "m" platform: "pytorch_libtorch" instance_group { count: 2 }' + threads("INTRA_OP_THREAD_COUNT", 3),
    ),
    (
        "an instance has at least one thread",
        OWN.replace("python", "openvino"),
        Overlay("m", millicores=500),
        OWN.replace("python", "openvino") + threads("INFERENCE_NUM_THREADS", 1),
    ),
    (
        "the model's own number of threads stays",
        ONNX + threads("intra_op_thread_count", 7),
        Overlay("m", millicores=2000),
        ONNX + threads("intra_op_thread_count", 7),
    ),
    (
        "the spec's number of threads wins",
        ONNX,
        Overlay("m", millicores=2000, parameters={"intra_op_thread_count": "0"}),
        ONNX + threads("intra_op_thread_count", 0),
    ),
    (
        "one group is added, its kind left to Triton",
        OWN,
        Overlay("m", instances=2),
        OWN + " instance_group { count: 2 }",
    ),
    (
        "every group gets the count but those that the model places itself",
        OWN
        + " instance_group [{kind: KIND_GPU gpus: [0]}, {kind: KIND_CPU count: 4}, {count: 1}, {kind: KIND_MODEL count: 1}]",
        Overlay("m", instances=2),
        OWN
        + " instance_group [{kind: KIND_GPU gpus: [0] count: 2}, {kind: KIND_CPU count: 2}, {count: 2}, {kind: KIND_MODEL count: 1}]",
    ),
    (
        "latest versions",
        OWN + " version_policy { all { } }",
        Overlay("m", version_policy=VersionPolicy(latest=2)),
        OWN + " version_policy { latest { num_versions: 2 } }",
    ),
    (
        "specific versions",
        OWN,
        Overlay("m", version_policy=VersionPolicy(specific=(1, 3))),
        OWN + " version_policy { specific { versions: [1, 3] } }",
    ),
    ("all versions", OWN, Overlay("m", version_policy=VersionPolicy(all=True)), OWN + " version_policy { all { } }"),
    (
        "parameters of the same name are overwritten, others stay",
        OWN
        + ' parameters { key: "a" value { string_value: "1" } } parameters { key: "b" value { string_value: "2" } }',
        Overlay("m", parameters={"b": "3", "c": "4"}),
        OWN
        + "".join(
            f' parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in (("a", 1), ("b", 3), ("c", 4))
        ),
    ),
    ("a backend is added", f'name: "m" {IO}', Overlay("m", backend="python"), f'name: "m" backend: "python" {IO}'),
    ("the same backend changes nothing", OWN, Overlay("m", backend="python"), OWN),
    (
        "a platform is a backend's older name",
        f'name: "m" platform: "tensorrt_plan" {IO}',
        Overlay("m", backend="tensorrt"),
        f'name: "m" platform: "tensorrt_plan" {IO}',
    ),
    (
        "warm-up runs one row and the most rows, with 1 for a variable dimension, in the place of the model's own",
        OWN + ' model_warmup { name: "own" batch_size: 3 }',
        Overlay("m", max_batch_size=16, warmup=OverlayWarmup()),
        OWN.replace("8", "16")
        + "".join(
            f' model_warmup {{ name: "halcyon-batch-{n}" batch_size: {n} count: 2 '
            'inputs { key: "X" value { data_type: TYPE_FP32 dims: [1, 4] zero_data: true } } }'
            for n in (1, 16)
        ),
    ),
    (
        "warm-up of a model without batching runs one request",
        f'name: "m" {IO}',
        Overlay("m", warmup=OverlayWarmup(iterations=5, data="random")),
        (
            f'name: "m" {IO} model_warmup {{ name: "halcyon-batch-1" batch_size: 1 count: 5 '
            'inputs { key: "X" value { data_type: TYPE_FP32 dims: [1, 4] random_data: true } } }'
        ),
    ),
    (
        "warm-up with inputs and sizes of its own",
        "max_batch_size: 8",
        Overlay("m", warmup=OverlayWarmup(batch_sizes=(2,), iterations=1, inputs=(OverlayInput("T", "STRING", (3,)),))),
        (
            'name: "m" max_batch_size: 8 model_warmup { name: "halcyon-batch-2" batch_size: 2 count: 1 '
            'inputs { key: "T" value { data_type: TYPE_STRING dims: 3 zero_data: true } } }'
        ),
    ),
    (
        "an input that the warm-up doesn't name comes from the configuration, an optional one stays out",
        f'name: "m" {PAIR} input {{ name: "hint" data_type: TYPE_FP32 dims: [ -1 ] optional: true }}',
        Overlay(
            "m", warmup=OverlayWarmup(batch_sizes=(4,), iterations=1, inputs=(OverlayInput("ids", "INT64", (128,)),))
        ),
        (
            f'name: "m" {PAIR} input {{ name: "hint" data_type: TYPE_FP32 dims: [ -1 ] optional: true }} '
            'model_warmup { name: "halcyon-batch-4" batch_size: 4 count: 1 '
            'inputs { key: "ids" value { data_type: TYPE_INT64 dims: [128] zero_data: true } } '
            'inputs { key: "scale" value { data_type: TYPE_FP32 dims: [2, 1] zero_data: true } } }'
        ),
    ),
    (
        "a model without a configuration gets what the overlay says and no more",
        "",
        Overlay("m", max_batch_size=4, dynamic_batching=DynamicBatching(), backend="onnxruntime"),
        'name: "m" backend: "onnxruntime" max_batch_size: 4 dynamic_batching { }',
    ),
]


@pytest.mark.parametrize(("own", "overlay", "merged"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_overlay_merges_into_the_configuration_as_tabled(own: str, overlay: Overlay, merged: str) -> None:
    assert shown(merge(read(own), overlay)) == shown(read(merged))


def test_an_ensemble_beside_a_model_file_gets_no_threads() -> None:
    own = 'name: "m" ensemble_scheduling { step { model_name: "a" } }'
    merged = merge(read(own), Overlay("m", millicores=2000), backend_of_file="onnxruntime")
    assert shown(merged) == shown(read(own))


SEQUENCE = 'name: "m" max_batch_size: 8 sequence_batching { }'
ENSEMBLE = 'name: "m" platform: "ensemble" ensemble_scheduling { }'
REFUSED = [
    (OWN, Overlay("m", backend="onnxruntime"), ("spec.model.backend is onnxruntime", 'backend: "python"')),
    ('platform: "tensorrt_plan"', Overlay("m", backend="onnxruntime"), ('platform: "tensorrt_plan"',)),
    (SEQUENCE, Overlay("m", dynamic_batching=DynamicBatching()), ("spec.batching", "sequence_batching")),
    (ENSEMBLE, Overlay("m", dynamic_batching=DynamicBatching()), ("spec.batching", "ensemble")),
    (ENSEMBLE, Overlay("m", instances=2), ("spec.runtime.instancesPerGPU", "ensemble")),
    (ENSEMBLE, Overlay("m", warmup=OverlayWarmup()), ("spec.model.warmup", "ensemble")),
    (
        OWN + " dynamic_batching { preserve_ordering: true }",
        Overlay("m", dynamic_batching=DynamicBatching(priority_levels=2, default_priority_level=2)),
        ("preserve_ordering is true", "priority_levels is 2", "spec.batching.preserveOrdering"),
    ),
    (
        OWN + " dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
        Overlay("m", dynamic_batching=DynamicBatching(preserve_ordering=True)),
        ("preserve_ordering is true", "timeout_action", "DELAY"),
    ),
    (
        OWN
        + " dynamic_batching { preserve_ordering: true priority_queue_policy { key: 1 value { timeout_action: DELAY } } }",
        Overlay("m"),
        ("preserve_ordering is true", "timeout_action", "DELAY"),
    ),
    (
        OWN + " dynamic_batching { priority_queue_policy { key: 3 value { max_queue_size: 1 } } }",
        Overlay("m", dynamic_batching=DynamicBatching(priority_levels=2, default_priority_level=2)),
        ("priority_queue_policy", "the level 3", "priority_levels is 2", "priorityLevels to 3"),
    ),
    (
        OWN + " dynamic_batching { priority_levels: 2 }",
        Overlay("m"),
        ("default_priority_level is 0", "from 1 to priority_levels, which is 2", "defaultPriorityLevel"),
    ),
    ("max_batch_size: -1", Overlay("m"), ("max_batch_size is -1", "0 (no batching) or more")),
    (
        OWN + " model_transaction_policy { decoupled: true } response_cache { enable: true }",
        Overlay("m"),
        ("decoupled", "response_cache out of config.pbtxt"),
    ),
    (
        OWN + " sequence_batching { }",
        Overlay("m", response_cache=True),
        ("spec.runtime.server.responseCache", "sequence_batching"),
    ),
    (
        OWN + " model_transaction_policy { decoupled: true }",
        Overlay("m", response_cache=True),
        ("spec.runtime.server.responseCache", "decoupled"),
    ),
    (ENSEMBLE, Overlay("m", backend="python"), ("spec.model.backend", "ensemble")),
    (IO, Overlay("m", dynamic_batching=DynamicBatching()), ("spec.batching", "max_batch_size is 0", "maxBatchSize")),
    (
        OWN,
        Overlay("m", dynamic_batching=DynamicBatching(None, (4, 12))),
        ("preferred_batch_size 12", "max_batch_size 8"),
    ),
    (
        OWN + " dynamic_batching { preferred_batch_size: 6 }",
        Overlay("m", max_batch_size=4),
        ("preferred_batch_size 6", "max_batch_size 4"),
    ),
    (OWN, Overlay("m", warmup=OverlayWarmup(batch_sizes=(1, 9))), ("batchSizes has 9", "max_batch_size 8")),
    (IO, Overlay("m", warmup=OverlayWarmup(batch_sizes=(2,))), ("batchSizes has 2", "max_batch_size 0")),
    ("max_batch_size: 8", Overlay("m", warmup=OverlayWarmup()), ("spec.model.warmup has no inputs", "dataType")),
    (OWN, Overlay("m", warmup=OverlayWarmup(inputs=(OverlayInput("Z", "FP32", ()),))), ("has Z", "config.pbtxt has X")),
    (
        PAIR + 'input { name: "mask" data_type: TYPE_STRING dims: [ 3, -1 ] }',
        Overlay("m", warmup=OverlayWarmup(inputs=(OverlayInput("ids", "INT64", (128,)),))),
        (
            "names ids and leaves out mask",
            "of model m",
            "dims [3, -1]",
            "{name: mask, dataType: STRING, dims: [3, 128]}",
        ),
    ),
    (
        PAIR + 'input { name: "mask" }',
        Overlay("m", warmup=OverlayWarmup(inputs=(OverlayInput("ids", "INT64", (128,)),))),
        ("leaves out mask", "data_type not set and dims []", "{name: mask, dataType: FP32, dims: [128]}"),
    ),
    (OWN + " instance_group { kind: KIND_MODEL }", Overlay("m", instances=3), ("instancesPerGPU is 3", "KIND_MODEL")),
]


@pytest.mark.parametrize(("own", "overlay", "parts"), REFUSED)
def test_mutually_exclusive_settings_are_refused_by_name(own: str, overlay: Overlay, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConflictError) as caught:
        merge(read(own), overlay)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_refused_overlay_leaves_the_configuration_as_it_is() -> None:
    own = read(SEQUENCE)
    with pytest.raises(ConflictError):
        merge(own, Overlay("other", max_batch_size=3, dynamic_batching=DynamicBatching()))
    assert own == read(SEQUENCE)


TEXT = st.text(max_size=6)
INT32 = st.integers(-(2**31), 2**31 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Configurations with something in most kinds of field: scalars, floats, lists, maps, a scheduler."""
    config = model_config_proto.empty()
    config.name, config.backend = draw(TEXT), draw(st.sampled_from(["", "python"]))
    config.max_batch_size = draw(st.integers(0, 64))
    for name in draw(st.lists(st.sampled_from("XYZ"), unique=True)):
        config.input.add(
            name=name, data_type=draw(st.integers(1, 14)), dims=draw(st.lists(st.integers(-1, 9), max_size=3))
        )
    for key, value in draw(st.dictionaries(TEXT, TEXT, max_size=3)).items():
        config.parameters[key].string_value = value
        config.metric_tags[value] = key
    for count in draw(st.lists(INT32, max_size=2)):
        config.instance_group.add(count=count, kind=draw(st.integers(0, 3)), gpus=draw(st.lists(INT32, max_size=2)))
    scheduler = draw(st.sampled_from(["", "dynamic_batching", "sequence_batching"]))
    if scheduler == "dynamic_batching":
        config.dynamic_batching.preferred_batch_size.extend(draw(st.lists(st.integers(1, 64), max_size=2)))
        config.dynamic_batching.priority_queue_policy[draw(st.integers(0, 9))].max_queue_size = 3
    elif scheduler == "sequence_batching":
        control = config.sequence_batching.control_input.add(name=draw(TEXT)).control.add()
        control.fp32_false_true.extend(draw(st.lists(FLOAT32, max_size=2)))
        config.sequence_batching.direct.minimum_slot_utilization = draw(FLOAT32)
    buckets = config.model_metrics.metric_control.add().histogram_options.buckets
    buckets.extend(draw(st.lists(st.floats(allow_nan=False), max_size=2)))
    return config


@given(configs())
def test_a_configuration_survives_its_text(own: ModelConfig) -> None:
    assert config_pbtxt.parse(config_pbtxt.render(own)) == own


def merged_or_skip(own: ModelConfig, overlay: Overlay) -> ModelConfig:
    try:
        return merge(own, overlay)
    except ConflictError:
        assume(False)
        raise


@given(configs(), OVERLAYS)
def test_merging_again_changes_nothing(own: ModelConfig, overlay: Overlay) -> None:
    once = merged_or_skip(own, overlay)
    assert merge(once, overlay) == once
    assert merge(config_pbtxt.parse(config_pbtxt.render(once)), overlay) == once


@given(configs(), OVERLAYS)
def test_fields_absent_from_the_overlay_stay_equal_byte_for_byte(own: ModelConfig, overlay: Overlay) -> None:
    merged = merged_or_skip(own, overlay)
    overlaid: dict[str, object] = {
        "name": True,
        "max_batch_size": overlay.max_batch_size,
        "dynamic_batching": overlay.dynamic_batching,
    }
    overlaid |= {
        "instance_group": overlay.instances,
        "version_policy": overlay.version_policy,
        "backend": overlay.backend,
    }
    overlaid |= {"parameters": overlay.parameters or overlay.millicores, "model_warmup": overlay.warmup}
    overlaid |= {"response_cache": overlay.response_cache}
    before, after = model_config_proto.empty(), model_config_proto.empty()
    before.CopyFrom(own)
    after.CopyFrom(merged)
    for message in (before, after):
        for field in (name for name, value in overlaid.items() if value):
            message.ClearField(field)
    assert after.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
    assert set(changes(own, merged)) <= {name for name, value in overlaid.items() if value}


@given(configs(), st.dictionaries(TEXT, TEXT, max_size=4))
def test_parameters_of_the_overlay_win_and_no_other_is_lost(own: ModelConfig, parameters: dict[str, str]) -> None:
    before = {key: value.string_value for key, value in own.parameters.items()}
    merged = merge(own, Overlay("m", parameters=parameters)) if _fits(own) else None
    assume(merged is not None)
    assert merged is not None
    assert {key: value.string_value for key, value in merged.parameters.items()} == before | parameters


def _fits(own: ModelConfig) -> bool:
    return all(size <= own.max_batch_size for size in own.dynamic_batching.preferred_batch_size)
