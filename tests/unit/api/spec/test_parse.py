"""Every rule of the spec: what it accepts, what it refuses, and the sentence that it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from pydantic_core._pydantic_core import list_all_errors

from halcyon.api.schema.structural_schema import JsonSchema, schema
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from tests.strategies import documents
from tests.unit.api.spec_cases import CONCURRENCY, FIELDS, GOOD, ITEM, RULES, document

WEIGHT_BYTES = 50_000
"""Each field takes each wrong value."""


def refusal(path: str, value: Any) -> str:
    with pytest.raises(SpecError) as error:
        parse("digits", document(path, value))
    return str(error.value)


def test_the_least_spec_has_every_default() -> None:
    spec = parse("digits", document())

    assert spec == Spec.model_validate(document())
    assert (spec.replicas, spec.runtime.gpus, spec.runtime.shared_memory) == (1, 0, "256Mi")
    assert (spec.runtime.startup_timeout, spec.traffic.drain_timeout) == ("10m", "30s")
    assert defaults.queue_timeout_ms(spec) == 60_000
    assert (spec.traffic.balancer_replicas, defaults.queue_limit(spec)) == (2, 200)
    assert spec.batching is None
    assert spec.scaling is None


@pytest.mark.parametrize(("path", "value"), GOOD)
def test_values_that_the_reference_allows_are_accepted(path: str, value: Any) -> None:
    parse("digits", document(path, value))


@pytest.mark.parametrize(("path", "value", "sentence"), RULES + FIELDS)
def test_a_spec_that_breaks_a_rule_is_refused_in_one_sentence(path: str, value: Any, sentence: str) -> None:
    assert refusal(path, value) == sentence


@pytest.mark.parametrize(("spec", "sentence"), CONCURRENCY)
def test_requests_in_a_pod_fit_its_batches_and_its_queue(spec: dict[str, Any], sentence: str | None) -> None:
    fields = document() | spec
    if sentence is None:
        parse("digits", fields)
        return
    with pytest.raises(SpecError) as error:
        parse("digits", fields)
    assert str(error.value) == sentence


def test_a_target_of_no_requests_is_refused_with_an_example() -> None:
    assert refusal("scaling", {"maxReplicas": 2, "targets": {"concurrency": 0}}) == (
        "spec.scaling.targets.concurrency is 0: must be a whole number from 1 to 100000; write for example concurrency: 8"
    )


def test_a_target_for_gpus_needs_a_gpu() -> None:
    spec = document("scaling", {"maxReplicas": 2, "targets": {"gpuUtilization": 80}}) | {
        "runtime": {"gpu": {"count": 0}}
    }

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert str(error.value) == (
        "spec.scaling.targets.gpuUtilization is set but the model has no GPU to measure; set spec.runtime.gpu, for "
        "example gpu: {count: 1}, or remove the target"
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
def test_a_path_or_value_that_could_break_a_child_is_refused(path: str, value: Any) -> None:
    assert refusal(path, value).startswith("spec.")


def test_several_mistakes_are_all_named() -> None:
    spec = document("replicas", -1) | {"traffic": {"queueLimit": 0}, "x": 1}

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert [sentence.split(" ")[0] for sentence in error.value.sentences] == [
        "spec.replicas",
        "spec.traffic.queueLimit",
        "spec.x",
    ]


def test_a_wrong_value_hides_no_rule_over_other_fields() -> None:
    spec = document("replicas", "2") | {
        "scaling": {"minReplicas": 9, "maxReplicas": 4, "targets": {"gpuUtilization": 80}, "cooldownPeriod": 3},
        "traffic": {"mode": "Direct", "gateway": {}},
    }

    with pytest.raises(SpecError) as error:
        parse("Digits", spec)

    assert [sentence.partition(" is ")[0].partition(" and ")[0] for sentence in error.value.sentences] == [
        "metadata.name",
        "spec.replicas",
        "spec.scaling.cooldownPeriod",
        "spec.traffic.gateway.name",
        "spec.scaling.minReplicas",
    ]


def test_a_rule_about_a_removed_field_is_not_reported() -> None:
    spec = document("model.source", {"uri": "ftp://x", "digest": "sha256:" + "0" * 64})

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert len(error.value.sentences) == 1
    assert error.value.sentences[0].startswith('spec.model.source.uri is "ftp://x"')


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("runtime.nodeSelector", {"a": "b"}, "did you mean spec.runtime.placement.nodeSelector?"),
        ("runtime.limits", {"cpu": 1}, "did you mean spec.runtime.resources.limits?"),
        ("runtime.gpu.resource", "nvidia.com/mig-1g.10gb", "use spec.runtime.gpu.resourceName"),
        ("maxReplicas", 3, "did you mean spec.scaling.maxReplicas or spec.scaling.schedules.maxReplicas?"),
        ("traffic.image", "x", "use spec.runtime.image"),
        ("predictor", {}, "use spec.model for the model, and spec.runtime for the pod"),
        ("runtime.surgeTimout", "1m", "did you mean spec.rollout.surgeTimeout?"),
        ("traffic.drain", "1m", "use spec.traffic.drainTimeout"),
    ],
)
def test_an_unknown_field_names_the_place_of_the_right_one(path: str, value: Any, hint: str) -> None:
    assert refusal(path, value) == f"spec.{path} is not a field; {hint}"


@pytest.mark.parametrize(
    ("path", "value", "examples"),
    [
        ("batching.queuePolicy.defaultTimeout", 300, ["300ms", "300s"]),
        ("batching.queuePolicy.defaultTimeout", 5000, ["5000us", "5000ms"]),
        ("runtime.startupTimeout", 5, ["5m"]),
        ("batching.maxQueueDelay", 100, ["100us", "100ms"]),
        ("traffic.queueTimeout", 30, ["30ms", "30s"]),
        ("rollout.surgeTimeout", 300, ["300s", "300m"]),
        ("traffic.drainTimeout", 10**6, ["30s", "1m30s"]),
    ],
)
def test_durations_without_a_unit_get_examples_that_are_accepted(path: str, value: Any, examples: list[str]) -> None:
    sentence = refusal(path, value)
    assert sentence.startswith(f"spec.{path} is {value}: must be a duration between ")
    assert sentence.endswith(f", for example {' or '.join(examples)}")


def test_words_that_yaml_reads_as_booleans_are_named() -> None:
    assert refusal("traffic.accessLog", False) == (
        "spec.traffic.accessLog is false: must be None, Errors or All; YAML reads the words On and Yes as true, and Off and "
        "No as false; quote such a word"
    )


_WRONG: tuple[Any, ...] = ("x", "x y", "A" * 5000, "", 1, -1, 10**9, 1.5, True, False, [], [1], {}, {"no": 1}, None)
_ERRORS_OF_PYDANTIC = {
    part.strip()
    for kind in list_all_errors()
    for part in re.split(r"\{[^}]*\}", kind["message_template_python"])
    if len(part.strip()) >= 12
}


def _fields(schema: JsonSchema, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    for name, below in schema.get("properties", {}).items():
        yield from _fields(below, (*path, name))
    for name, key in ((0, "items"), ("k", "additionalProperties")):
        if isinstance(schema.get(key), dict):
            yield from _fields(schema[key], (*path, name))


def _at(path: tuple[str | int, ...], value: Any) -> Any:
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value


def test_no_message_has_a_text_of_pydantic() -> None:
    paths = [path for path in _fields(schema(Spec)) if "podAffinity" not in path]  # as long as podAntiAffinity
    sentences: set[str] = set()
    for path in paths:
        for value in _WRONG:
            try:
                parse("digits", document() | _at(path, value))
            except SpecError as error:
                sentences.update(error.sentences)

    assert len(sentences) > 2000
    assert {phrase for phrase in _ERRORS_OF_PYDANTIC for sentence in sentences if phrase in sentence} == set()
    assert [sentence for sentence in sentences if "Value error" in sentence or "Tuple" in sentence] == []


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
def test_a_spec_written_out_is_read_back_as_itself(spec: dict[str, Any]) -> None:
    parsed = parse("digits", spec)

    assert parse("digits", parsed.to_dict()) == parsed


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_spec_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}

    assert "spec is nested too deeply to be read" in refusal("model.parameters", value)


def test_a_quantity_as_a_number_is_the_text_with_its_digits() -> None:
    texts = {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "8589934592"}}
    numbers = {"requests": {"cpu": 2}, "limits": {"cpu": 4, "memory": 8589934592}}

    assert parse("digits", document("runtime.resources", numbers)) == parse(
        "digits", document("runtime.resources", texts)
    )


@pytest.mark.parametrize(
    ("uri", "field"),
    [
        ("pvc://models/resnet50", "spec.model.source.persistentVolumeClaim"),
        ("oci://registry.example.com/a:1", "spec.model.source.image"),
    ],
)
def test_a_storage_uri_of_kserve_names_the_field_of_its_kind(uri: str, field: str) -> None:
    spec = document() | {"model": {"source": {"uri": uri}}}

    with pytest.raises(SpecError) as error:
        parse("digits", spec)

    assert [sentence for sentence in error.value.sentences if f"use {field}, for example" in sentence]


def test_a_spread_needs_no_label_selector() -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}

    assert refusal("runtime.placement", {"topologySpreadConstraints": [spread]}) == (
        "spec.runtime.placement.topologySpreadConstraints[0].labelSelector is not a field; use no selector: Halcyon "
        "selects the model's server pods"
    )
