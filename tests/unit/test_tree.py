"""The tree of the packages: what docs/architecture.md says of it, and how large a folder and a circle may be."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

WEIGHT_BYTES = 80_000
"""All modules are parsed."""

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "halcyon"
DISTRIBUTIONS = {
    ROOT: "halcyon-operator",
    ROOT / "core": "halcyon-core",
    ROOT / "cli": "halcyon-cli",
    ROOT / "simulator": "halcyon-simulator",
    ROOT / "sidecars": "halcyon-sidecars",
}
"""By the folder of its pyproject.toml."""
SOURCES = {
    "halcyon": ROOT / "operator",
    "halcyon_cli": ROOT / "cli",
    "halcyon_simulator": ROOT / "simulator",
    "generators": ROOT,
}
MODULES = {
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
    for package, source in SOURCES.items()
    for path in sorted((source / package).rglob("*.py"))
}
FOLDERS = {name for name, path in MODULES.items() if path.name == "__init__.py"}
MAX_MODULES = 16
MAX_LINES = 400
LONG_MODULES = {"halcyon_simulator.engine.event_loop"}
"""Compiled by numba as one module, because its cache is by file."""
BANNED = {
    *("told", "tells", "tell", "heard", "hear", "unheard", "untold", "anew", "whoever", "nobody", "somebody"),
    *(
        "knock",
        "knocks",
        "trail",
        "trouble",
        "troubles",
        "hub",
        "verdict",
        "ceiling",
        "stranger",
        "strangers",
        "roomless",
    ),
}
"""Words that no name may have: CONTRIBUTING.md, "Names and words", has the ones to use."""

CODE = (
    "operator",
    "cli",
    "simulator",
    "generators",
    "images",
    "demo",
    "benchmarks",
    "e2e",
    "scripts",
    "manifests",
    "tests",
)
VAGUE = {"found", "told", "said", "asked", "wanted", "heard"}
"""Words that no name has: a reader of `found` has to read what was looked for."""
UNCLEAR = VAGUE | {
    *("made", "given", "got", "gone", "taken", "came", "went", "there", "where", "what", "whole"),
    *("one", "ones", "thing", "things", "stuff"),
}
"""Words that are no names by themselves; `made_at` and `one_channel` are."""
ALLOWED = {
    "operator/halcyon/balancer/runtime/shares.py found": "a key of a document of the agents",
    "operator/halcyon/scaling/planner/answer_evidence.py found_by": "a key of the stored evidence",
    "operator/halcyon/kube/errors.py Gone": "status 410 of HTTP",
    "cli/halcyon_measure/results/sections/verdict.py what": "a key of bench.json",
    "benchmarks/quality/rows.py what": "a key of the recorded rows",
    "benchmarks/rows.py what": "a key of the recorded rows",
    "benchmarks/right/overload.py what": "a key of the raw samples",
    "benchmarks/tune/lower.py what": "a key of the raw samples",
    "tests/integration/fetch/test_web_servers.py whole": "called by the path of a URL",
}
"""Names that stay, each with its reason."""
MAX_NAME_WORDS = 8
"""Number of words from which on the name of a function is a sentence."""
_CANDIDATE = re.compile(
    rf"\b_*(?:{'|'.join(sorted(UNCLEAR))})_*\s*(?:[=:,)(]|in\b)|(?:{'|'.join(sorted(VAGUE))})_|_(?:{'|'.join(sorted(VAGUE))})",
    re.IGNORECASE,
)
"""Text of a module that may have such a name: most have none, and to parse all takes five seconds."""


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_bytes())


@cache
def statements(module: str) -> tuple[ast.stmt, ...]:
    """Return all statements of a module, those in functions too. Expressions, which are most of a tree, hold none."""
    collected: list[ast.stmt] = []
    open_: list[ast.AST] = [parsed(module)]
    while open_:
        for below in ast.iter_child_nodes(open_.pop()):
            if isinstance(below, ast.stmt):
                collected.append(below)
                open_.append(below)
            elif isinstance(below, ast.excepthandler | ast.match_case):
                open_.append(below)
    return tuple(collected)


def imports(module: str) -> set[str]:
    """Return the modules of ours that one imports, in functions and for types alone too."""
    imported = set()
    for node in statements(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in SOURCES:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= (named & MODULES.keys()) or {str(node.module)}
    return imported - {module}


def folder(module: str) -> str:
    return module if module in FOLDERS else module.rpartition(".")[0]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node, by what each reaches."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, open_ = set[str](), [start]
        while open_:
            for following in graph.get(open_.pop(), set()) - seen:
                seen.add(following)
                open_.append(following)
        reached[start] = seen
    circle = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in graph if a in reached[a]}
    return sorted(sorted(members) for members in circle)


def test_every_module_that_the_architecture_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"\b([a-z_]+(?:/[a-z_]+)+\.py)\b", page))
    assert len(named) > 15
    bases = (PACKAGE, *SOURCES.values())
    assert [path for path in sorted(named) if not any((base / path).is_file() for base in bases)] == []


def test_every_package_is_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    tops = [*ROOT.glob("*/__init__.py"), *(ROOT / "cli").glob("*/__init__.py"), *ROOT.glob("simulator/*/__init__.py")]
    packages = {
        path.parent.name for path in (*tops, *PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("control/*/__init__.py"))
    }
    assert packages >= {"halcyon_cli", "halcyon_simulator", "generators", "images", "benchmarks", "demo", "e2e"}
    assert [name for name in sorted(packages) if f"| `{name}` |" not in page] == []


def test_the_distributions_have_one_version_and_require_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from hatchling.metadata.core import ProjectMetadata  # noqa: PLC0415
    from hatchling.plugin.manager import PluginManager  # noqa: PLC0415

    def required(folder: Path) -> tuple[str, str, list[str]]:
        core = ProjectMetadata(str(folder), PluginManager()).core
        extras = [requirement for needed in core.optional_dependencies.values() for requirement in needed]
        return core.raw_name, str(core.config["version"]), [*core.dependencies, *extras]

    here = [required(folder) for folder in DISTRIBUTIONS]
    monkeypatch.setenv("HALCYON_RELEASE", "1")
    released = [required(folder) for folder in DISTRIBUTIONS]
    [version] = {number for _, number, _ in released}

    assert [name for name, _, _ in released] == list(DISTRIBUTIONS.values())
    ours = [{requirement for requirement in needed if requirement.startswith("halcyon-")} for _, _, needed in released]
    assert ours == [
        {f"halcyon-core=={version}"},
        set(),
        {f"halcyon-core=={version}", f"halcyon-sidecars=={version}", f"halcyon-simulator=={version}"},
        {f"halcyon-core=={version}"},
        {f"halcyon-operator=={version}"},
    ]
    of_clone = {requirement for _, _, needed in here for requirement in needed if requirement.startswith("halcyon-")}
    assert of_clone == {
        f"{name} @ {folder.as_uri()}" for folder, name in DISTRIBUTIONS.items() if name != "halcyon-cli"
    }


def test_no_folder_holds_more_than_sixteen_modules() -> None:
    held: dict[str, int] = defaultdict(int)
    for module in MODULES.keys() - FOLDERS:
        held[folder(module)] += 1
    assert {name: count for name, count in held.items() if count > MAX_MODULES} == {}


def test_no_module_has_more_than_400_lines() -> None:
    counts = {module: path.read_bytes().count(b"\n") for module, path in MODULES.items()}
    assert {module for module, count in counts.items() if count > MAX_LINES} == LONG_MODULES


def test_no_two_public_classes_share_a_name() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in statements(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(module)
    assert {name: modules for name, modules in defined.items() if len(modules) > 1} == {}


def test_constants_say_max_and_min() -> None:
    """MAX_, MIN_ and _INTERVAL_S, as CONTRIBUTING has them."""
    other = re.compile(r"_?(MOST|LEAST|FEWEST|LONGEST|SHORTEST)(_|$)|.*_(EVERY|AGAIN)_S$")
    constants = [
        f"{module}.{name.id}"
        for module in MODULES
        for node in parsed(module).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and other.match(name.id)
    ]
    assert constants == []


def words(name: str) -> set[str]:
    """Return the words of a name in lower case, whether they are joined by underscores or by capitals."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names(module: str) -> set[str]:
    """Return the names of a module, its classes, functions and methods, and its constants."""
    defined = {
        node.name
        for node in statements(module)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for statement in parsed(module).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            defined |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {module.rpartition(".")[2], *defined}


def test_no_name_has_a_word_that_the_glossary_bans() -> None:
    assert words("_HEAR_WITHIN_S") == {"hear", "within", "s"}
    assert words("CanaryVerdict") == {"canary", "verdict"}
    used = {(module, word) for module in MODULES for name in names(module) for word in words(name) & BANNED}
    assert sorted(used) == []


def test_imports_of_modules_and_folders_have_no_circles() -> None:
    modules = {module: imports(module) for module in MODULES}
    folders: dict[str, set[str]] = defaultdict(set)
    for module, targets in modules.items():
        folders[folder(module)] |= {folder(target) for target in targets} - {folder(module)}
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles(modules) == []
    assert circles(dict(folders)) == []


def test_an_environment_of_another_tree_is_never_replaced(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other" / ".venv"
    (tree / "scripts").mkdir(parents=True)
    (other / "bin").mkdir(parents=True)
    (other / ".lock-digest").write_text("of another state\n")
    shutil.copy(ROOT / "scripts" / "bootstrap", tree / "scripts")
    (tree / ".venv").symlink_to(other)

    done = subprocess.run([tree / "scripts" / "bootstrap"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"bootstrap: .venv is a link to {other}, which lacks what this tree needs; remove the link" in done.stderr
    assert sorted(path.name for path in other.iterdir()) == [".lock-digest", "bin"]


def test_git_ignores_an_environment_that_is_a_link() -> None:
    # Git replaces an ignored folder with a link that a merged commit has. A pattern that ends in / ignores folders only.
    assert "/.venv" in (ROOT / ".gitignore").read_text().splitlines()


def is_unclear(name: str) -> bool:
    return name.lower().strip("_") in UNCLEAR or bool(VAGUE & words(name.lower().removesuffix("not_found")))


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that a module defines, with their lines.

    Names of tests, and of rules that are a sentence, have rules of their own (test_layout).
    """
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if not name.startswith("test_") and name.count("_") < MAX_NAME_WORDS:
                    yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def test_names_of_values_hold_no_word_without_meaning() -> None:
    example = "def told(what):\n    for one in what:\n        self.seen = found_by = one\n"
    assert [name for _, name in defined_names(ast.parse(example)) if is_unclear(name)] == [
        "told",
        "what",
        "one",
        "found_by",
    ]
    modules = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(modules) > 800
    odd = {
        (f"{path.relative_to(ROOT)} {name}", line)
        for path in modules
        if _CANDIDATE.search(text := path.read_text())
        for line, name in defined_names(ast.parse(text))
        if is_unclear(name)
    }
    assert sorted(place for place in odd if place[0] not in ALLOWED) == []
    assert ALLOWED.keys() - {name for name, _ in odd} == set()
