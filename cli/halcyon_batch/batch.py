"""Run of one batch, from its recipe to complete results.

Rows are read and sent in order. A part of the results is written once each of its rows has a result or has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halcyon.api.documents.balancer_plan import LOWER_CLASS_HEADER
from halcyon.api.documents.batch_documents import BatchProgress, BatchRecipe
from halcyon_batch import bucket, functions
from halcyon_batch.errors import BatchError
from halcyon_batch.functions import Functions
from halcyon_batch.input_data import InputData, Sample
from halcyon_batch.input_source import BucketData, check_output_place, open_input
from halcyon_batch.output_parts import Manifest, OutputParts, RowResult, rows_per_part
from halcyon_batch.progress import RowRate
from halcyon_batch.request_rows import MAX_UNKNOWN_ROWS, RequestRows
from halcyon_batch.request_window import RequestWindow
from halcyon_batch.row_tensors import BatchModel, RowTensors, shape_of
from halcyon_batch.sender import Sender
from halcyon_batch.storage import FolderStorage, Storage
from halcyon_measure.errors import SettingError, TargetError
from halcyon_measure.inputs.payloads import batches
from halcyon_measure.protocols import connect, target
from halcyon_measure.protocols.api_key import authorization
from halcyon_measure.protocols.target import Target

_Row = tuple[Sample, RowTensors]
_OPEN_PARTS = 3
"""Maximum number of parts of the results whose rows are in memory: one part is being read, one is being sent, and one
waits for its last answers."""
_REQUEST_BYTES = 4 * 2**20
_REQUESTS_OF_A_BATCH = 4
"""Minimum number of requests that fit in the model's largest batch, so that requests of users can be in the same
batch."""
_PREPARED = 16
"""Minimum number of rows that are prepared together before they are divided into requests."""
_TIMEOUT_S = 600.0
"""Timeout of a request in seconds. A request can wait for a long time behind requests of users."""
_MODEL_WAIT_S = 5.0
_QUIET_S = 10.0


@dataclass
class _OpenPart:
    number: int
    rows_left: int
    results: list[RowResult] = field(default_factory=list)


@dataclass(frozen=True)
class _Run:
    """Objects that all parts of one run of a batch share."""

    data: InputData
    parts: OutputParts
    hooks: Functions
    sender: Sender
    group: asyncio.TaskGroup
    open_parts: asyncio.Semaphore
    """Semaphore that limits the number of parts whose rows are in memory."""


class Batch:
    """Run of a batch by its recipe. It continues where an earlier run ended."""

    def __init__(self, recipe: BatchRecipe, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._recipe, self._clock = recipe, clock
        self._rate = RowRate(clock())
        self._input: InputData | None = None
        self._parts: OutputParts | None = None
        self._sender: Sender | None = None
        self._begun = 0
        """Number of rows in the parts that earlier runs wrote."""
        self._answered = 0
        """Number of rows that have a result or have failed in this run."""
        self._failed = 0
        """Number of rows without a result, both in written parts and in memory."""
        self._answered_at_s = clock()
        self._waiting = ""

    def progress(self, failure: Exception | None = None) -> BatchProgress:
        """Return the progress of the batch. It has a reason only if the batch failed with a BatchError."""
        parts, now_s = self._parts, self._clock()
        if parts is None:
            progress = BatchProgress(total=None if self._input is None else self._input.total, waiting=self._waiting)
        else:
            total = parts.manifest.total
            waiting = self._waiting
            if not waiting and self._sender is not None and now_s - self._answered_at_s > _QUIET_S:
                waiting = self._sender.waiting
            progress = BatchProgress(
                total=total,
                done=parts.rows - parts.failed,
                failed=parts.failed,
                rows_per_s=self._rate.per_s(now_s),
                left_s=0.0
                if parts.is_complete
                else self._rate.left_s(max(total - self._begun - self._answered, 0), now_s),
                rows_per_request=self._sender.sizes.chosen if self._sender else None,
                is_complete=parts.is_complete,
                waiting=waiting,
            )
        if failure is None:
            return progress
        if isinstance(failure, BatchError):
            return replace(progress, reason=failure.reason, message=str(failure))
        return replace(progress, message=": ".join(filter(None, (type(failure).__name__, str(failure)))))

    async def run(self) -> None:
        """Compute and write all parts of the results that are missing.

        Raises:
            BatchError: the batch can't continue unless the user changes something.
            OSError: a volume failed; a new runner can continue.
        """
        recipe = self._recipe
        functions.check(recipe.prepare, recipe.finish)
        with contextlib.ExitStack() as clients:
            self._waiting = f"{self._source} is being read"
            data = self._input = await asyncio.to_thread(self._open_input, clients)
            if data.format == "Folder":
                check_output_place(recipe)
            storage = await asyncio.to_thread(self._open_output, clients)
            await self._make_parts(data, storage)

    @property
    def _source(self) -> str:
        """Path or URI of the input, for messages."""
        return self._recipe.input if self._recipe.input_bucket is None else self._recipe.input_bucket.url

    def _open_input(self, clients: contextlib.ExitStack) -> InputData:
        recipe, location = self._recipe, self._recipe.input_bucket
        if location is None:
            return open_input(recipe.input, recipe.input_format)
        client = clients.enter_context(bucket.opened(location, "spec.input"))
        return BucketData(client, location, Path(recipe.input), recipe.input_format)

    def _open_output(self, clients: contextlib.ExitStack) -> Storage:
        if self._recipe.output_bucket is None:
            return FolderStorage(self._recipe.output)
        return clients.enter_context(bucket.opened(self._recipe.output_bucket, "spec.output"))

    async def _make_parts(self, data: InputData, storage: Storage) -> None:
        parts = self._parts = await asyncio.to_thread(self._begin, data, storage)
        self._begun, self._failed = parts.rows, parts.failed
        self._waiting = ""
        self._check_failures("")
        if parts.missing:
            await self._send_all(data, parts)
        if not parts.is_complete:
            await asyncio.to_thread(self._check_input, data, parts)
            await asyncio.to_thread(parts.finish)

    def _begin(self, data: InputData, storage: Storage) -> OutputParts:
        recipe = self._recipe
        manifest = Manifest(
            owner=recipe.owner,
            name=recipe.name,
            digest=data.digest,
            total=data.total,
            rows_per_part=recipe.rows_per_part
            or max(rows_per_part(data.total, data.row_bytes), min(recipe.rows_per_request or 1, data.total)),
            format=recipe.output_format or ("Npz" if data.format == "Npz" else "Jsonl"),
            made_with=functions.digest(recipe.model, recipe.prepare, recipe.finish),
        )
        location = recipe.output if recipe.output_bucket is None else recipe.output_bucket.url
        return OutputParts.begin(storage, manifest, location)

    async def _send_all(self, data: InputData, parts: OutputParts) -> None:
        model_target, config = await self._wait_for_model()
        most = _largest_request(config)
        model = BatchModel(
            model_target.inputs, batches(model_target.inputs) if most is None else most != 0, _optional_inputs(config)
        )
        most = self._recipe.max_rows or most or MAX_UNKNOWN_ROWS
        # The balancers let only a few rows of a gentle batch go at a time, and requests of more rows would wait for more.
        is_single = not model.is_batched or (self._recipe.gentle and self._recipe.rows_per_request is None)
        sizes = RequestRows(
            fixed=1 if is_single else self._recipe.rows_per_request,
            most=max(min(most, _REQUEST_BYTES // data.row_bytes, parts.manifest.rows_per_part), 1),
        )
        # If a model computes batches, the balancers limit a gentle batch themselves (`lower_room`).
        window = RequestWindow(gentle=self._recipe.gentle and not model.is_batched)
        hooks = Functions(self._recipe.prepare, self._recipe.finish, model, self._recipe.workers)
        client = connect.client(model_target)
        sender = self._sender = Sender(
            client, model_target, window, sizes, partial(_key_header, self._recipe.api_key_file), clock=self._clock
        )
        self._rate.restart(self._clock())
        open_parts = asyncio.Semaphore(_OPEN_PARTS)
        try:
            async with asyncio.TaskGroup() as group:
                for number in parts.missing:
                    await open_parts.acquire()
                    await self._send_part(number, _Run(data, parts, hooks, sender, group, open_parts))
        except BaseExceptionGroup as errors:
            raise _first_error(errors) from None
        finally:
            hooks.close()
            await client.close()

    async def _send_part(self, number: int, run: _Run) -> None:
        """Read, prepare and send the rows of a part.

        The part is written when the last of its requests is answered.
        """
        try:
            samples = await asyncio.to_thread(run.data.read, *run.parts.manifest.rows(number))
        except (OSError, ValueError) as error:
            await asyncio.to_thread(self._check_input, run.data, run.parts)
            raise BatchError("InputUnreadable", f"spec.input: {self._source} can't be read: {error}") from None
        part, sizes = _OpenPart(number, len(samples)), run.sender.sizes
        prepared: list[_Row] = []
        while samples or prepared:
            if samples and len(prepared) < sizes.rows:
                # Few rows at a time, so that the functions run no further ahead than requests can follow.
                portion, samples = samples[: max(sizes.rows, _PREPARED)], samples[max(sizes.rows, _PREPARED) :]
                prepared += await self._prepare_rows(part, portion, run)
            elif prepared:
                await run.sender.enter()
                chunk = _rows_of_equal_shape(prepared, sizes.rows)
                prepared = prepared[len(chunk) :]
                run.group.create_task(self._send(part, chunk, run))

    async def _prepare_rows(self, part: _OpenPart, samples: Sequence[Sample], run: _Run) -> list[_Row]:
        prepared = [*zip(samples, await run.hooks.prepare(samples), strict=True)]
        await self._record(
            part,
            [
                RowResult(sample.row, sample.name, None, failure)
                for sample, failure in prepared
                if isinstance(failure, str)
            ],
            run,
        )
        return [(sample, tensors) for sample, tensors in prepared if not isinstance(tensors, str)]

    async def _send(self, part: _OpenPart, chunk: Sequence[_Row], run: _Run) -> None:
        was_chosen = run.sender.sizes.is_chosen
        try:
            outcomes = await run.sender.outcomes([tensors for _, tensors in chunk])
        finally:
            await run.sender.leave()
        if run.sender.sizes.is_chosen and not was_chosen:
            self._rate.restart(self._clock())
        await self._record(part, await _results(chunk, outcomes, run.hooks), run)

    async def _record(self, part: _OpenPart, results: Sequence[RowResult], run: _Run) -> None:
        if not results:
            return
        part.results += results
        part.rows_left -= len(results)
        self._count(results)
        if not part.rows_left:
            part.results.sort(key=lambda result: result.row)
            await asyncio.to_thread(self._check_input, run.data, run.parts, *run.parts.manifest.rows(part.number))
            await asyncio.to_thread(run.parts.write, part.number, part.results)
            run.open_parts.release()

    def _count(self, results: Sequence[RowResult]) -> None:
        now_s = self._answered_at_s = self._clock()
        self._answered += len(results)
        self._rate.add(len(results), now_s)
        failed = [result for result in results if result.outputs is None]
        self._failed += len(failed)
        if failed:
            self._check_failures(f"; row {failed[-1].row}: {failed[-1].failure}")

    def _check_failures(self, example: str) -> None:
        if self._failed > self._recipe.max_failures:
            raise BatchError(
                "TooManyFailures",
                f"{self._failed} rows have no result, and spec.maxFailures is {self._recipe.max_failures}{example}; correct the rows in a "
                "new data set, or raise maxFailures to go on with the others",
            )

    def _check_input(self, data: InputData, parts: OutputParts, *rows: int) -> None:
        if data.is_unchanged(*rows):
            return
        try:
            digest = data.digest_now()
        except BatchError as error:
            digest = f"unknown, because {error}"
        if digest != parts.manifest.digest:
            raise BatchError(
                "InputChanged",
                f"spec.input has changed while it was read: its digest is {digest}, and the results are those of {parts.manifest.digest}; "
                "put the former content back, or make a new BatchInference with a new output",
            )

    async def _wait_for_model(self) -> tuple[Target, Mapping[str, Any]]:
        """Return the model with its inputs, and its configuration in Triton.

        The configuration is empty if the server doesn't return it. The function waits until a server describes the
        model. If the model has 0 replicas, a replica must be started first.
        """
        recipe = self._recipe
        while True:
            model_target = target.parse(
                recipe.url,
                api="kserve",
                transport=None,
                encoding=None,
                model=recipe.model,
                headers=((LOWER_CLASS_HEADER, recipe.name), *_key_header(recipe.api_key_file)),
                timeout_s=_TIMEOUT_S,
            )
            try:
                described = await asyncio.to_thread(connect.described, model_target)
                config = await asyncio.to_thread(_config, described)
            except TargetError as error:
                self._waiting = str(error)
                await asyncio.sleep(_MODEL_WAIT_S)
            else:
                self._waiting = ""
                return described, config


def _config(model_target: Target) -> Mapping[str, Any]:
    status, body = connect.exchange(model_target, "GET", f"/v2/models/{quote(model_target.model, safe='')}/config")
    if status >= 500 or status == 429:  # without optional inputs, rows that leave them out would have failed
        raise TargetError(f"{model_target.url} doesn't return the configuration of {model_target.model}: {status}")
    try:
        config = json.loads(body) if status < 400 else {}
    except ValueError:
        return {}
    return config if isinstance(config, Mapping) else {}


def _largest_request(config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of rows in a request, from the model's configuration in Triton.

    The result is 0 if the model doesn't support batching, and None if the configuration is unknown. With dynamic
    batching, it is a fraction of the largest batch (`_REQUESTS_OF_A_BATCH`), because the server combines requests in a
    batch.
    """
    max_batch = config.get("max_batch_size", 0 if config else None)
    if not isinstance(max_batch, int):
        return None
    return max(max_batch // _REQUESTS_OF_A_BATCH, min(max_batch, 1)) if "dynamic_batching" in config else max_batch


def _optional_inputs(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the inputs that a request may omit. The model's metadata doesn't contain this."""
    return frozenset(str(tensor["name"]) for tensor in config.get("input") or () if tensor.get("optional"))


def _key_header(file: str) -> tuple[tuple[str, str], ...]:
    """Return the request header with the API key from a file or folder; empty if `file` is empty or has no key now."""
    try:
        return (authorization(Path(file)),) if file else ()
    except SettingError:  # the kubelet replaces the files of a Secret, or a user has removed the key
        return ()


async def _results(
    chunk: Sequence[_Row], outcomes: Sequence[Mapping[str, Any] | str], hooks: Functions
) -> list[RowResult]:
    outputs = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    finished = iter(await hooks.finish(outputs)) if outputs else iter(())
    results = []
    for (sample, _), outcome in zip(chunk, outcomes, strict=True):
        value = outcome if isinstance(outcome, str) else next(finished)
        if isinstance(value, str):
            results.append(RowResult(sample.row, sample.name, None, value))
        else:
            results.append(RowResult(sample.row, sample.name, hooks.stored(value)))
    return results


def _rows_of_equal_shape(rows: Sequence[_Row], most: int) -> Sequence[_Row]:
    """Return the first rows that fit in one request: at most `most`, all with the shape of the first row."""
    shape = shape_of(rows[0][1])
    return [*takewhile(lambda row: shape_of(row[1]) == shape, rows[:most])]


def _first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first BatchError in a group of errors, because the user must remove its cause.

    If the group has no BatchError, the result is its first error.
    """
    batch_errors, _ = errors.split(BatchError)
    first: BaseException = batch_errors or errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
