"""Measurements of code, names and texts: the rows of the table `house`.

Human judgements (readers' guesses, verdicts on texts) are in docs/quality, each with the commit on which they were made.
A text that was reworded later keeps its verdict until it is judged again.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import OUT, PAGES, ROOT, Row, commit

BENCH_PAGE = "docs/benchmarks/scaling.md"
"""Page that `make bench-scaling` writes."""
JUDGED = PAGES
BASE = "a528a11"
SOURCES = {
    "halcyon": "operator/halcyon",
    "halcyon_cli": "cli/halcyon_cli",
    "halcyon_simulator": "simulator/halcyon_simulator",
}
BANNED = r"\b(told|tells|heard|anew|whoever|nobody|somebody)\b"
TEXTS = {"docstrings": (60, 54), "docs": (60, 54), "messages": (40, 36), "crd": (None, None)}
"""Sample size, and the number of texts in it that must be clear. None: all descriptions, of which nine in ten must be
clear."""


def behaviour() -> Row:
    """Compare the tests with those of the base commit."""
    out = _run([sys.executable, "scripts/test_map.py"]).stdout
    counts = {description: int(count) for count, description in re.findall(r"^ +(\d+) (.+)$", out, re.MULTILINE)}
    unexplained = sum(count for description, count in counts.items() if "without a reason" in description) + out.count(
        "not in the map"
    )
    changed = changed_bench_rows()
    return Row(
        1,
        f"every test of {BASE} is there, equal but for names, imports and quoted text, or with a reason; the scaling bench's rows",
        {"tests": counts, "unexplained": unexplained, "bench_scaling_rows_changed": changed},
        "0 unexplained; `make bench-scaling` gives the same rows",
        [("unexplained", 0, "=="), ("bench_scaling_rows_changed", 0, "==")],
        why="`make bench-scaling CHECK=1` was not run on this machine" if changed is None else "",
        n=sum(counts.values()),
        raw=out.splitlines(),
    )


def changed_bench_rows() -> int | None:
    """Return how many figures of the scaling bench's page a new run does not give, or that the base commit's page has otherwise.

    None if `make bench-scaling CHECK=1` was not run on this machine.
    """
    result = ROOT / "build" / "bench" / "scaling-check.json"
    if not result.exists():
        return None
    before = subprocess.run(
        ["git", "show", f"{BASE}:{BENCH_PAGE}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    rows = [re.findall(r"^\| S\d.*$", page, re.MULTILINE) for page in (before, (ROOT / BENCH_PAGE).read_text())]
    changed = (Counter(rows[0]) - Counter(rows[1])).total() + (Counter(rows[1]) - Counter(rows[0])).total()
    return changed + len(json.loads(result.read_text())["different"])


def reader() -> Row:
    """Compare a reader's guesses, made from the list of files alone, with the actual files."""
    guesses, locations = _tsv(JUDGED / "house-guesses.tsv"), _tsv(JUDGED / "house-places.tsv")
    by_number = {row[0]: row[1] for row in locations}
    first = second = 0
    for number, first_guess, second_guess in guesses:
        correct = {place.strip() for place in by_number.get(number, "").split(",")}
        first += first_guess in correct
        second += first_guess in correct or second_guess in correct
    return Row(
        2,
        "fifty questions answered from the list of files",
        {"first": first if guesses else None, "by_the_second": second if guesses else None},
        ">= 42 of 50 at the first guess, 50 by the second",
        [("first", 42, ">="), ("by_the_second", 50, ">=")],
        stand_ins="the reader is a language model that had not seen the code",
        why="" if guesses else "no reader has answered yet",
        n=len(guesses),
    )


