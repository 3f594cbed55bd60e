"""The distributions: what each holds and requires is what its modules import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import metadata, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from halcyon_cli.commands.app import COMMANDS

WEIGHT_BYTES = 90_000
"""All modules are parsed."""

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "halcyon"
FOLDERS = {
    "halcyon-core": ROOT / "core",
    "halcyon-operator": ROOT,
    "halcyon-sidecars": ROOT / "sidecars",
    "halcyon-cli": ROOT / "cli",
    "halcyon-simulator": ROOT / "simulator",
}
MAX_PACKAGES = 20
"""Maximum number of packages that an installation of the command line has, itself included."""
BROUGHT = {
    "typing-extensions": "halcyon-core",
    "pydantic-core": "pydantic",
    "protobuf": "tritonclient",
    "grpcio": "tritonclient",
    "requests": "prometheus-api-client",
    "urllib3": "prometheus-api-client",
    "opentelemetry-api": "opentelemetry-sdk",
    "obstore": "halcyon-operator",  # its extra `store`
}
"""Distributions that another one brings, which is named in its place."""


def project(name: str) -> dict[str, Any]:
    document: dict[str, Any] = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())
    return document


def requirements(name: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return what a distribution requires, and what each of its extras does."""
    document = project(name)
    lists = document["tool"]["hatch"].get("metadata", {}).get("hooks", {}).get("custom", {}).get("requirements")
    lists = lists or document["project"]
    return lists["dependencies"], lists.get("optional-dependencies", {})


