"""Validation of the ModelDeployments in a manifest, with line numbers. Pure; needs no cluster.

The rules are those of `halcyon.api`: the CRD's schema and the operator's own checks. A test verifies that the API
server rejects exactly the same objects as the schema. Out of scope: files and output (`commands.lint`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from halcyon.api.policy import triton_images
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse, parse_batch
from halcyon.api.types import API_VERSION, BATCH_KIND, GROUP, KIND, VERSION
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems
from halcyon_cli.lint.model_configs import ConfigMapFile, config_maps
from halcyon_cli.lint.model_configs import problems as problems_of_configs
from halcyon_cli.lint.risky_values import risks
from halcyon_cli.lint.rules import RULES, Level
from halcyon_cli.lint.yaml_nodes import NON_JSON_TAGS, duplicate_keys, enclosed_alias, non_json_scalars, pairs
from halcyon_cli.manifest_loader import ManifestLoader

_PATH = re.compile(r"\b(?:spec|metadata)(?:\.[A-Za-z0-9_]+|\[\d+\])+")
_STEP = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_Path = tuple[int | str, ...]
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_ANY_NAME = "model"
"""Valid name with which an object without a name is checked."""
_VALID_SPEC = {"model": {"source": {"uri": "s3://models/model"}}}
"""Valid spec into which single parts of an invalid spec are inserted to check them."""
_STRING, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
"""YAML types of a string and of an empty value."""


@dataclass(frozen=True)
class Finding:
    """Error in a manifest, or a warning."""

    file: str
    line: int
    """Number of the line, counted from 1."""
    rule: str
    """ID of the violated rule, one of `lint.rules`."""
    name: str
    """Name of the object; empty if unknown."""
    message: str

    @property
    def level(self) -> Level:
        """Level of the rule that is violated."""
        return RULES[self.rule].level

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the finding."""
        return {"file": self.file, "line": self.line, "level": self.level, "rule": self.rule} | {
            "name": self.name,
            "message": self.message,
        }


@dataclass(frozen=True)
class FileResult:
    """Findings in one file."""

    models: int
    """Number of ModelDeployments in the file."""
    batches: int
    """Number of BatchInferences in the file."""
    findings: tuple[Finding, ...]


