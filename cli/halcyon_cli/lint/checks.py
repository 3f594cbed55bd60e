"""Validation of the ModelDeployments in a manifest, with line numbers. Pure; needs no cluster.

The rules are those of `halcyon.api`: the CRD's schema and the operator's own checks. A test verifies that the API
server rejects exactly the same objects as the schema. Out of scope: files and output (`commands.lint`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from halcyon.api.policy import triton_images
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import API_VERSION, GROUP, KIND, VERSION
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems

_PATH = re.compile(r"\b(?:spec|metadata)(?:\.[A-Za-z0-9_]+|\[\d+\])+")
_STEP = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_NON_JSON_TAGS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary"}
"""YAML types of unquoted values that don't exist in JSON, and so not in the API server."""


@dataclass(frozen=True)
class Finding:
    """An error in a manifest, or a warning about a field without effect."""

    file: str
    line: int
    """Line number, from 1."""
    level: Literal["error", "warning"]
    name: str
    """Name of the ModelDeployment; empty if unknown."""
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class FileResult:
    """The findings in one file."""

    models: int
    """Number of ModelDeployments in the file."""
    findings: tuple[Finding, ...]


def check(text: str, file: str) -> FileResult:
    """Validate every ModelDeployment in YAML or JSON text; other kinds are skipped."""
    findings: list[Finding] = []
    models = 0
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            for resource in _resources(node):
                models += _is_model_deployment(resource)
                findings += _document(resource, loader, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        findings.append(Finding(file, mark.line + 1 if mark else 1, "error", "", f"invalid YAML: {reason}"))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        findings.append(Finding(file, line, "error", "", f"invalid YAML: {error.reason}: {error.character!r}"))
    except RecursionError:
        findings.append(Finding(file, 1, "error", "", "invalid YAML: nested too deeply"))
    return FileResult(models, tuple(sorted(findings, key=lambda f: f.line)))


def _resources(node: Node | None) -> Iterator[MappingNode]:
    """Yield the objects of a YAML document: the object itself, or the items of a List."""
    if not isinstance(node, MappingNode):
        return
    items = _child(node, "items")
    if _scalar(node, "kind") == "List" and isinstance(items, SequenceNode):
        for item in items.value:
            yield from _resources(item)
    else:
        yield node


def _is_model_deployment(node: MappingNode) -> bool:
    is_our_group = _scalar(node, "apiVersion").partition("/")[0] == GROUP
    return is_our_group or _scalar(node, "kind") == KIND


def _document(node: MappingNode, loader: Any, file: str) -> Iterator[Finding]:  # PyYAML's loader is untyped
    if not _is_model_deployment(node):
        return
    meta = _child(node, "metadata")
    name = _scalar(meta, "name") if isinstance(meta, MappingNode) else ""

    def finding(line: int, message: str, level: Literal["error", "warning"] = "error") -> Finding:
        return Finding(file, line, level, name, message)

    for line, key in _duplicate_keys(node, set()):
        yield finding(line, f"duplicate field {key}: only the last one counts")
    errors = [*_metadata_errors(node)]
    yield from (finding(line, message) for line, message in errors)
    for scalar in _non_json_scalars(node, set()):
        message = f"{scalar.value} is not a string in YAML; quote it, for example '{scalar.value}'"
        yield finding(scalar.start_mark.line + 1, message)
        errors.append((0, ""))
    if _child(node, "status") is not None:
        yield finding(_line(node, "status"), "status is written by the operator; this one is ignored", "warning")
    if errors:
        return
    spec = loader.construct_document(node)["spec"]
    for level, message in _spec(name, spec):
        yield finding(_line_of_field(node, message), message, level)


def _metadata_errors(node: MappingNode) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for errors outside of `spec`."""
    version, kind = _scalar(node, "apiVersion"), _scalar(node, "kind")
    if version != API_VERSION:
        yield _line(node, "apiVersion"), f"apiVersion is {version or 'missing'}; it must be {API_VERSION}"
    if kind != KIND:
        yield _line(node, "kind"), f"kind is {kind or 'missing'}; it must be {KIND} for {GROUP}/{VERSION}"
    for key, _ in node.value:
        if key.value not in _FIELDS:
            yield key.start_mark.line + 1, f"{key.value} is not a field; the fields are {', '.join(_FIELDS[:4])}"
    meta, spec = _child(node, "metadata"), _child(node, "spec")
    if not isinstance(meta, MappingNode) or not _scalar(meta, "name"):
        yield _line(node, "metadata"), "metadata.name is missing; for example metadata: {name: resnet50}"
    if not isinstance(spec, MappingNode):
        yield (
            _line(node, "spec"),
            "spec is missing or not an object; it needs at least a model, for example spec: {model: {source: ...}}",
        )


def _spec(name: str, spec_fields: Any) -> Iterator[tuple[Literal["error", "warning"], str]]:
    try:
        spec = parse(name, spec_fields)
    except SpecError as error:
        yield from (("error", sentence) for sentence in error.sentences)
        return
    for problem in problems(schedules(spec)):
        yield "error", f"spec.scaling.schedules: {problem.describe()}"
    for sentence in defaults.ignored(spec):
        yield "warning", f"{sentence} (the field has no effect)"
    yield from (("warning", sentence) for sentence in (*defaults.mismatched(spec), *defaults.risky(spec)))
    yield from (("warning", sentence) for sentence in _unmeasured_gpu(spec))
    # Without an image in the spec, the site's default applies, which is not known here.
    image = spec.runtime.image or ""
    yield from (("warning", said) for said in (*triton_images.mismatches(spec, image), *triton_images.outdated(image)))


def _unmeasured_gpu(spec: Spec) -> Iterator[str]:
    """Yield a sentence if the target for GPU utilisation is set, but no gauge covers one slice or share of a GPU."""
    resource = (spec.runtime.gpu and spec.runtime.gpu.resource) or ""
    if spec.scaling is None or spec.scaling.targets.gpu_utilization is None:
        return
    head, advice = "spec.scaling.targets.gpuUtilization", "set targets.latency instead, for example latency: 100ms"
    if "/mig-" in resource:
        yield f"{head}: Triton reports no utilization of MIG slices ({resource}); it comes from the site's Prometheus or is derived from batch times; {advice}"
    elif resource.endswith(".shared"):
        yield f"{head}: utilization covers the whole GPU behind {resource}, with all pods that share it; {advice}"


# Line numbers.


def _line_of_field(node: MappingNode, message: str) -> int:
    """Return the line of the first field named in a message, or of its nearest ancestor that the file contains."""
    path_match = _PATH.search(message)
    line = _line(node, "spec")
    current: Node = node
    for name, index in _STEP.findall(path_match[0]) if path_match else ():
        child: Node | None
        if index:
            items = current.value if isinstance(current, SequenceNode) else []
            child = items[int(index)] if int(index) < len(items) else None
            line = child.start_mark.line + 1 if child is not None else line
        else:
            child = _child(current, name)
            line = _line(current, name) if child is not None else line
        if child is None:
            break
        current = child
    return line


def _child(node: Node, name: str) -> Node | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == name:
                return value  # type: ignore[no-any-return]  # PyYAML's nodes are untyped
    return None


def _scalar(node: Node, name: str) -> str:
    child = _child(node, name)
    return str(child.value) if isinstance(child, ScalarNode) else ""


def _line(node: Node, name: str) -> int:
    """Return the line of a key, or of the object that should contain it."""
    if isinstance(node, MappingNode):
        for key, _ in node.value:
            if key.value == name:
                return int(key.start_mark.line) + 1
    return int(node.start_mark.line) + 1


def _duplicate_keys(node: Node, visited: set[int]) -> Iterator[tuple[int, str]]:
    for current in _descendants(node, visited):
        if isinstance(current, MappingNode):
            seen = set()
            for key, _ in current.value:
                if isinstance(key, ScalarNode) and key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value if isinstance(key, ScalarNode) else None)


def _non_json_scalars(node: Node, visited: set[int]) -> Iterator[ScalarNode]:
    return (
        current
        for current in _descendants(node, visited)
        if isinstance(current, ScalarNode) and current.tag in _NON_JSON_TAGS
    )


def _descendants(node: Node, visited: set[int]) -> Iterator[Node]:
    """Yield a node and its descendants, each of them once, even if aliases refer to it repeatedly."""
    if id(node) in visited:
        return
    visited.add(id(node))
    yield node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _descendants(key, visited)
            yield from _descendants(value, visited)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            yield from _descendants(value, visited)
