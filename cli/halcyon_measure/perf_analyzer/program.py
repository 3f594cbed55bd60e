"""The installed program perf_analyzer: its path, its version, and its execution."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halcyon_measure.errors import SettingError

NAME = "perf_analyzer"
_INSTALL = (
    "Install it with `pip install perf-analyzer` (Debian 13, Ubuntu 24.04 or newer). For a ModelDeployment, install it in an "
    "image that is based on halcyon-bench, and give that image, for example --bench-image registry.example.com/bench:pa"
)
_VERSION = re.compile(r"Version (\S+) \(commit (\w+)\)")
_NO_VERSION = "0.0.0"
"""Version that the program in NVIDIA's Python package prints."""
_STOP_S = 5.0
_MESSAGE_CHARACTERS = 400


@dataclass(frozen=True)
class Program:
    """An installed perf_analyzer."""

    path: str
    version: str


@dataclass(frozen=True)
class Output:
    """Output of an execution that ended by itself."""

    text: str
    errors: str


class ProgramError(Exception):
    """The execution did not end by itself, or did not begin. The message is a phrase with the reason."""


def installed() -> Program:
    """Return the program on PATH, or in the Python environment of this command.

    Raises:
        SettingError: the program isn't installed, or this machine can't execute it.
    """
    path = shutil.which(NAME) or shutil.which(NAME, path=str(Path(sys.executable).parent)) or _in_package()
    if path is None:
        raise SettingError(
            f"--engine {NAME}: the program is neither on PATH nor in the Python environment of halcyon. {_INSTALL}"
        )
    try:
        # NVIDIA's Python package has a script that always ends with status 0.
        output = execute(path, ["--version"], limit_s=30.0)
    except ProgramError as error:
        raise SettingError(f"--engine {NAME}: {path} can't be executed: {error}. {_INSTALL}") from None
    match = _VERSION.search(output.text + output.errors)
    if match is None:
        raise SettingError(f"--engine {NAME}: {path} --version failed: {message(output)}. {_INSTALL}")
    version = _package_version(Path(path)) if match[1] == _NO_VERSION else match[1]
    return Program(path, f"{version or _NO_VERSION} (commit {match[2]})")


def _in_package() -> str | None:
    """Return the program in NVIDIA's Python package, whose scripts may be outside PATH; None if it isn't installed."""
    spec = importlib.util.find_spec(NAME)
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / "bin" / NAME
    return str(path) if path is not None and os.access(path, os.X_OK) else None


def _package_version(path: Path) -> str:
    """Return the version of the Python package with this program or script; empty if it has none."""
    path = path.resolve()
    folders = [parent for parent in path.parents[:3] for parent in (parent, *parent.glob("lib/python3*/*-packages"))]
    versions = [info.name for folder in folders for info in folder.glob(f"{NAME}-*.dist-info")]
    return versions[0].removeprefix(f"{NAME}-").removesuffix(".dist-info") if versions else ""


def execute(path: str, arguments: Sequence[str], *, limit_s: float, folder: str | None = None) -> Output:
    """Execute the program in a process group of its own, and return its output.

    Ctrl-C ends the program before KeyboardInterrupt is raised.

    Raises:
        ProgramError: the program can't be executed, or takes longer than `limit_s` seconds.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own program
            [path, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(error.strerror or str(error)) from None
    try:
        text, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise ProgramError(f"it did not end within {limit_s:.0f} s") from None
    finally:
        _end(process)
    return Output(text, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process group that is still running."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_STOP_S)
            return


def message(output: Output) -> str:
    """Return the last lines of what the program wrote to stderr, or else to stdout, as one line."""
    lines = [line.strip() for line in (output.errors.strip() or output.text.strip()).splitlines() if line.strip()]
    text = " ".join(dict.fromkeys(lines)) or "it printed nothing"
    return text if len(text) <= _MESSAGE_CHARACTERS else f"{text[:_MESSAGE_CHARACTERS]}..."