def check(text: str, file: str, maps: Sequence[ConfigMapFile] | None = None) -> FileResult:
    """Validate every ModelDeployment and BatchInference in YAML or JSON text; other kinds are skipped.

    `maps` are the ConfigMaps whose config.pbtxt is checked; by default, those in the same text.
    """
    maps = config_maps([text]) if maps is None else maps
    findings: list[Finding] = []
    first_lines: dict[tuple[str, str, str], int] = {}
    models = batches = 0
    try:
        loader = ManifestLoader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None and (enclosed := enclosed_alias(node, set(), set())) is not None:
                message = "invalid YAML: an alias refers to an object that contains it"
                findings.append(Finding(file, enclosed.start_mark.line + 1, "invalid-yaml", "", message))
                continue
            for resource in _resources(node):
                is_batch = _is_ours(resource) and _scalar(resource, "kind") == BATCH_KIND
                batches += is_batch
                models += _is_ours(resource) and not is_batch
                findings += [*_document(resource, loader, file, maps), *_duplicate(resource, file, first_lines)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        if reason.startswith("found undefined alias"):
            reason += "; an anchor (&) counts only in its own document, up to the next ---"
        elif "{{" in text:
            reason += "; if it is a template of Helm: helm template CHART | halcyon lint -f -"
        findings.append(Finding(file, mark.line + 1 if mark else 1, "invalid-yaml", "", f"invalid YAML: {reason}"))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        findings.append(Finding(file, line, "invalid-yaml", "", f"invalid YAML: {error.reason}: {error.character!r}"))
    except RecursionError:
        findings.append(Finding(file, 1, "invalid-yaml", "", "invalid YAML: nested too deeply"))
    return FileResult(models, batches, tuple(sorted(findings, key=lambda f: f.line)))


def _resources(node: Node | None) -> Iterator[MappingNode]:
    """Yield the objects in a YAML document: the object itself, or the items of a List."""
    if not isinstance(node, MappingNode):
        return
    items = _child(node, "items")
    if _scalar(node, "kind").endswith("List") and isinstance(items, SequenceNode):
        for item in items.value:
            yield from _resources(item)
    else:
        yield node


def _duplicate(node: MappingNode, file: str, first_lines: dict[tuple[str, str, str], int]) -> Iterator[Finding]:
    """Yield a finding if the object is already in the file. `first_lines` has the objects' lines, by kind and name."""
    meta = _child(node, "metadata")
    if not _is_ours(node) or not isinstance(meta, MappingNode) or not (name := _scalar(meta, "name")):
        return
    line, kind, namespace = node.start_mark.line + 1, _scalar(node, "kind"), _scalar(meta, "namespace")
    if (first := first_lines.setdefault((kind, namespace, name), line)) != line:
        message = (
            f"this {kind} is in line {first}, too, and kubectl apply keeps only the last one; give it another name"
        )
        yield Finding(file, line, "duplicate-object", name, message)


def _is_ours(node: MappingNode) -> bool:
    is_our_group = _scalar(node, "apiVersion").partition("/")[0] == GROUP
    return is_our_group or _scalar(node, "kind") == KIND


def _document(
    node: MappingNode,
    loader: Any,  # PyYAML's loader is untyped
    file: str,
    maps: Sequence[ConfigMapFile],
) -> Iterator[Finding]:
    if not _is_ours(node):
        return
    meta = _child(node, "metadata")
    name = _scalar(meta, "name") if isinstance(meta, MappingNode) else ""

    def finding(line: int, rule: str, message: str) -> Finding:
        return Finding(file, line, rule, name, message)

    for line, key in duplicate_keys(node, set()):
        yield finding(line, "duplicate-field", f"duplicate field {key}: only the last one counts")
    for line, rule, message in _metadata_errors(node):
        yield finding(line, rule, message)
    unquoted = list(non_json_scalars(node, set()))
    for scalar in unquoted:
        message = f"{scalar.value} is not a string in YAML; quote it, for example '{scalar.value}'"
        yield finding(scalar.start_mark.line + 1, "unquoted-value", message)
        scalar.tag = _STRING  # so that the other fields can be checked
    if _child(node, "status") is not None:
        text = "status is written by the operator; this one is ignored"
        yield finding(_line(node, "status"), "ignored-status", text)
    spec = _child(node, "spec")
    if not isinstance(spec, MappingNode):
        yield finding(
            _line(node, "spec"),
            "missing-field",
            "spec is missing or not an object; it needs at least a model, for example spec: {model: {source: ...}}",
        )
        return
    for rule, message, path in _spec_problems(node, loader, name, maps):
        line = _line_of_field(node, path or _path_in(message))
        if rule != "invalid-value" or line not in {scalar.start_mark.line + 1 for scalar in unquoted}:
            yield finding(line, rule, message)


def _spec_problems(
    node: MappingNode,
    loader: Any,  # PyYAML's loader is untyped
    name: str,
    maps: Sequence[ConfigMapFile],
) -> Iterator[tuple[str, str, _Path]]:
    """Yield (rule, message, path of the field) for errors and warnings in the `spec` of an object.

    The path is empty if the message begins with it.
    """
    meta = _child(node, "metadata")
    namespace = _scalar(meta, "namespace") if isinstance(meta, MappingNode) else ""
    try:
        constructed = loader.construct_document(_child(node, "spec"))
        json.dumps(constructed)
    except (TypeError, ValueError) as error:  # YAML has types that JSON lacks, for example sets
        yield "invalid-value", f"a value in spec is not valid JSON: {error}", ("spec",)
        return
    is_batch = _scalar(node, "kind") == BATCH_KIND
    try:
        if is_batch:
            parse_batch(constructed, name or _ANY_NAME)
        else:
            spec = parse(name or _ANY_NAME, constructed)
    except SpecError as error:
        yield from ((violation.kind, violation.text, violation.field) for violation in error.violations)
        valid_schedules = None if is_batch else _only_schedules(constructed)
        yield from ((rule, message, ()) for rule, message in _schedules(valid_schedules))
        return
    if not is_batch:
        problems = _model_problems(spec, namespace, name or _ANY_NAME, maps)
        yield from ((rule, message, ()) for rule, message in problems)


def _metadata_errors(node: MappingNode) -> Iterator[tuple[int, str, str]]:
    """Yield (line, rule, message) for errors outside of `spec`."""
    version, kind = _scalar(node, "apiVersion"), _scalar(node, "kind")
    if version != API_VERSION:
        yield (
            _line(node, "apiVersion"),
            "api-version",
            f"apiVersion is {version or 'missing'}; it must be {API_VERSION}",
        )
    if kind not in {KIND, BATCH_KIND}:
        message = f"kind is {kind or 'missing'}; it must be {KIND} or {BATCH_KIND} for {GROUP}/{VERSION}"
        yield _line(node, "kind"), "kind", message
    for key, _ in pairs(node):
        if key.value not in _FIELDS:
            message = f"{key.value} is not a field; {_hint_of_root(key.value)}"
            yield key.start_mark.line + 1, "unknown-field", message
    meta = _child(node, "metadata")
    if not isinstance(meta, MappingNode) or not _scalar(meta, "name"):
        message = "metadata.name is missing; for example metadata: {name: resnet50}"
        yield _line(node, "metadata"), "missing-field", message
    if isinstance(meta, MappingNode):
        yield from _metadata_types(meta)


def _metadata_types(meta: MappingNode) -> Iterator[tuple[int, str, str]]:
    """Yield (line, rule, message) for the fields of `metadata` that the API server accepts only as strings."""
    for field, example in (("name", "resnet50"), ("namespace", "team-a")):
        text = _child(meta, field)
        if text is not None and text.tag not in {_STRING, _NULL, *NON_JSON_TAGS}:
            message = f"metadata.{field} is {_value_text(text)}; it must be a string, for example {field}: {example}"
            yield text.start_mark.line + 1, "invalid-value", message
    for field in ("labels", "annotations"):
        values = _child(meta, field)
        if values is None or values.tag == _NULL:
            continue
        if not isinstance(values, MappingNode):
            message = f"metadata.{field} is {_value_text(values)}; it must be an object, for example {field}: {{team: vision}}"
            yield values.start_mark.line + 1, "invalid-value", message
            continue
        for key, value in pairs(values):
            # `non_json_scalars` reports dates.
            if value.tag not in {_STRING, _NULL, *NON_JSON_TAGS}:
                example = f"'{value.value}'" if isinstance(value, ScalarNode) else "'true'"
                message = f"metadata.{field}: {key.value} is {_value_text(value)}, and not a string; quote it, for example {example}"
                yield value.start_mark.line + 1, "unquoted-value", message


def _value_text(node: Node) -> str:
    return (
        str(node.value) if isinstance(node, ScalarNode) else "a list" if isinstance(node, SequenceNode) else "an object"
    )


def _hint_of_root(name: str) -> str:
    if not get_close_matches(str(name), _FIELDS, 1) and str(name) in Spec.model_fields:
        return f"did you mean spec.{name}?"
    return f"the fields are {', '.join(_FIELDS[:4])}"


def _model_problems(spec: Spec, namespace: str, name: str, maps: Sequence[ConfigMapFile]) -> Iterator[tuple[str, str]]:
    """Yield (rule, message) for errors and warnings in a spec that breaks no rule."""
    yield from _schedules(spec)
    yield from problems_of_configs(spec, namespace=namespace, name=name, maps=maps)
    for sentence in defaults.ignored(spec):
        yield "ignored-field", f"{sentence} (the field has no effect)"
    yield from (("mismatched-timeouts", sentence) for sentence in defaults.mismatched(spec))
    yield from (("risky-value", sentence) for sentence in risks(spec))
    yield from (("unmeasured-gpu", sentence) for sentence in _unmeasured_gpu(spec))
    # Without an image in the spec, the site's default applies, which is not known here.
    image = spec.runtime.image or ""
    yield from (("image-mismatch", sentence) for sentence in triton_images.mismatches(spec, image))
    yield from (("outdated-image", sentence) for sentence in triton_images.outdated(image))


def _schedules(spec: Spec | None) -> Iterator[tuple[str, str]]:
    for problem in problems(schedules(spec)) if spec is not None else ():
        yield "invalid-schedule", f"spec.scaling.schedules: {problem.describe()}"


def _only_schedules(spec_fields: Any) -> Spec | None:
    """Return a valid spec with the schedules of an invalid spec, so that the schedules can be checked.

    The result is None if there are no schedules, or if they are invalid.
    """
    scaling = spec_fields.get("scaling") if isinstance(spec_fields, dict) else None
    entries = scaling.get("schedules") if isinstance(scaling, dict) else None
    try:
        return (
            parse(_ANY_NAME, _VALID_SPEC | {"scaling": {"maxReplicas": 1000, "schedules": entries}})
            if entries
            else None
        )
    except SpecError:
        return None


def _unmeasured_gpu(spec: Spec) -> Iterator[str]:
    """Yield a warning if a GPU utilisation target is set, but Triton can't measure the GPU's slice or share."""
    resource = (spec.runtime.gpu and spec.runtime.gpu.resource) or ""
    if spec.scaling is None or spec.scaling.targets.gpu_utilization is None:
        return
    head, advice = "spec.scaling.targets.gpuUtilization", "set targets.latency instead, for example latency: 100ms"
    if "/mig-" in resource:
        yield f"{head}: Triton reports no utilization of MIG slices ({resource}); it comes from the site's Prometheus or is derived from batch times; {advice}"
    elif resource.endswith(".shared"):
        yield f"{head}: utilization covers the whole GPU behind {resource}, with all pods that share it; {advice}"


# Line numbers.


def _path_in(message: str) -> _Path:
    """Return the path of the first field named in a message."""
    match = _PATH.search(message)
    return tuple(int(index) if index else name for name, index in _STEP.findall(match[0])) if match else ("spec",)


def _line_of_field(node: MappingNode, path: _Path) -> int:
    """Return the line of the field at a path, or of its nearest ancestor that the file contains."""
    line = _line(node, "spec")
    current: Node = node
    for step in path:
        child: Node | None
        if isinstance(step, int):
            items = current.value if isinstance(current, SequenceNode) else []
            child = items[step] if step < len(items) else None
            line = child.start_mark.line + 1 if child is not None else line
        else:
            child = _child(current, step)
            line = _line(current, step) if child is not None else line
        if child is None:
            break
        current = child
    return line


def _child(node: Node, name: str) -> Node | None:
    if isinstance(node, MappingNode):
        for key, value in pairs(node):
            if key.value == name:
                return value
    return None


def _scalar(node: Node, name: str) -> str:
    child = _child(node, name)
    return str(child.value) if isinstance(child, ScalarNode) and child.tag != _NULL else ""


def _line(node: Node, name: str) -> int:
    """Return the line of a key, or of the object that should contain it."""
    if isinstance(node, MappingNode):
        for key, _ in node.value:
            if key.value == name:
                return int(key.start_mark.line) + 1
    return int(node.start_mark.line) + 1
