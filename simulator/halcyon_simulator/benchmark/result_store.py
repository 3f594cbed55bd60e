"""Store of the benchmark's results, so that a later benchmark repeats only the runs whose code has changed.

There is a file per policy, with one line per run. The file name contains the policy's name and a digest of the code on
which its results depend. For example, a change to the planner repeats only Halcyon's runs. Out of scope: the list of
runs (`table`).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

import halcyon
from halcyon.api.spec.defaults import IDLE_AFTER_S
from halcyon_simulator.benchmark.statistics import Cell
from halcyon_simulator.engine.case import RunOutcome
from halcyon_simulator.policies.registry import OWN, Named

_PACKAGE = Path(halcyon.__file__).parent
_SIMULATE = Path(__file__).parents[1]
_ENGINE = (
    *sorted((_SIMULATE / "engine").glob("*.py")),
    *sorted((_SIMULATE / "bounds").glob("*.py")),
    _SIMULATE / "benchmark" / "scenarios.py",
    _SIMULATE / "benchmark" / "shared_budget.py",
)
"""Source files on which the results of every policy depend."""
_OWN = (_SIMULATE / "benchmark" / "budgeted.py", _SIMULATE / "policies" / "halcyon.py")
"""Source files on which only the results of Halcyon's planner depend."""
_ABLATED = "-without"
"""Suffix of the file names for runs of a planner without one of its learning parts."""
_ABLATION = _SIMULATE / "policies" / "ablation.py"
"""Source file on which only the results of planners without a part depend."""


@dataclass(frozen=True)
class StoredResult:
    """Stored result of one run."""

    outcome: RunOutcome
    wrong_scalings: int


class Store:
    """Results of earlier runs, in a folder of files with one JSON line per run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, dict[str, StoredResult]] = {}

    def find(self, cell: Cell, policy: Named, seed: int) -> StoredResult | None:
        """Return the stored result of a run; None if the run hasn't been executed with the current code."""
        return self._results(_group(policy)).get(_key(cell, policy, seed))

    def add(self, cell: Cell, policy: Named, seed: int, result: StoredResult) -> None:
        """Store a result."""
        key = _key(cell, policy, seed)
        self._results(_group(policy))[key] = result
        line = orjson.dumps({"key": key, "wrong": result.wrong_scalings, "outcome": asdict(result.outcome)})
        with self._path(_group(policy)).open("ab") as file:
            file.write(line + b"\n")

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{digest(name)}.jsonl"

    def _results(self, name: str) -> dict[str, StoredResult]:
        if name not in self._known:
            path = self._path(name)
            raw = path.read_bytes() if path.exists() else b""
            complete = raw[: raw.rfind(b"\n") + 1]
            if complete != raw:
                path.write_bytes(complete)  # else an incomplete last line would be merged with the next one
            self._known[name] = dict(_read(line) for line in complete.splitlines())
        return self._known[name]


def _read(line: bytes) -> tuple[str, StoredResult]:
    entry = orjson.loads(line)
    # JSON can't represent NaN, the value of a percentile without responses.
    outcome: dict[str, Any] = {
        key: float("nan") if value is None and key != "settling_s" else value for key, value in entry["outcome"].items()
    }
    return entry["key"], StoredResult(RunOutcome(**outcome), entry["wrong"])


def _group(policy: Named) -> str:
    """Return the part of a result file's name that is specific to the policy."""
    return policy.name if policy.without is None else policy.name + _ABLATED


def _key(cell: Cell, policy: Named, seed: int) -> str:
    return f"{cell} {policy} {seed}"


@cache
def digest(name: str) -> str:
    """Return a short digest of the code on which a policy's results depend.

    Comments, docstrings and formatting don't affect it.
    """
    content = hashlib.sha256()
    for source in sources(name):
        content.update(_bare(source).encode())
    if name.removesuffix(_ABLATED) in OWN:
        content.update(str(IDLE_AFTER_S).encode())  # the other values of its module don't affect a simulation
    return content.hexdigest()[:12]


def sources(name: str) -> list[Path]:
    """Return the source files on which a policy's results depend."""
    ablation = [_ABLATION] if name.endswith(_ABLATED) else []
    own = _OWN if name.removesuffix(_ABLATED) in OWN else sorted((_SIMULATE / "policies" / "peers").glob("*.py"))
    return [*_ENGINE, *ablation, *own, *sorted(imported(own))]


def imported(importers: Iterable[Path] = _OWN) -> set[Path]:
    """Return the modules of `halcyon.scaling` that some files import, directly or through each other.

    By default, the files are those of Halcyon's policy.
    """
    paths: set[Path] = set()
    open_ = list(importers)
    while open_:
        for node in ast.walk(ast.parse(open_.pop().read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("halcyon.scaling."):
                for path in _modules(node) - paths:
                    paths.add(path)
                    open_.append(path)
    return paths


def _modules(node: ast.ImportFrom) -> set[Path]:
    """Return the files that an import statement loads: the module, or the modules of a package that it names."""
    path = _PACKAGE.joinpath(*str(node.module).split(".")[1:])
    if path.is_dir():
        return {path / f"{alias.name}.py" for alias in node.names}
    return {path.with_suffix(".py")}


@cache
def _bare(source: Path) -> str:
    tree = ast.parse(source.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [
                part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.dump(tree)
