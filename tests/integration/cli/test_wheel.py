"""`pip install .`, `./cli` and the others in a plain clone: by pip alone, without Node and without what `make bootstrap` fetches."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOT_IN_GIT = shutil.ignore_patterns("__pycache__", "uplot")
"""Of the folders that a wheel is made of."""
DISTRIBUTIONS = {
    "halcyon_core": {"halcyon"},
    "halcyon_operator": {"halcyon"},
    "halcyon_sidecars": {"halcyon"},
    "halcyon_cli": {"halcyon_batch", "halcyon_cli", "halcyon_measure", "halcyon_tune"},
    "halcyon_simulator": {"halcyon_simulator"},
}
"""The packages of each."""
MAX_LINES = 40_000
"""Maximum lines of Python in the operator's wheel."""
MAX_LINES_RUN = 51_200
"""Maximum lines of Python in the operator's wheel and in halcyon-core, which it requires: 41,000 before there were advice,
taught capacities, batch inference, checks of config.pbtxt, repositories with several models, docstrings that can be read
alone, and what clusters with other tools, other certificates and other people's edits need. Since 49,500: typed values in
place of texts of messages, examples for each field in errors, one serving revision, and pauses of failing Events. Since 50,000:
the planner's and the probe's longest functions in parts, and reasons of pods that their node doesn't prepare."""
ASK = """
import asyncio
from aiohttp.test_utils import TestClient, TestServer
from halcyon.dashboard.authorization import Authorizer
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.server import Dashboard

async def ask():
    site = Dashboard(None, Authorizer(None, clock=float, namespaces=set), ChartHistory(), steps=int)
    async with TestClient(TestServer(site.app())) as client:
        for path in ("/", "/static/app.js"):
            answer = await client.get(path)
            print(answer.status, (await answer.text())[:200])

asyncio.run(ask())
"""


def clone(folder: Path) -> Path:
    """What git has of everything that a wheel is made of."""
    for name in ("operator", "core", "cli", "simulator", "sidecars", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=NOT_IN_GIT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


class Installed:
    """An environment with our wheels; what they depend on is that of the environment that runs the tests."""

    def __init__(self, folder: Path, *sources: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.programs = folder / "bin"
        [packages] = (folder / "lib").glob("python3*/site-packages")
        # The path alone: what makes the clone of the tests importable there, a .pth of an editable install, isn't followed.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.installation = self.run(
            "pip", "install", "--verbose", "--no-index", "--no-deps", "--no-build-isolation", *map(str, sources)
        )

    def wheels(self, folder: Path, *sources: Path) -> dict[str, ZipFile]:
        """The wheels of these sources, by distribution."""
        options = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
        done = self.run("pip", "wheel", *options, *map(str, sources))
        assert done.returncode == 0, done.stderr
        return {path.name.partition("-")[0]: ZipFile(path) for path in folder.glob("*.whl")}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A program of this environment."""
        return subprocess.run(
            [self.programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )


def lines(wheel: ZipFile) -> int:
    """The lines of Python in a wheel."""
    return sum(len(wheel.read(name).splitlines()) for name in wheel.namelist() if name.endswith(".py"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = clone(tmp_path_factory.mktemp("clone"))
    assert not (folder / "operator/halcyon/dashboard/static/uplot").exists()
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Installed:
    return Installed(
        tmp_path_factory.mktemp("environment"), source, source / "core", source / "cli", source / "simulator"
    )


@pytest.fixture(scope="module")
def operator_alone(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Installed:
    return Installed(tmp_path_factory.mktemp("operator"), source, source / "core")


@pytest.fixture(scope="module")
def command_line_alone(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Installed:
    return Installed(tmp_path_factory.mktemp("cli"), source / "core", source / "cli")


def test_pip_installs_a_plain_clone_and_names_the_missing_parts(installed: Installed) -> None:
    assert installed.installation.returncode == 0, installed.installation.stderr
    assert (
        "uPlot.esm.js is not there: all is complete but the operator's dashboard"
        in installed.installation.stdout + installed.installation.stderr
    )


def test_the_command_line_without_the_operator_checks_and_plans(command_line_alone: Installed) -> None:
    example = "manifests/examples/planner.yaml"
    done = command_line_alone.run("halcyon", "lint", "-f", example)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 errors" in done.stdout
    for arguments in (("--help",), ("--version",), ("plan", "--offline", "-f", example), ("explain", "--help")):
        done = command_line_alone.run("halcyon", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
    done = command_line_alone.run("halcyon", "operator")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("halcyon operator: needs the distribution halcyon-operator: pip install")


def test_the_dashboard_of_a_plain_clone_names_what_is_missing(installed: Installed) -> None:
    done = installed.run("python", "-c", ASK)
    page, file = done.stdout.splitlines()[0], done.stdout.splitlines()[1]
    assert page.startswith("503 ")
    assert "its chart library static/uplot is not installed" in page
    assert file.startswith("200 ")


def test_wheels_share_no_file_and_the_operators_neither_simulates_nor_generates(
    installed: Installed, source: Path, tmp_path: Path
) -> None:
    folders = (source, *(source / name for name in ("core", "cli", "simulator", "sidecars")))
    wheels = installed.wheels(tmp_path, *folders)
    assert wheels.keys() == DISTRIBUTIONS.keys()
    names = {
        distribution: [name for name in wheel.namelist() if ".dist-info/" not in name]
        for distribution, wheel in wheels.items()
    }
    assert {key: {name.partition("/")[0] for name in files} for key, files in names.items()} == DISTRIBUTIONS
    held = Counter(name for files in names.values() for name in files)
    assert [name for name, count in held.items() if count > 1] == []
    sources = {
        str(path.relative_to(source / "operator"))
        for path in (source / "operator/halcyon").rglob("*")
        if path.is_file()
    }
    assert {name for name in held if name.startswith("halcyon/")} == sources

    operator, core = (lines(wheels[name]) for name in ("halcyon_operator", "halcyon_core"))
    assert 10_000 < operator <= MAX_LINES
    assert operator < operator + core <= MAX_LINES_RUN


def test_sidecars_run_with_their_wheel(tmp_path: Path, source: Path) -> None:
    both = Installed(tmp_path, source, source / "core", source / "sidecars")
    assert both.installation.returncode == 0, both.installation.stderr
    for process in ("agent", "fetch"):
        done = both.run("halcyon", process, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_the_simulator_and_the_plugin_of_kubectl_come_with_their_wheels(installed: Installed) -> None:
    done = installed.run("halcyon", "simulate", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--scenario" in done.stdout
    for arguments in (("kubectl-halcyon", "--help"), ("kubectl_complete-halcyon", "expl")):
        done = installed.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "explain" in done.stdout


def test_the_operators_wheel_alone_runs_processes_and_names_the_others(operator_alone: Installed) -> None:
    assert operator_alone.installation.returncode == 0, operator_alone.installation.stderr
    for arguments in (("--help",), ("--version",), ("operator", "--help")):
        done = operator_alone.run("halcyon", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
    for process in ("agent", "fetch"):
        done = operator_alone.run("halcyon", process, "--help")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"halcyon {process}: needs the distribution halcyon-sidecars: pip install")
    done = operator_alone.run("halcyon", "explain", "digits")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("halcyon explain: needs the distribution halcyon-cli, which isn't installed: pip")
