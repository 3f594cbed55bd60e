"""Versions of the code that a result was measured on: digests of the operator's modules and of the CRD.

Words don't count: comments, docstrings and the CRD's descriptions are left out. A module counts if the operator process imports it, at
the start or later.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "operator"
_ENTRY = "halcyon.control.runtime.app"
_CRD = "crds/modeldeployments.serving.halcyon.dev.yaml"
MOST_CHANGED = 0.05
"""Share of modules that may have changed for an earlier result to count."""


@dataclass(frozen=True)
class Code:
    """One version of the code."""

    modules: Mapping[str, str]
    """Digest of each module of the operator, by name."""
    schema: str
    """Digest of the CRD's schema."""
    commit: str
    """Commit that was checked out when it was tested first."""
    since: str
    """Time of that in UTC, such as `2026-11-29T16:00:00Z`."""

    @cached_property
    def digest(self) -> str:
        """Return the name of this version."""
        return _digest(json.dumps([sorted(self.modules.items()), self.schema]))

    def changed(self, other: Code) -> float:
        """Return the share of modules that differ from another version, from 0 to 1. Moved modules differ twice."""
        names = self.modules.keys() | other.modules.keys()
        return sum(self.modules.get(name) != other.modules.get(name) for name in names) / len(names)

    def is_close_to(self, other: Code) -> bool:
        """Return whether results of the other version count for this one."""
        return self.schema == other.schema and self.changed(other) <= MOST_CHANGED


def present(commit: str, now: str) -> Code:
    """Return the version in the working tree."""
    modules, schema = _present()
    return Code(modules, schema, commit, now)


@cache
def _present() -> tuple[dict[str, str], str]:
    import yaml  # noqa: PLC0415  # the parents of operators don't need it

    crd = yaml.safe_load((ROOT / _CRD).read_text())
    return modules_of(SOURCE, _ENTRY), _digest(json.dumps(without_words(crd), sort_keys=True))


def modules_of(source: Path, entry: str) -> dict[str, str]:
    """Return the digest of each module that a module needs, by name, without words."""
    digests: dict[str, str] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        file = _file(source, name)
        if name in digests or file is None:
            continue
        tree = ast.parse(file.read_text())
        pending += _imported(tree)
        pending += [name.rpartition(".")[0]] if "." in name else []
        digests[name] = _digest(ast.unparse(_plain(tree)))
    return digests


def _file(source: Path, name: str) -> Path | None:
    place = source.joinpath(*name.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _imported(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _plain(tree: ast.Module) -> ast.Module:
    """Return the tree without docstrings; comments aren't in it."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not _is_text(part)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def without_words(value: Any) -> Any:  # any JSON value
    """Return an OpenAPI schema without its descriptions."""
    if isinstance(value, dict):
        return {k: without_words(v) for k, v in value.items() if k != "description" or not isinstance(v, str)}
    if isinstance(value, list):
        return [without_words(entry) for entry in value]
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def load_codes(folder: Path) -> dict[str, Code]:
    """Return the versions that results in a folder were measured on, by digest."""
    try:
        entries = json.loads((folder / "codes.json").read_text())
    except FileNotFoundError:
        return {}
    return {digest: Code(**entry) for digest, entry in entries.items()}


def save_codes(folder: Path, codes: Mapping[str, Code]) -> None:
    """Write the versions into a folder, one line each."""
    lines = [
        f"{json.dumps(digest)}: {json.dumps(asdict(code), sort_keys=True, separators=(',', ':'))}"
        for digest, code in sorted(codes.items())
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "codes.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
