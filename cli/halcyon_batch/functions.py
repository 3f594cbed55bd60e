"""Execution of the user's functions `prepare` and `finish` in separate processes.

`prepare(sample)` receives the path of a file, the arrays of a row by name, or the JSON value of a line. It returns one
array, or arrays by input name. `finish(outputs)` receives the outputs of one row by name, and returns the value to
store. The functions have the same form as in `halcyon bench`. Without such functions, rows are converted in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_batch.errors import BatchError, RowError, is_temporary
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
_MAX_READS, _READ_WAIT_S = 3, 2.0
"""Number of reads of a file after which its row has failed, and the time between two reads in seconds. The row fails only
if another file can be read meanwhile. Otherwise the volume has failed."""
_MAX_OTHERS = 8
"""Maximum number of other files that are read to find out whether the volume has failed."""


class Functions:
    """Executor of the user's functions `prepare` and `finish`.

    `prepare` converts rows to tensors, and `finish` converts outputs to results. `close` ends the processes of the
    executor.
    """

    def __init__(
        self,
        prepare: str,
        finish: str,
        model: BatchModel,
        workers: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._prepare, self._finish, self._model, self._sleep = prepare, finish, model, sleep
        self._read: Sequence[Sample] = ()
        """Row whose file was read; empty until there is one."""
        self._pool: Executor = (
            # A forked process would share the connections to the model.
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
            if prepare or finish
            else ThreadPoolExecutor(1)
        )

    async def prepare(self, samples: Sequence[Sample]) -> list[RowTensors | str]:
        """Return, for each row, its tensors, or the reason why it has none, as text.

        Raises:
            OSError: the volume with the files has failed; a new runner can continue.
        """
        try:
            prepared: list[RowTensors | str] = await self._run(_prepare, self._prepare, samples, self._model)
        except OSError:
            if not samples[0].name:
                raise
            # The row whose file can't be read is unknown.
            prepared = [await self._prepare_alone(sample, samples) for sample in samples]
        read = [sample for sample, row in zip(samples, prepared, strict=True) if not isinstance(row, str)]
        self._read = read[:1] or self._read
        return prepared

    async def _prepare_alone(self, sample: Sample, samples: Sequence[Sample]) -> RowTensors | str:
        """Return the tensors of a row, or the reason why it has none. Read its file again if it can't be read."""
        row: RowTensors | str
        for reads_left in reversed(range(_MAX_READS)):
            try:
                (row,) = await self._run(_prepare, self._prepare, [sample], self._model)
            except OSError as error:
                others = [other.value for other in (*self._read, *samples) if other.row != sample.row]
                if not await asyncio.to_thread(lambda paths: any(map(_is_readable, paths)), others[:_MAX_OTHERS]):
                    raise
                if not reads_left:
                    # An error of the user's function has no file name.
                    text = error.strerror or str(error)
                    return text if error.filename is None else f"{sample.name} can't be read: {text}"
                await self._sleep(_READ_WAIT_S)
            else:
                return row
        raise AssertionError("unreachable")

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
            if is_temporary(error):
                raise
            rows.append(f"{sample.name or 'the row'} can't be read: {error.strerror or error}")
    return rows


def _prepare_row(function: str, sample: Sample, model: BatchModel) -> RowTensors:
    value = value_of(sample)
    try:
        prepared = _load_once(function)(value)
    except USER_ERRORS as error:
        text = _error_text(error, function)
        if sample.name:
            # The function may only have failed because the volume fails. The read then raises an OSError.
            Path(sample.value).read_bytes()
            if isinstance(error, OSError) and is_temporary(error):
                raise OSError(error.errno, text) from None
        raise RowError(text) from None
    return fitted(prepared, model)


def _is_readable(path: str) -> bool:
    """Return whether the first bytes of a file can be read from the volume, and not only from the page cache."""
    try:
        with Path(path).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return bool(file.read(1))
    except OSError:
        return False


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
