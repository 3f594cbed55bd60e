"""The text of a manifest -> what is wrong with the ModelDeployments in it, by line. Pure; no cluster is needed.

The rules are those of `halcyon.api`: the CRD's own (a test holds that the API server refuses what these refuse, and nothing else), and
those that the operator holds beside it. Not here: files, and how findings are printed (`lint`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from halcyon.api.schema.crd import schema
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import API_VERSION, GROUP, KIND, VERSION
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems

_PATH = re.compile(r"\b(?:spec|metadata)(?:\.[A-Za-z0-9_]+|\[\d+\])+")
_STEP = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_TIMES = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary"}
"""What YAML reads without quotes as values that JSON, and so the API server, has none of."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or has no effect."""

    file: str
    line: int
    """From 1."""
    level: Literal["error", "warning"]
    name: str
    """Of the ModelDeployment; empty where it isn't known."""
    message: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Checked:
    """A file."""

    models: int
    """ModelDeployments in it."""
    findings: tuple[Finding, ...]


def check(text: str, file: str) -> Checked:
    """Check every ModelDeployment in YAML or JSON; documents of other kinds are passed over."""
    found: list[Finding] = []
    models = 0
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            for one in _objects(node):
                models += _is_model(one)
                found += _document(one, loader, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        found.append(Finding(file, mark.line + 1 if mark else 1, "error", "", f"not YAML: {said}"))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        found.append(Finding(file, line, "error", "", f"not YAML: {error.reason}: {error.character!r}"))
    except RecursionError:
        found.append(Finding(file, 1, "error", "", "not YAML that can be read: it is nested too deeply"))
    return Checked(models, tuple(sorted(found, key=lambda f: f.line)))


def _objects(node: Node | None) -> Iterator[MappingNode]:
    """The objects of a document: itself, or the items of a List."""
    if not isinstance(node, MappingNode):
        return
    items = _child(node, "items")
    if _scalar(node, "kind") == "List" and isinstance(items, SequenceNode):
        for item in items.value:
            yield from _objects(item)
    else:
        yield node


def _is_model(node: MappingNode) -> bool:
    ours = _scalar(node, "apiVersion").partition("/")[0] == GROUP
    return ours or _scalar(node, "kind") == KIND


def _document(node: MappingNode, loader: Any, file: str) -> Iterator[Finding]:  # PyYAML's loader is untyped
    if not _is_model(node):
        return
    meta = _child(node, "metadata")
    name = _scalar(meta, "name") if isinstance(meta, MappingNode) else ""

    def finding(line: int, message: str, level: Literal["error", "warning"] = "error") -> Finding:
        return Finding(file, line, level, name, message)

    for mark, key in _twice(node, set()):
        yield finding(mark, f"{key} is there more than once, and only the last counts; write it once")
    wrong = [*_head(node)]
    yield from (finding(line, said) for line, said in wrong)
    for scalar in _odd(node, set()):
        said = f"{scalar.value} is read as no text; quote it, for example '{scalar.value}'"
        yield finding(scalar.start_mark.line + 1, said)
        wrong.append((0, ""))
    if _child(node, "status") is not None:
        yield finding(
            _line(node, "status"), "status is written by the operator; what stands here is passed over", "warning"
        )
    if wrong:
        return
    spec = loader.construct_document(node)["spec"]
    for level, message in _spec(name, spec):
        yield finding(_place(node, message), message, level)


def _head(node: MappingNode) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) beside the spec."""
    version, kind = _scalar(node, "apiVersion"), _scalar(node, "kind")
    if version != API_VERSION:
        yield _line(node, "apiVersion"), f"apiVersion is {version or 'missing'}; it must be {API_VERSION}"
    if kind != KIND:
        yield _line(node, "kind"), f"kind is {kind or 'missing'}; {GROUP}/{VERSION} has {KIND}"
    for key, _ in node.value:
        if key.value not in _FIELDS:
            yield key.start_mark.line + 1, f"{key.value} is not a field; the fields are {', '.join(_FIELDS[:4])}"
    meta, spec = _child(node, "metadata"), _child(node, "spec")
    if not isinstance(meta, MappingNode) or not _scalar(meta, "name"):
        yield _line(node, "metadata"), "metadata.name is missing; for example metadata: {name: resnet50}"
    if not isinstance(spec, MappingNode):
        yield (
            _line(node, "spec"),
            "spec is missing, or no object; it needs a model at least, for example spec: {model: {source: ...}}",
        )


def _spec(name: str, given: Any) -> Iterator[tuple[Literal["error", "warning"], str]]:
    try:
        spec = parse(name, given)
    except SpecError as error:
        yield from (("error", _hinted(sentence)) for sentence in error.sentences)
        return
    for problem in problems(schedules(spec)):
        yield "error", f"spec.scaling.schedules: {problem.describe()}"
    for sentence in defaults.ignored(spec):
        yield "warning", f"{sentence} (the field has no effect)"
    yield from (("warning", sentence) for sentence in defaults.mismatched(spec))


def _hinted(sentence: str) -> str:
    """With the field that was meant, or those that there are, where there is none of that name."""
    where = sentence.removesuffix(" is not a field")
    parent, _, name = where.rpartition(".")
    if where == sentence or not _PATH.fullmatch(f"{parent}.x"):
        return sentence
    fields = list(_fields(parent))
    near = get_close_matches(name, fields, 1)
    return f"{sentence}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}")


def _fields(path: str) -> Iterable[str]:
    """Fields of the object at a path such as `spec.runtime.env[0]`."""
    here: Any = _schema()
    for name, index in _STEP.findall(path)[1:]:
        here = here.get("items", {}) if index else here.get("properties", {}).get(name, {})
    found: Mapping[str, Any] = here.get("properties", {})
    return found


@cache
def _schema() -> Mapping[str, Any]:
    return schema(Spec)


# Where things stand.


def _place(node: MappingNode, message: str) -> int:
    """The line of the first field that a message names, or of the nearest thing above it that is there."""
    found = _PATH.search(message)
    line = _line(node, "spec")
    here: Node = node
    for name, index in _STEP.findall(found[0]) if found else ():
        below: Node | None
        if index:
            items = here.value if isinstance(here, SequenceNode) else []
            below = items[int(index)] if int(index) < len(items) else None
            line = below.start_mark.line + 1 if below is not None else line
        else:
            below = _child(here, name)
            line = _line(here, name) if below is not None else line
        if below is None:
            break
        here = below
    return line


def _child(node: Node, name: str) -> Node | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == name:
                return value  # type: ignore[no-any-return]  # PyYAML's nodes are untyped
    return None


def _scalar(node: Node, name: str) -> str:
    found = _child(node, name)
    return str(found.value) if isinstance(found, ScalarNode) else ""


def _line(node: Node, name: str) -> int:
    """Line of a key; that of the object where it has none such."""
    if isinstance(node, MappingNode):
        for key, _ in node.value:
            if key.value == name:
                return int(key.start_mark.line) + 1
    return int(node.start_mark.line) + 1


def _twice(node: Node, known: set[int]) -> Iterator[tuple[int, str]]:
    for below in _below(node, known):
        if isinstance(below, MappingNode):
            seen = set()
            for key, _ in below.value:
                if isinstance(key, ScalarNode) and key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value if isinstance(key, ScalarNode) else None)


def _odd(node: Node, known: set[int]) -> Iterator[ScalarNode]:
    return (below for below in _below(node, known) if isinstance(below, ScalarNode) and below.tag in _TIMES)


def _below(node: Node, known: set[int]) -> Iterator[Node]:
    """A node and all below it, each once, whatever aliases there are."""
    if id(node) in known:
        return
    known.add(id(node))
    yield node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _below(key, known)
            yield from _below(value, known)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            yield from _below(value, known)
