"""`pip install .` in a plain clone: by pip alone, without Node and without what `make bootstrap` fetches."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOT_IN_GIT = shutil.ignore_patterns("__pycache__", "uplot")
"""Of the folders that a wheel is made of."""
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
    for name in ("operator", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=NOT_IN_GIT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


class Installed:
    """An environment with our wheel; what it depends on is that of the environment that runs the tests."""

    def __init__(self, folder: Path, source: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.programs = folder / "bin"
        [packages] = (folder / "lib").glob("python3*/site-packages")
        # The path alone: what makes the clone of the tests importable there, a .pth of an editable install, isn't followed.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.said = self.run(
            "pip", "install", "--verbose", "--no-index", "--no-deps", "--no-build-isolation", str(source)
        )

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


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    source = clone(tmp_path_factory.mktemp("clone"))
    assert not (source / "operator/halcyon/dashboard/static/uplot").exists()
    return Installed(tmp_path_factory.mktemp("environment"), source)


def test_pip_installs_a_plain_clone_and_names_the_missing_parts(installed: Installed) -> None:
    assert installed.said.returncode == 0, installed.said.stderr
    assert "uPlot.esm.js is not there: the command line is complete" in installed.said.stdout + installed.said.stderr


def test_the_command_line_of_a_plain_clone_checks_and_plans(installed: Installed) -> None:
    example = "manifests/examples/planner.yaml"
    done = installed.run("halcyon", "lint", "-f", example)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 errors" in done.stdout
    for arguments in (("--help",), ("--version",), ("plan", "--offline", "-f", example)):
        done = installed.run("halcyon", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_the_dashboard_of_a_plain_clone_names_what_is_missing(installed: Installed) -> None:
    done = installed.run("python", "-c", ASK)
    page, file = done.stdout.splitlines()[0], done.stdout.splitlines()[1]
    assert page.startswith("503 ")
    assert "lacks their chart library, static/uplot" in page
    assert file.startswith("200 ")
