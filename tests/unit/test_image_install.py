"""What images/install.py installs in an image: of each distribution the files of its wheel, with byte code, scripts and metadata."""

from __future__ import annotations

import json
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "images" / "install.py"
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


def repository(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def install(environment: Path, source: Path) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin" / "python"), "-I", str(SCRIPT), str(source)]
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
    done = install(environment, repository(tmp_path, FILES | {"pyproject.toml": _OPERATOR}))
    assert (done.returncode, done.stderr) == (0, "")

    python = environment / "bin" / "python"
    said = subprocess.run([str(python), "-I", "-c", _LIST], capture_output=True, text=True, check=True).stdout
    held = json.loads(said)
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
    ("changed", "said"),
    [
        ({"operator/halcyon/api/spec.py": "def"}, "invalid syntax"),
        ({"operator/halcyon/dashboard/server.py": ""}, "`make bootstrap` fetches it"),
        ({"cli/pyproject.toml": _OPERATOR.replace("operator/halcyon", "halcyon_cli")}, "halcyon_cli is not there"),
    ],
)
def test_an_image_is_not_built_without_a_part(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    venv.create(tmp_path / "environment", symlinks=True)
    files = FILES | {"pyproject.toml": _OPERATOR} | changed
    done = install(tmp_path / "environment", repository(tmp_path / "source", files))
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize("image", ["operator", "bench"])
def test_a_dockerfile_copies_what_its_distributions_name(image: str) -> None:
    lines = (ROOT / "images" / image / "Dockerfile").read_text().splitlines()
    copied = [
        words[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line for words in [line.split()]
    ]
    sources = {source for found in copied for source in found}
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
