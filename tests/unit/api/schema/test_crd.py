"""The CRD as generated: its golden file, and the rules of structural schemas as assertions."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import kubernetes_validate
import pytest
from pydantic import BaseModel, Field

from generators import crd
from generators.field_descriptions import described_schema, docstrings
from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.schema import structural_schema
from halcyon.api.schema.structural_schema import SchemaError
from halcyon.api.spec import Spec
from halcyon.api.status import Status
from halcyon.api.types import ApiModel, Rule
from tests.yaml_text import loaded

GOLDEN = Path(__file__).parents[4] / "crds" / "modeldeployments.serving.halcyon.dev.yaml"
CRD = crd.build()
VERSION = CRD["spec"]["versions"][0]
ROOT = VERSION["schema"]["openAPIV3Schema"]
FORBIDDEN = {
    "$ref", "definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties", "readOnly",
    "writeOnly", "xml", "uniqueItems", "title", "nullable", "const", "anyOf", "oneOf", "allOf", "not", "prefixItems",
    "propertyNames", "examples", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
SCALES = {"string": ("minLength", "maxLength"), "integer": ("minimum", "maximum")}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in this one, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


SPEC = list(nodes(ROOT["properties"]["spec"], "spec"))
STATUS = list(nodes(ROOT["properties"]["status"], "status"))
EVERYWHERE = list(nodes(ROOT))


def valid(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value that the schema gives as a default is allowed by it: no field too many, no bound broken."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if type(value) is not kinds[schema.get("type", "string")] or ("enum" in schema and value not in schema["enum"]):
        return False
    if isinstance(value, dict):
        fields = schema.get("properties", {})
        return set(schema.get("required", ())) <= set(value) <= set(fields) and all(
            valid(fields[k], v) for k, v in value.items()
        )
    if isinstance(value, str):
        return bool(re.search(schema.get("pattern", ""), value)) and (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        )
    return not isinstance(value, int) or (schema.get("minimum", value) <= value <= schema.get("maximum", value))


def test_the_file_under_crds_equals_the_models() -> None:
    assert GOLDEN.read_text() == crd.to_yaml(), "run `make crds`"


def test_the_file_holds_the_definition_and_nothing_else() -> None:
    assert loaded(GOLDEN.read_text()) == CRD


def test_the_definition_keeps_to_the_schema_of_definitions() -> None:
    kubernetes_validate.validate(CRD, "1.35", strict=True)


def test_a_schema_is_structural() -> None:
    for path, schema in EVERYWHERE:
        types = {"object", "array", "string", "integer", "boolean"}
        assert schema.get("type") in ({None} if schema.get("x-kubernetes-int-or-string") else types), path
        assert not FORBIDDEN & set(schema), path
        assert schema.get("additionalProperties") is not False, path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_strings_lists_and_maps_are_bounded() -> None:
    for path, schema in [*SPEC, *STATUS]:
        if schema.get("type", "string") == "string" and "enum" not in schema:
            assert schema["maxLength"] <= 4096, path
        if schema.get("type") == "array":
            assert schema["maxItems"] <= 64, path
        if "additionalProperties" in schema:
            assert schema["maxProperties"] <= 64, path
            assert "matches" in schema["x-kubernetes-validations"][0]["rule"], path


def defaulted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what the API server stores for `{}`."""
    fields = {name: field["default"] for name, field in schema.get("properties", {}).items() if "default" in field}
    return {name: value or defaulted(schema["properties"][name]) for name, value in fields.items()}


SAME_AS_ABSENT = {
    *("runtime.resources.requests", "runtime.resources.limits", "runtime.server"),
    *("runtime.placement.affinity", "runtime.placement.affinity.nodeAffinity"),
    *("runtime.placement.affinity.podAffinity", "runtime.placement.affinity.podAntiAffinity"),
    *("scaling.behavior", "scaling.behavior.scaleUp", "scaling.behavior.scaleDown"),
    *("rollout.canary",),
}
"""Objects without a field mean nothing else than their absence."""
NEVER_EMPTY = {
    *("model.source", "model.source.credentials", "model.source.credentials.identity", "model.versions"),
    *("runtime.env[].valueFrom",),
}
"""A rule rejects the object without a field."""


