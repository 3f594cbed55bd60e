"""User functions that prepare a request or process its answer.

They run in their own processes, and their time is measured separately.

`prepare(sample)` returns an array, or a mapping of arrays by input name. If files are given, `sample` is the path of a
file, otherwise it is the number of the request. `finish(outputs)` receives the output arrays by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import math
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from halcyon_measure.errors import HookError, MeasureError
from halcyon_measure.inputs.payloads import Payload, optional, rows_of
from halcyon_measure.inputs.tensors import InputFile, array_of, fit, tensors
from halcyon_measure.protocols.connect import outputs
from halcyon_measure.protocols.reply import Prepared, Reply
from halcyon_measure.protocols.target import Target

DECODE = "decode"
"""Name of the built-in function that reads a file and converts it to the model's input when its request is due."""
MAX_PROCESSES = 64
CLOSE_TIMEOUT_S = 1.0
"""Maximum time in seconds for which `close` waits for processes."""
USER_ERRORS = (Exception, SystemExit)
"""Exceptions that a user function or its file may raise. They include SystemExit, which would otherwise end this
process with a status that may be 0."""


@dataclass(frozen=True, kw_only=True)
class HookSettings:
    """User functions and their settings, as plain values."""

    prepare: str = ""
    """User function as FILE.py:FUNCTION, or `DECODE`; empty for none."""
    finish: str = ""
    samples: tuple[str, ...] = ()
    """Paths of the files that are passed to `prepare` in turn."""
    pixel_scale: float | None = None
    processes: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in their JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Parse settings from the JSON form that `to_dict` returns."""
        return cls(**{**fields, "samples": tuple(fields["samples"])})


class Hooks:
    """User functions and the pool of processes in which they run. `close` ends the processes."""

    def __init__(self, settings: HookSettings, target: Target) -> None:
        self.prepares, self.finishes = bool(settings.prepare), bool(settings.finish)
        self.busy_s = 0.0
        """Time in seconds that the functions ran in the measured part, not including waits for a process."""
        self.measured_from = self.measured_until = math.inf
        """Beginning and end of the measured part, in seconds of the monotonic clock."""
        self._pool: Executor = ProcessPoolExecutor(
            settings.processes,
            # The processes are spawned, because a forked process would share the sockets of the load.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_initialize,
            initargs=(settings.to_dict(), target.to_dict()),
        )

    async def start(self) -> None:
        """Start a process and wait until it is ready, so that the import of NumPy doesn't count as preparation time."""
        await self._run(_start)

    async def prepare(self, number: int) -> Prepared:
        """Return the prepared request with the given number.

        Raises:
            HookError: the user function raised an exception, or returned something other than tensors.
        """
        prepared: Prepared = await self._run(_prepare, number)
        return prepared

    async def finish(self, reply: Reply, number: int) -> float:
        """Pass an answer to the user function `finish`, and return the decoding time in seconds.

        Raises:
            HookError: the function raised an exception.
        """
        decode_s: float = await self._run(_finish, reply, number)
        return decode_s

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            began, ended, value = await asyncio.get_running_loop().run_in_executor(
                self._pool, _timed, function, *arguments
            )
        except BrokenProcessPool:
            raise HookError(
                "the process in which the user function ran has ended; call the function in Python to see why"
            ) from None
        self.busy_s += max(min(ended, self.measured_until) - max(began, self.measured_from), 0.0)
        return value

    def close(self) -> None:
        """End the processes, and wait up to `CLOSE_TIMEOUT_S` for them.

        A function that runs longer is not awaited. If no function runs, the processes end at once. Python would print a
        traceback if it exited while they end (OSError "Bad file descriptor" of the pool's thread).
        """
        ending = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        ending.join(CLOSE_TIMEOUT_S)


