"""Fixtures of the page tests: a cluster with the chart and without models."""

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence

import pytest

from demo import setup
from demo.kube import Kube
from demo.models import REPOSITORY
from e2e import interrupts

NAME = "guides"


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    try:
        with interrupts.heeded():
            yield setup.install(NAME, step=lambda title: print(f"guides: {title}", flush=True)).kube
    finally:
        setup.remove(NAME, step=lambda title: print(f"guides: {title}", flush=True))


def environment(kube: Kube) -> dict[str, str]:
    """Return a reader's environment: the cluster's programs and Halcyon's on PATH."""
    path = f"{kube.programs}:{without_cluster()['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(kube.kubeconfig)}


def without_cluster() -> dict[str, str]:
    """Return the environment of a reader who has Halcyon's programs on PATH, and no cluster."""
    path = f"{REPOSITORY / '.venv' / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": "/dev/null"}


def run(script: str, kube: Kube, *, limit_s: float) -> str:
    """Run a script in a reader's shell, which ends at the first failing command, and return its output."""
    status, output = _bash(script, environment(kube), limit_s, "-v")
    assert status == 0, f"{script}\n{output[-6000:]}"
    return output


def run_steps(scripts: Sequence[str], shell: Mapping[str, str], *, limit_s: float) -> list[str]:
    """Run scripts one after another in one shell with this environment, and return the output of each."""
    mark = f"--- {secrets.token_hex(8)}"
    status, output = _bash(
        "".join(f"{script.rstrip()}\nprintf '%s\\n' '{mark}'\n" for script in scripts), shell, limit_s
    )
    *printed, remainder = output.split(f"{mark}\n")
    assert status == 0, f"{scripts[len(printed)]}\n{remainder[-6000:]}"
    return printed


def _bash(script: str, shell: Mapping[str, str], limit_s: float, *options: str) -> tuple[int, str]:
    """Run a script that ends at its first failing command. Return its exit status and its output."""
    completed = subprocess.run(
        ["bash", *options, "-euo", "pipefail", "-c", script],
        cwd=REPOSITORY,
        env=shell,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=limit_s,
    )
    return completed.returncode, completed.stdout