def test_an_object_that_means_something_if_empty_is_applied_as_a_whole() -> None:
    """A server-side apply of `{}` after `{field: value}` removes the object, unless it is atomic (decision 0088)."""
    atomic = tuple(f"{path}." for path, schema in SPEC if schema.get("x-kubernetes-map-type") == "atomic")
    emptied = {
        path.removeprefix("spec.")
        for path, schema in SPEC
        if "properties" in schema
        and not schema.get("required")
        and not f"{path}.".startswith(atomic)
        and not path.endswith("[]")
        and schema.get("default") != defaulted(schema)
    }
    assert emptied - {"spec"} == SAME_AS_ABSENT | NEVER_EMPTY


def test_numbers_of_the_spec_are_bounded() -> None:
    for path, schema in SPEC:
        if schema.get("type") == "integer":
            assert schema["minimum"] <= schema["maximum"], path


def test_every_field_is_described_in_a_sentence() -> None:
    for path, schema in [*SPEC, *STATUS]:
        if path.endswith(("[]", "{}")) and schema.get("type") != "object":
            continue
        assert schema["description"].endswith("."), path
        assert "\n" not in schema["description"]


def models(hint: Any) -> Iterator[type[BaseModel]]:
    """Every model in this type, itself and those of its fields."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
        for info in hint.model_fields.values():
            yield from models(info.annotation)
    else:
        for part in get_args(hint):
            yield from models(part)


@pytest.mark.parametrize("model", dict.fromkeys((*models(Spec), *models(Status))), ids=lambda model: model.__name__)
def test_a_field_has_its_own_description_not_its_types(model: type[BaseModel]) -> None:
    described = described_schema(model)["properties"]
    texts = {name: text for owner in reversed(model.__mro__[:-2]) for name, text in docstrings(owner).items()}
    for name, info in model.model_fields.items():
        assert described[info.alias or name]["description"] == texts[name]


def test_the_operator_keeps_no_descriptions_of_fields_in_memory() -> None:
    kinds = dict.fromkeys((*models(Spec), *models(Status), *models(SitePolicy), *models(BatchInferenceSpec)))
    for kind in kinds:
        assert not any(info.description for info in kind.model_fields.values()), kind
        assert "description" not in structural_schema.schema(kind)


def test_only_models_that_are_validated_have_validators() -> None:
    code = (
        "from halcyon.api import batch_inference, spec, status; from halcyon.api.spec.runtime import EnvVar\n"
        "from halcyon.api.policy.downloads import SiteDownloads; from halcyon.api.policy.site_policy import SitePolicy\n"
        "kinds = spec.Spec, EnvVar, status.Status, status.ConditionStatus, batch_inference.BatchInferenceSpec\n"
        "kinds += spec.Runtime, spec.Traffic, spec.Rollout, SiteDownloads, SitePolicy\n"
        "print(*(kind.__name__ for kind in kinds if kind.__pydantic_complete__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Spec"]


def test_keys_of_list_maps_are_always_there() -> None:
    for path, schema in [*SPEC, *STATUS]:
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            item = schema["items"]
            assert key in item["required"] or "default" in item["properties"][key], path
            assert item["properties"][key]["type"] in {"string", "integer", "boolean"}, path
        if "x-kubernetes-list-map-keys" in schema:
            assert schema["x-kubernetes-list-type"] == "map"


def test_a_default_is_valid_and_has_no_null() -> None:
    for path, schema in EVERYWHERE:
        if "default" in schema:
            assert valid(schema, schema["default"]), path


def test_items_of_lists_in_the_spec_have_no_default() -> None:
    """Argo CD compares lists as a whole: an added default would be a difference after every sync."""
    assert [path for path, schema in SPEC if "[]" in path and "default" in schema] == []


def test_a_required_field_exists_and_has_no_default() -> None:
    for path, schema in EVERYWHERE:
        for name in schema.get("required", ()):
            assert "default" not in schema["properties"][name], path


def test_a_rule_names_the_mistake() -> None:
    for path, schema in EVERYWHERE:
        for rule in schema.get("x-kubernetes-validations", ()):
            assert rule["reason"] == "FieldValueInvalid", path
            assert 10 < len(rule["message"]) < 2048, path
            assert "\n" not in rule["rule"] + rule["message"], path


def test_replicas_have_a_default_so_that_scale_can_always_be_read() -> None:
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert ROOT["properties"]["spec"]["properties"]["replicas"]["default"] == 1
    assert VERSION["subresources"]["status"] == {}


def test_every_column_shows_a_field_that_exists() -> None:
    for column in VERSION["additionalPrinterColumns"]:
        schema = ROOT
        # One item of a list: by number, or by what it is.
        _, *path = re.sub(r"\[[^]]*]", ".items", column["jsonPath"]).split(".")
        if path[0] != "metadata":
            for name in path:
                schema = schema["items"] if name == "items" else schema["properties"][name]
            shown = "date" if schema.get("format") == "date-time" else schema["type"]
            assert shown == column["type"]


@pytest.mark.parametrize("model", [Spec, Status])
def test_the_schema_of_a_model_is_made_afresh_each_time(model: type[BaseModel]) -> None:
    assert structural_schema.schema(model) == structural_schema.schema(model)


class _Mixed(ApiModel):
    either: int | str


class _Half(ApiModel):
    ratio: Annotated[float, Field(ge=0)]


class _Pair(ApiModel):
    pair: tuple[int, str]


class _Odd(ApiModel):
    odd: Annotated[int, Field(multiple_of=2)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_Mixed, "_Mixed.either: a union of"),
        (_Half, "_Half.ratio: .* is not structural"),
        (_Pair, "_Pair.pair: only homogeneous tuples"),
        (_Odd, "_Odd.odd: .* cannot be expressed in a structural schema"),
    ],
)
def test_a_schema_that_cannot_be_structural_is_an_error(model: type[ApiModel], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        structural_schema.schema(model)


@pytest.mark.parametrize("plural", ["modeldeployments", "batchinferences"])
def test_a_default_of_the_schema_is_in_its_description(plural: str) -> None:
    stored = loaded(GOLDEN.with_name(f"{plural}.serving.halcyon.dev.yaml").read_text())
    spec = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    simple = [(path, schema) for path, schema in nodes(spec) if not isinstance(schema.get("default", {}), dict | list)]
    absent = [
        path
        for path, schema in simple
        if not re.search(
            rf"Default: (\S+ )*?{re.escape(str(schema['default']))}\b", schema.get("description", ""), re.IGNORECASE
        )
    ]
    assert len(simple) >= 5
    assert absent == []


class _Ruled(ApiModel):
    """A model with a rule."""

    low: int = 1
    high: int = 2
    rules: ClassVar = (
        Rule(cel="self.low <= self.high", check=lambda m: m.low <= m.high, message="low is {low}, above high {high}"),
    )


def test_a_rule_is_written_with_its_values_and_without() -> None:
    assert structural_schema.schema(_Ruled)["x-kubernetes-validations"] == [
        {
            "rule": "self.low <= self.high",
            "messageExpression": "'low is %s, above high %s'.format([self.low, self.high])",
            "message": "low is <low>, above high <high>",
            "reason": "FieldValueInvalid",
        }
    ]
    with pytest.raises(ValueError, match="low is 3, above high 2"):
        _Ruled(low=3)
