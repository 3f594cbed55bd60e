"""The user's functions `prepare` and `finish`, as in `halcyon bench`, in processes of their own; without functions, in a thread.

`prepare(sample)` gets the path of a file, the arrays of a row by name, or the value of a line, and returns an array, or arrays by
input. `finish(outputs)` gets the outputs of one row by name, and returns what is stored in their place.
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
from halcyon_batch.output_parts import plain
from halcyon_batch.row_tensors import BatchModel, RowTensors, fitted, row_tensors, value_of
from halcyon_measure.engine.hooks import load
from halcyon_measure.errors import HookError, TensorError

_LOADED: dict[str, Callable[..., Any]] = {}
"""Functions that this process has loaded, by FILE.py:FUNCTION."""


class Functions:
    """What makes requests from rows, and results from outputs. `close` ends its processes."""

    def __init__(self, prepare: str, finish: str, model: BatchModel, workers: int) -> None:
        self._prepare, self._finish, self._model = prepare, finish, model
        self._pool: Executor = (
            # A forked process would share the connections to the model.
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
            if prepare or finish
            else ThreadPoolExecutor(1)
        )

    async def prepare(self, samples: Sequence[Sample]) -> list[RowTensors | str]:
        """Return the tensors of each row, or why it has none."""
        made: list[RowTensors | str] = await self._run(_prepare, self._prepare, samples, self._model)
        return made

    async def finish(self, outputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
        """Return what is stored for each row, or why there is nothing."""
        if not self._finish:
            return [*outputs]
        made: list[Mapping[str, Any] | str] = await self._run(_finish, self._finish, outputs)
        return made

    def stored(self, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is stored for a row: what `finish` has returned, or the outputs without their dimension of rows."""
        if self._finish or not self._model.is_batched:
            return outputs
        return {name: array[0] for name, array in outputs.items()}

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
        except BrokenProcessPool:
            raise BatchError(
                "FunctionEnded",
                "the process of a function of spec.hooks has ended, for example without memory; run it alone to see why",
            ) from None

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def check(prepare: str, finish: str) -> None:
    """Load the functions once, so that a mistake shows at once.

    Raises:
        BatchError: a file can't be run, or has no such function.
    """
    for where in filter(None, (prepare, finish)):
        try:
            load(where)
        except HookError as error:
            raise BatchError("FunctionInvalid", f"spec.hooks: {error}") from None


def digest(model: str, *functions: str) -> str:
    """Return the digest of what makes results of rows: the model's name, and the functions with their files."""
    made = hashlib.sha256(model.encode())
    for where in functions:
        made.update(b"\0" + where.encode())
        if where:
            made.update(Path(where.rpartition(":")[0]).read_bytes())
    return f"sha256:{made.hexdigest()}"


def _loaded(where: str) -> Callable[..., Any]:
    if where not in _LOADED:
        _LOADED[where] = load(where)
    return _LOADED[where]


def _prepare(where: str, samples: Sequence[Sample], model: BatchModel) -> list[RowTensors | str]:
    found: list[RowTensors | str] = []
    for sample in samples:
        try:
            found.append(_prepared(where, sample, model) if where else row_tensors(sample, model))
        except (TensorError, RowError) as error:
            found.append(str(error))
        except OSError as error:
            found.append(f"{sample.name or 'the row'} can't be read: {error.strerror or error}")
    return found


def _prepared(where: str, sample: Sample, model: BatchModel) -> RowTensors:
    value = value_of(sample)
    try:
        made = _loaded(where)(value)
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything
        raise RowError(_said(error, where)) from None
    return fitted(made, model)


def _finish(where: str, outputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
    found: list[Mapping[str, Any] | str] = []
    for one in outputs:
        try:
            made = _loaded(where)(dict(one))
            kept = made if isinstance(made, Mapping) else {"value": made}
            plain(kept)
            found.append(
                {
                    str(name): value if isinstance(value, np.ndarray) else np.asarray(value)
                    for name, value in kept.items()
                }
            )
        except Exception as error:  # noqa: BLE001  # the user's code may raise anything
            found.append(_said(error, where))
    return found


def _said(error: BaseException, where: str) -> str:
    """Return the place in the user's file and the error, as one line."""
    path = where.rpartition(":")[0]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    at = f"{Path(path).name}, line {lines[-1]}" if lines else Path(path).name
    return f"{at}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