def load(hook: str) -> Callable[..., Any]:
    """Load the user function given as FILE.py:FUNCTION.

    Raises:
        HookError: the file can't be run, or has no such function.
    """
    path, _, name = hook.rpartition(":")
    if not path or not name.isidentifier():
        raise HookError(f"{hook} isn't FILE.py:FUNCTION; for example hook.py:prepare")
    if not Path(path).is_file():
        raise HookError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("halcyon_bench_hook", path)
    if spec is None or spec.loader is None:
        raise HookError(f"{path}: not a Python file; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a command may print JSON
            spec.loader.exec_module(module)
    except USER_ERRORS as error:
        raise HookError(_error_text(error, path)) from None
    function: Any = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise HookError(f"{path} has no function {name}; it has {', '.join(names) or 'none'}")
    return function  # type: ignore[no-any-return]  # callable, as checked


@dataclass(frozen=True)
class _State:
    settings: HookSettings
    target: Target
    prepare: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    encode: Callable[[Target, Payload], Prepared]


_STATE: list[_State] = []
"""State of this process of the pool, as a list with one element. It is global because the pool calls functions by
name."""


def _initialize(settings_fields: Mapping[str, Any], target_fields: Mapping[str, Any]) -> None:
    # The pool reads the worker's standard output, which this process has inherited, as events.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings, target = HookSettings.from_dict(settings_fields), Target.from_dict(target_fields)
    if target.transport == "grpc":
        from halcyon_measure.protocols.grpc_client import encode  # noqa: PLC0415  # grpcio only if it is used
    else:
        from halcyon_measure.protocols.http_client import encode  # noqa: PLC0415
    prepare = None if settings.prepare in {"", DECODE} else load(settings.prepare)
    _STATE.append(_State(settings, target, prepare, load(settings.finish) if settings.finish else None, encode))


def _end_with_parent() -> None:
    """End this process together with its parent, a worker that the pool may kill.

    Otherwise this process would keep the worker's pipes open, and the pool would wait until they are closed.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, float, Any]:
    began = time.monotonic()
    value = function(*arguments)
    return began, time.monotonic(), value


def _start() -> None:
    """Do nothing. The pool runs this function in a process to find out when the process is ready."""


def _prepare(number: int) -> Prepared:
    state = _STATE[0]
    samples = state.settings.samples
    sample: Any = samples[number % len(samples)] if samples else number
    if state.prepare is None:
        arrays = _decoded(state, sample)
    else:
        try:
            arrays = _tensors(state.prepare(sample), state)
        except USER_ERRORS as error:
            path = state.settings.prepare.rpartition(":")[0]
            raise HookError(f"{_error_text(error, path)}, in request {number}") from None
    began = time.monotonic()
    prepared = state.encode(state.target, Payload(arrays, rows_of(arrays, state.target.inputs)))
    return replace(prepared, encode_s=time.monotonic() - began)


def _decoded(state: _State, sample: str) -> dict[str, Any]:
    try:
        file = InputFile(sample, Path(sample).read_bytes())
        inputs, scale = state.target.inputs, state.settings.pixel_scale
        return tensors([file], inputs, pixel_scale=scale, optional=lambda: optional(inputs))
    except (OSError, MeasureError) as error:
        raise HookError(str(error)) from None


def _tensors(value: Any, state: _State) -> dict[str, Any]:
    inputs = state.target.inputs
    needed = [model_input for model_input in inputs if not model_input.is_optional] or list(inputs)
    if isinstance(value, np.ndarray) and len(needed) == 1:
        value = {needed[0].name: value}
    if not isinstance(value, dict):
        raise TypeError(f"it returned {type(value).__name__}; it must return an array, or arrays by input")
    names = {model_input.name for model_input in inputs}
    if value.keys() - names or names - value.keys() - optional(inputs):
        raise TypeError(
            f"it returned {', '.join(map(str, value))}; it must return {', '.join(model_input.name for model_input in inputs)}"
        )
    # The bytes of another type would be read as other values.
    return {
        model_input.name: fit(array_of(value[model_input.name]), model_input, f"input {model_input.name}")
        for model_input in inputs
        if model_input.name in value
    }


def _finish(reply: Reply, number: int) -> float:
    state = _STATE[0]
    began = time.monotonic()
    try:
        arrays = outputs(state.target, reply)
        decoded = time.monotonic()
        if state.finish is not None:
            state.finish(arrays)
    except USER_ERRORS as error:
        path = state.settings.finish.rpartition(":")[0]
        raise HookError(f"{_error_text(error, path)}, in request {number}") from None
    return decoded - began


def _error_text(error: BaseException, path: str) -> str:
    """Return the location in the user's file where the error was raised, and the error, on one line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    location = f"{path}, line {lines[-1]}" if lines else path
    return f"{location}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def check(settings: HookSettings) -> None:
    """Load the user functions once, so that errors are found before the load begins.

    Raises:
        HookError: a file can't be run or has no such function, or the number of processes is out of range.
    """
    if not 1 <= settings.processes <= MAX_PROCESSES:
        raise HookError(f"hook-processes is {settings.processes}; it must be 1 to {MAX_PROCESSES}, for example 2")
    for hook in (settings.prepare, settings.finish):
        if hook and hook != DECODE:
            load(hook)
    if settings.prepare == DECODE and not settings.samples:
        raise HookError("decode needs files; for example --input FOLDER --decode")


def sample_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the given files, and of the files in the given folders, sorted by name.

    Raises:
        HookError: a path doesn't exist, or a folder is empty.
    """
    sample_files: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            files = sorted(
                str(file) for file in Path(path).iterdir() if file.is_file() and not file.name.startswith(".")
            )
            if not files:
                raise HookError(f"{path}: an empty folder; it needs files such as x.npy or x.jpg")
            sample_files += files
        elif Path(path).is_file():
            sample_files.append(path)
        else:
            raise HookError(f"{path}: no such file or folder")
    return tuple(sample_files)