def plain(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def paths(name: str) -> Iterator[Path]:
    """Yield the modules of a distribution."""
    wheel = project(name)["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source in wheel.get("hooks", {}).get("custom", {}).get("parts", {}):
        path = (FOLDERS[name] / source).resolve()
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
    excluded = [ROOT / part for part in wheel.get("exclude", ())]
    for package in wheel.get("packages", ()):
        for path in sorted((FOLDERS[name] / package).rglob("*.py")):
            if not any(path.is_relative_to(part) for part in excluded):
                yield path


@cache
def providing() -> Mapping[str, list[str]]:
    """Return the installed distributions that hold each top package."""
    return packages_distributions()


@cache
def modules() -> dict[str, tuple[str, Path]]:
    """Return the distribution and the file of each module."""
    by_name: dict[str, tuple[str, Path]] = {}
    for name, folder in FOLDERS.items():
        for path in paths(name):
            base = PACKAGE.parent if path.is_relative_to(PACKAGE) else folder
            module = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
            assert module not in by_name, f"{module} is in {by_name[module][0]} and {name}"
            by_name[module] = (name, path)
    return by_name


@cache
def imported(module: str) -> frozenset[str]:
    """Return the names that a module imports, in functions too, but not for types alone."""
    tree = ast.parse(modules()[module][1].read_bytes())
    names = set()
    open_: list[ast.AST] = [tree]
    while open_:
        node = open_.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            open_ += node.orelse
            continue
        open_ += (
            below
            for below in ast.iter_child_nodes(node)
            if isinstance(below, ast.stmt | ast.excepthandler | ast.match_case)
        )
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names} & modules().keys()
            names |= named | {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(names)


def reached(start: str) -> set[str]:
    """Return a module and all of ours that it imports, with those that these import."""
    seen: set[str] = set()
    open_ = {start}
    while open_:
        module = open_.pop()
        seen.add(module)
        parents = {module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1)}
        open_ |= ((imported(module) | parents) & modules().keys()) - seen
    return seen


def foreign(module: str) -> set[str]:
    """Return the top packages that a module imports and that are neither ours nor Python's."""
    tops = {name.partition(".")[0] for name in imported(module)}
    return tops - {name.partition(".")[0] for name in modules()} - sys.stdlib_module_names


def test_each_module_of_the_package_is_in_one_distribution() -> None:
    held = {path for _, path in modules().values()}

    assert set(PACKAGE.rglob("*.py")) - held == set()
    excluded = project("halcyon-operator")["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    others = [
        *project("halcyon-core")["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"],
        *project("halcyon-sidecars")["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"],
    ]
    assert sorted(excluded) == sorted(path.removeprefix("../") for path in others)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_imports_what_it_requires(name: str) -> None:
    providers = providing()
    needed, extras = requirements(name)
    everything = {plain(need) for need in [*needed, *(need for extra in extras.values() for need in extra)]}
    for distribution in [*everything]:
        if distribution in FOLDERS:  # what it brings, the extras aside
            everything |= {plain(need) for need in requirements(distribution)[0]}
            if "halcyon-core" in requirements(distribution)[0]:
                everything |= {plain(need) for need in requirements("halcyon-core")[0]}
    missing = []
    for module, (owner, _) in modules().items():
        if owner != name:
            continue
        ours = {modules()[other][0] for other in imported(module) if other in modules()} - {name}
        missing += [(module, other) for other in ours if other not in everything and module != "halcyon.main"]
        for top in foreign(module):
            known = {plain(provider) for provider in providers.get(top, [top])}
            known |= {BROUGHT[provider] for provider in known if provider in BROUGHT}
            if not known & everything:
                missing.append((module, top))
    assert missing == []


def test_commands_outside_of_measurements_need_no_extra() -> None:
    _, extras = requirements("halcyon-cli")
    needed = {plain(need) for need in requirements("halcyon-cli")[0] + requirements("halcyon-core")[0]}
    of_extras = {plain(need) for extra in extras.values() for need in extra} - needed
    providers = providing()
    heavy = {top for top, names in providers.items() if {plain(name) for name in names} & of_extras} | {"grpc", "numba"}
    assert {"numpy", "PIL", "aiohttp", "tritonclient"} <= heavy
    light = {
        name: entry[0].partition(":")[0]
        for group, commands in COMMANDS.items()
        for name, entry in commands.items()
        if group != "Measure" and name not in {"infer", "simulate"}
    }
    assert len(light) > 15
    wrong = {
        (name, module, top)
        for name, start in light.items()
        for module in reached(start)
        for top in foreign(module) & heavy
    }
    assert wrong == set()
    assert not {
        module for start in light.values() for module in reached(start) if modules()[module][0] == "halcyon-operator"
    }


def test_the_command_line_has_at_most_twenty_packages() -> None:
    """By the lock file's versions, as they are installed here. The row `4` of the table `adoption` installs it."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415

    names, open_ = {"halcyon-cli"}, {plain(need) for need in requirements("halcyon-cli")[0]}
    while open_:
        name = open_.pop()
        names.add(name)
        if name in FOLDERS:
            open_ |= {plain(need) for need in requirements(name)[0]} - names
            continue
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            pytest.fail(f"{name} isn't installed")
        open_ |= {
            plain(need.name) for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
        } - names
    assert {"halcyon-operator", "kubernetes", "aiohttp", "kopf"} & names == set()
    assert len(names) <= MAX_PACKAGES, sorted(names)


def test_modules_read_the_versions_of_installed_distributions_only() -> None:
    read = re.compile(r"""\bversion\(["'](halcyon-\w+)["']\)""")
    wrong = {
        (module, named)
        for module, (name, path) in modules().items()
        for named in read.findall(path.read_text())
        if named != name and named not in requirements(name)[0]
    }
    assert wrong == set()


def test_extras_that_are_required_exist() -> None:
    """pip warns at each installation if an extra doesn't."""
    needed = [Requirement(text) for name in FOLDERS for group in groups(name) for text in group]
    required = {(need.name, extra) for need in needed for extra in need.extras}
    assert ("tritonclient", "grpc") in required
    has = {package: set(metadata(package).get_all("Provides-Extra") or ()) for package, _ in required}
    assert [(package, extra) for package, extra in sorted(required) if extra not in has[package]] == []


def groups(name: str) -> list[list[str]]:
    """Return what a distribution requires, and what each of its extras does, as lists."""
    required, extras = requirements(name)
    return [required, *extras.values()]


def test_a_clone_runs_its_own_files(tmp_path: Path) -> None:
    """Copies of an editable installation would hide the other distributions' parts, and later changes."""
    code = "import halcyon, halcyon.balancer, halcyon_cli; print(halcyon.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == ROOT / "operator" / "halcyon" / "__init__.py"


INSTALL = ROOT / "images" / "install.py"
"""What installs our distributions in images: of each the files of its wheel, with byte code, scripts and metadata."""
_CORE = """\
[project]
name = "halcyon-core"
version = "1.0"
description = "Core"
license = "Apache-2.0"
scripts = {halcyon = "halcyon.main:main"}
[tool.hatch.build.targets.wheel.hooks.custom.parts]
"../operator/halcyon/__init__.py" = "halcyon/__init__.py"
"../operator/halcyon/main.py" = "halcyon/main.py"
"../operator/halcyon/api" = "halcyon/api"
"""
_OPERATOR = """\
[project]
name = "halcyon-operator"
version = "1.0"
description = "Operator"
license = "Apache-2.0"
[tool.hatch.build.targets.wheel]
packages = ["operator/halcyon"]
exclude = ["operator/halcyon/__init__.py", "operator/halcyon/main.py", "operator/halcyon/api"]
"""
_LIST = """\
import importlib.metadata as m, json
print(json.dumps({d.name: sorted(str(f) for f in d.files) for d in m.distributions()}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    return folder


def fake_repository(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def install(environment: Path, source: Path) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin" / "python"), "-I", str(INSTALL), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


FILES = {
    "core/pyproject.toml": _CORE,
    "operator/halcyon/__init__.py": "",
    "operator/halcyon/main.py": "def main():\n    from halcyon.api import spec\n    print('runs')\n",
    "operator/halcyon/api/__init__.py": "",
    "operator/halcyon/api/spec.py": "",
    "operator/halcyon/control.py": "",
    "operator/halcyon/page.html": "<p>",
}


def test_each_distribution_has_the_files_of_its_wheel_and_its_scripts_run(environment: Path, tmp_path: Path) -> None:
    done = install(environment, fake_repository(tmp_path, FILES | {"pyproject.toml": _OPERATOR}))
    assert (done.returncode, done.stderr) == (0, "")

    python = environment / "bin" / "python"
    listing = subprocess.run([str(python), "-I", "-c", _LIST], capture_output=True, text=True, check=True).stdout
    held = json.loads(listing)
    byte_code = {name for files in held.values() for name in files if name.endswith(".pyc")}
    assert len(byte_code) == 5
    own = {
        name: [file for file in files if "dist-info" not in file and file not in byte_code]
        for name, files in held.items()
    }
    assert own == {
        "halcyon-core": [
            "../../../bin/halcyon",
            "halcyon/__init__.py",
            "halcyon/api/__init__.py",
            "halcyon/api/spec.py",
            "halcyon/main.py",
        ],
        "halcyon-operator": ["halcyon/control.py", "halcyon/page.html"],
    }
    # Without PYTHONPATH, which would lead to the repository's own package.
    runs = subprocess.run([str(environment / "bin" / "halcyon")], capture_output=True, text=True, check=True, env={})
    assert runs.stdout == "runs\n"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operator/halcyon/api/spec.py": "def"}, "invalid syntax"),
        ({"operator/halcyon/dashboard/server.py": ""}, "`make bootstrap` fetches it"),
        ({"cli/pyproject.toml": _OPERATOR.replace("operator/halcyon", "halcyon_cli")}, "halcyon_cli is not there"),
    ],
)
def test_an_image_is_not_built_without_a_part(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    venv.create(tmp_path / "environment", symlinks=True)
    files = FILES | {"pyproject.toml": _OPERATOR} | changed
    done = install(tmp_path / "environment", fake_repository(tmp_path / "source", files))
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize("image", ["operator", "bench"])
def test_a_dockerfile_copies_what_its_distributions_name(image: str) -> None:
    lines = (ROOT / "images" / image / "Dockerfile").read_text().splitlines()
    copied = [
        words[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line for words in [line.split()]
    ]
    sources = {source for copies in copied for source in copies}
    kept = (ROOT / "images" / image / "Dockerfile.dockerignore").read_text().splitlines()
    assert sources <= {line.removeprefix("!") for line in kept} | {"cli"}

    def is_copied(path: Path) -> bool:
        return any(path.is_relative_to(ROOT / source) for source in sources)

    projects = [path for path in (ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")) if is_copied(path)]
    assert len(projects) >= 2
    for project in projects:
        wheel = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
        named = [*wheel.get("packages", ()), *wheel.get("hooks", {}).get("custom", {}).get("parts", {})]
        assert [name for name in named if not is_copied((project.parent / name).resolve())] == []


def test_each_distribution_declares_the_releases_of_python_that_support_names() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    first, last = map(int, re.findall(r"for the command line \| 3\.(\d+) to 3\.(\d+) \|", page)[0])
    releases = [f"Programming Language :: Python :: 3.{minor}" for minor in range(first, last + 1)]

    for name in FOLDERS:
        described = project(name)["project"]
        assert described["requires-python"] == f">=3.{first}", name
        assert [entry for entry in described["classifiers"] if ":: Python :: 3." in entry] == releases, name
    assert f"python3.{last} python3;" in (ROOT / "scripts" / "bootstrap").read_text()