def structure() -> Row:
    """Count modules per folder, import cycles, attributes set from outside of their class, and import contracts."""
    modules = {_dotted(path): path for path in _python()}
    edges = {name: _imports(path, modules) for name, path in modules.items()}
    packages = frozenset(name for name, path in modules.items() if path.name == "__init__.py")
    folders: dict[str, set[str]] = defaultdict(set)
    module_counts: Counter[str] = Counter()
    for name, targets in edges.items():
        own = _folder(name, packages)
        module_counts[own] += name not in packages
        folders[own] |= {_folder(target, packages) for target in targets} - {own}
    out = _run(["lint-imports"]).stdout
    contracts = re.search(r"(\d+) kept, (\d+) broken", out)
    injected = list(_injected())
    value = {
        "largest_folder": max(module_counts.values()),
        "module_circles": len(_circles(edges)),
        "folder_circles": len(_circles(folders)),
        "set_after_construction": len(injected),
        "contracts": int(contracts[1]) if contracts else 0,
        "broken": int(contracts[2]) if contracts else None,
    }
    bounds = [("largest_folder", 16, "<="), ("module_circles", 0, "=="), ("folder_circles", 0, "==")]
    bounds += [("set_after_construction", 0, "=="), ("contracts", 8, ">="), ("broken", 0, "==")]
    return Row(
        3,
        "structure",
        value,
        "<= 16; 0; 0; 0; >= 8",
        bounds,
        n=len(modules),
        raw={"held": module_counts, "set": injected},
    )


