"""Execution of the user's functions `prepare` and `finish` in separate processes.

`prepare(sample)` receives the path of a file, the arrays of a row by name, or the JSON value of a line. It returns one
array, or arrays by input name. `finish(outputs)` receives the outputs of one row by name, and returns the value to
store. The functions have the same form as in `halcyon bench`. Without such functions, rows are converted in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_batch.errors import BatchError, RowError
from halcyon_batch.input_data import Sample
from halcyon_batch.row_tensors import BatchModel, RowTensors, fitted, row_tensors, value_of
from halcyon_measure.engine.hooks import USER_ERRORS, load
from halcyon_measure.errors import HookError, TensorError

_BUILT_IN: Mapping[type, Callable[[Any], Any]] = {
    bool: bool,
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}
"""Functions that convert an instance of a subclass to its built-in class, by built-in class."""
_LOADED: dict[str, Callable[..., Any]] = {}
"""User functions that this process has already loaded, by FILE.py:FUNCTION."""


class Functions:
    """Executor of the user's functions `prepare` and `finish`.

    `prepare` converts rows to tensors, and `finish` converts outputs to results. `close` ends the processes of the
    executor.
    """

    def __init__(self, prepare: str, finish: str, model: BatchModel, workers: int) -> None:
        self._prepare, self._finish, self._model = prepare, finish, model
        self._pool: Executor = (
            # A forked process would share the connections to the model.
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
            if prepare or finish
            else ThreadPoolExecutor(1)
        )

    async def prepare(self, samples: Sequence[Sample]) -> list[RowTensors | str]:
        """Return, for each row, its tensors, or the reason why it has none, as text."""
        prepared: list[RowTensors | str] = await self._run(_prepare, self._prepare, samples, self._model)
        return prepared

    async def finish(self, outputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
        """Return, for each row, the values to store, or the reason why it has none, as text."""
        if not self._finish:
            return [*outputs]
        finished: list[Mapping[str, Any] | str] = await self._run(_finish, self._finish, outputs)
        return finished

    def stored(self, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values to store for a row.

        They are the result of `finish`, or else the outputs without their batch dimension. An output whose first
        dimension isn't 1, such as a list of objects in an image, has no batch dimension and is stored unchanged.
        """
        if self._finish or not self._model.is_batched:
            return outputs
        return {name: array[0] if array.shape[:1] == (1,) else array for name, array in outputs.items()}

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
        except BrokenProcessPool:
            raise BatchError(
                "FunctionEnded",
                "the process of a function of spec.hooks has ended, for example without memory; run it alone to see why",
            ) from None

    def close(self) -> None:
        """End the processes that run the user's functions."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def check(prepare: str, finish: str) -> None:
    """Load the user's functions once, so that errors in them are found before the batch begins.

    Raises:
        BatchError: a file can't be run, or doesn't contain the function.
    """
    for function in filter(None, (prepare, finish)):
        try:
            load(function)
        except HookError as error:
            raise BatchError("FunctionInvalid", f"spec.hooks: {error}") from None


def digest(model: str, *functions: str) -> str:
    """Return a digest of the model's name and of the user's functions with their files.

    One output must not contain results with different digests.
    """
    hasher = hashlib.sha256(model.encode())
    for function in functions:
        hasher.update(b"\0" + function.encode())
        if function:
            hasher.update(Path(function.rpartition(":")[0]).read_bytes())
    return f"sha256:{hasher.hexdigest()}"


def _load_once(function: str) -> Callable[..., Any]:
    if function not in _LOADED:
        _LOADED[function] = load(function)
    return _LOADED[function]


def _prepare(function: str, samples: Sequence[Sample], model: BatchModel) -> list[RowTensors | str]:
    rows: list[RowTensors | str] = []
    for sample in samples:
        try:
            rows.append(_prepare_row(function, sample, model) if function else row_tensors(sample, model))
        except (TensorError, RowError) as error:
            rows.append(str(error))
        except OSError as error:
            rows.append(f"{sample.name or 'the row'} can't be read: {error.strerror or error}")
    return rows


def _prepare_row(function: str, sample: Sample, model: BatchModel) -> RowTensors:
    value = value_of(sample)
    try:
        prepared = _load_once(function)(value)
    except USER_ERRORS as error:
        raise RowError(_error_text(error, function)) from None
    return fitted(prepared, model)


def _finish(function: str, outputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
    results: list[Mapping[str, Any] | str] = []
    for row_outputs in outputs:
        try:
            result = _load_once(function)(dict(row_outputs))
            results.append(_portable(result if isinstance(result, Mapping) else {"value": result}))
        except USER_ERRORS as error:
            results.append(_error_text(error, function))
    return results


def _portable(value: Any) -> Any:
    """Return a value whose objects can be sent to another process, which doesn't know the classes of the user's file.

    Lists aren't converted to arrays, because an array has only one type.
    """
    if isinstance(value, Mapping):
        return {str(name): _portable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(item) for item in value]
    for kind, built_in in _BUILT_IN.items():
        if isinstance(value, kind):
            return built_in(value)
    array = np.asarray(value)  # also of a tensor of another library
    if not array.dtype.hasobject:
        return array[()]
    if not isinstance(value, np.ndarray) and not array.ndim:
        return None if value is None else str(value)
    return _portable(array.tolist())


def _error_text(error: BaseException, function: str) -> str:
    """Return the text of an error on one line, with the line number in the user's file."""
    path = function.rpartition(":")[0]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    location = f"{Path(path).name}, line {lines[-1]}" if lines else Path(path).name
    return f"{location}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