def lines() -> Row:
    """Count the lines of code in the operator's wheel, and in what it runs of the wheel halcyon-core."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    excluded = [ROOT / path for path in document["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]]
    others = tomllib.loads((ROOT / "sidecars/pyproject.toml").read_text())
    parts = others["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"].values()
    sidecars = [ROOT / "operator" / part for part in parts]
    line_counts = {p: len(p.read_text().splitlines()) for p in _python("halcyon")}
    counts = {p: n for p, n in line_counts.items() if not any(p.is_relative_to(path) for path in excluded)}
    run = {p: n for p, n in line_counts.items() if not any(p.is_relative_to(path) for path in sidecars)}
    return Row(
        4,
        "lines of Python in the operator's wheel, and with those of halcyon-core, which it requires; modules in it that only simulate or generate",
        {
            "lines": sum(counts.values()),
            "lines_with_core": sum(run.values()),
            "simulate_or_generate": sum("simulat" in str(p) or "generator" in str(p) for p in run),
        },
        "<= 40,000 in the wheel; 0",
        [("lines", 40_000, "<="), ("simulate_or_generate", 0, "==")],
        n=len(counts),
        raw={str(p.relative_to(ROOT)): n for p, n in counts.items()},
    )


def texts() -> Row:
    """Count the judges' verdicts on the samples that benchmarks/quality/samples.py draws.

    A judge of pages sees as many sentences of cert-manager's and Knative's documentation among ours, with the products'
    names masked. Their verdicts (`peers`) show how strict the judge is; they aren't part of the target.
    """
    value: dict[str, Any] = {}
    limits: list[tuple[str, float, str]] = []
    for kind, (_, clear) in TEXTS.items():
        for seed in (1, 2, 3) if kind != "crd" else (1,):
            verdicts = [row[2] for row in _tsv(JUDGED / "verdicts" / f"{kind}-{seed}.tsv")]
            name = f"{kind}-{seed}"
            value[f"{name}_clear"] = verdicts.count("clear") if verdicts else None
            value[f"{name}_hard"] = verdicts.count("hard") if verdicts else None
            if peers := [row[2] for row in _tsv(JUDGED / "verdicts" / f"{name}-peers.tsv")]:
                value[f"{name}_peers_clear"], value[f"{name}_peers_hard"] = peers.count("clear"), peers.count("hard")
            limits += [
                (f"{name}_clear", clear if clear is not None else 0.9 * len(verdicts), ">="),
                (f"{name}_hard", 0, "=="),
            ]
    return Row(
        5,
        "docstrings, sentences of the pages, messages (three draws each) and all descriptions of the CRD, judged clear, odd or hard",
        value,
        ">= 54 of 60 clear (36 of 40 messages, 9 of 10 descriptions), 0 hard",
        limits,
        stand_ins="the judges are language models that saw the text alone",
        n=sum(v or 0 for k, v in value.items() if k.endswith("clear")),
    )


def words() -> Row:
    """Count lines that contain words banned by the glossary."""
    matches = _run(
        [
            "git",
            "grep",
            "-nwE",
            "told|tells|heard|anew|whoever|nobody|somebody",
            "--",
            "operator",
            "docs",
            "charts",
            ":!docs/decisions",
        ]
    )
    matching_lines = matches.stdout.splitlines()
    return Row(
        6, f"lines with {BANNED}", {"lines": len(matching_lines)}, "< 20", [("lines", 19, "<=")], raw=matching_lines
    )


def runs() -> Row:
    """Return which make targets have passed on this commit."""
    passed = {name: _passed(name) for name in ("test", "test-more", "demo")}
    return Row(
        8,
        "make test, make test-more and make demo on this commit",
        {name.replace("-", "_"): int(done) for name, done in passed.items()},
        "all pass",
        [(name.replace("-", "_"), 1, "==") for name in passed],
        command="make test; make test-more; make demo",
        why="" if all(passed.values()) else "not every target was run on this commit",
    )


def memory() -> Row:
    """Return the paired measurement of memory, import time and unit tests, if it was made."""
    path = OUT / "raw" / "pairs.json"
    unknown = {"operator_memory": None, "agent_memory": None, "import_time": None, "unit_s": None}
    value = json.loads(path.read_text()) if path.exists() else unknown
    measured_on = value.pop("commit", "an earlier commit")
    limits = [
        ("operator_memory", 1.05, "<="),
        ("agent_memory", 1.05, "<="),
        ("import_time", 1.05, "<="),
        ("unit_s", 30, "<="),
    ]
    why = "" if path.exists() else "`python -m benchmarks.quality.pairs` was not run on this machine"
    if path.exists() and measured_on != commit():
        why, value = f"last measured on {measured_on}: {json.dumps(value)}", unknown
    return Row(
        7,
        f"memory and import time against {BASE} (ratios), unit tests (s)",
        value,
        "<= 1.05; <= 1.05; <= 1.05; < 30",
        limits,
        why=why,
    )


def rows() -> list[Row]:
    """Measure every row."""
    return [behaviour(), reader(), structure(), lines(), texts(), words(), memory(), runs()]


def _passed(name: str) -> bool:
    path = OUT / "raw" / f"{name}.json"
    return path.exists() and json.loads(path.read_text())["commit"] == commit()


def _injected() -> Iterator[str]:
    """Yield assignments in the composition root to attributes of objects other than self."""
    for path in sorted((ROOT / "operator/halcyon/control/runtime").glob("*.py")):
        if path.name == "kopf_watch.py":
            continue  # kopf's settings are set attribute by attribute, because it offers no other interface
        for node in ast.walk(ast.parse(path.read_text())):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                owner = target.value if isinstance(target, ast.Attribute) else None
                if owner is not None and not (isinstance(owner, ast.Name) and owner.id == "self"):
                    yield f"{path.name}:{target.lineno} {ast.unparse(target)}"


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
            imported |= names or ({node.module} & modules.keys())
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names} & modules.keys()
    return imported - {_dotted(path)}


def _circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components with more than one node."""
    reach: dict[str, set[str]] = {}
    for start, targets in edges.items():
        seen: set[str] = set()
        todo = list(targets)
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += edges.get(node, ())
        reach[start] = seen
    circles: list[set[str]] = []
    for node, seen in reach.items():
        if node in seen and not any(node in circle for circle in circles):
            circles.append({other for other in seen if node in reach.get(other, ())})
    return circles


def _python(*packages: str) -> Iterator[Path]:
    for package, source in SOURCES.items():
        if not packages or package in packages:
            yield from sorted((ROOT / source).rglob("*.py"))


def _dotted(path: Path) -> str:
    package, folder = next((p, f) for p, f in SOURCES.items() if path.is_relative_to(ROOT / f))
    parts = (package, *path.relative_to(ROOT / folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _folder(module: str, packages: frozenset[str]) -> str:
    return module if module in packages else module.rpartition(".")[0]


def _tsv(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    return [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
