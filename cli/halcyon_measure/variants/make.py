"""Creation, measurement and comparison of a model's variants.

This module is the interface of the package for commands.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from halcyon_measure.errors import HookError, ModelError
from halcyon_measure.in_process import alone
from halcyon_measure.in_process.process import call
from halcyon_measure.onnx_count import reader
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.analysis import LeftOperator, Variant, VariantsDocument
from halcyon_measure.results.sections.static import TensorShape
from halcyon_measure.variants import comparison, data, repository
from halcyon_measure.variants.conversion import VARIANTS, convert

BASE = "fp32"
MAX_BYTES = 2**31 - 1
_T: Mapping[int, float] = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""97.5 % quantile of Student's t distribution, by number of rounds."""
_LEAST_RUNS = 6
"""Minimum number of executions per round."""
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class VariantsRequest:
    """Settings of the command: the model, the variants to create, and the data for comparing them."""

    model: Path
    data: Path
    out: Path
    calibration: Path | None = None
    labels: str = ""
    score: str = ""
    """User function as FILE.py:FUNCTION. It receives the outputs and the data by name, and returns a number from 0 to 1
    for each row."""
    only: Sequence[str] = tuple(VARIANTS)
    batch: int = 8
    threads: int = 1
    seconds: float = 3.0
    """Total time in seconds of the timed executions of each variant, over all rounds."""
    rounds: int = 5
    """Number of rounds, 2 to 5. In each round, every variant runs once."""


def make(
    request: VariantsRequest, *, program: str, timestamp: str, progress: Progress = lambda _: None
) -> VariantsDocument:
    """Write the model repositories of the variants, and return their figures. All other files are removed.

    Raises:
        MeasureError: the model or its data can't be used. If a single variant fails, its entry has the reason instead.
    """
    repository.check_empty(request.out)
    score = None
    if request.score:
        from halcyon_measure.engine import hooks  # noqa: PLC0415  # of the extra bench, which sends requests

        score = hooks.load(request.score)
    model = reader.read(request.model)
    if model.file_bytes > MAX_BYTES:
        raise ModelError(
            f"{model.path}: it has {model.file_bytes / 2**30:.1f} GiB with its external data; variants are made up to 2 GiB"
        )
    inputs = model.inputs()
    rows = data.read(request.data, inputs, labels=request.labels)
    calibration = data.read(request.calibration, inputs) if request.calibration is not None else None
    compared, calibration_rows = rows, rows
    if "int8-static" in request.only:
        compared, calibration_rows = data.split(request.calibration or request.data, rows, calibration)
    fixed = _fixed_batch(inputs)
    if fixed:
        # Each execution has the number of rows with which the model was exported.
        request = replace(request, batch=fixed)
        compared = compared.part(0, len(compared) // fixed * fixed)
        if not len(compared):
            raise ModelError(
                f"{request.data}: an execution of the model has {fixed} rows, and there are fewer to compare"
            )
    stem = re.sub(r"[^a-z0-9_]+", "_", _stem(model.path).lower()).strip("_") or "model"
    with _removed_on_failure(request.out), tempfile.TemporaryDirectory(prefix="halcyon-variants-") as scratch:
        work = Path(scratch)
        input_arrays: dict[str, Any] = dict(compared.inputs)
        np.savez(work / "rows.npz", **input_arrays)
        variants: list[Variant] = []
        library, base_outputs = "", None
        for name in (BASE, *request.only):
            progress(name)
            folder = request.out / f"{stem}_{name.replace('-', '_')}"
            file = repository.model_file(folder)
            try:
                left_operators = _write(name, model.path, file, calibration_rows, fixed)
                result = _run(file, work, request, seconds=0, outputs=True)
            except ModelError as error:
                if name == BASE:
                    raise
                shutil.rmtree(folder)
                variants.append(_failed(name, str(error)))
                continue
            (folder / "config.pbtxt").write_text(
                repository.configuration(folder.name, inputs, model.outputs()), "utf-8"
            )
            library = f"onnxruntime {result['version']}"
            with np.load(work / "outputs.npz", allow_pickle=False) as outputs:
                arrays = {output: outputs[output] for output in outputs.files}
            base_outputs = arrays if base_outputs is None else base_outputs
            accuracy = _mean_score(score, request.score, arrays, compared) or comparison.accuracy(
                arrays, compared.labels
            )
            base_size = variants[0].size.value if variants else None
            variants.append(
                _variant(
                    name,
                    folder,
                    size=_size(file),
                    base_size=base_size,
                    accuracy=accuracy,
                    outputs=arrays,
                    base_outputs=base_outputs,
                    left_operators=left_operators,
                )
            )
        variants = _timed(variants, work, request, progress)
    return VariantsDocument(
        made_by=program,
        made_at=timestamp,
        model=str(request.model),
        data=str(request.data),
        rows=len(compared),
        calibration_rows=len(calibration_rows) if "int8-static" in request.only else 0,
        batch=request.batch,
        threads=request.threads,
        library=library,
        variants=tuple(variants),
    )


@contextmanager
def _removed_on_failure(out: Path) -> Iterator[None]:
    """Return a context manager that empties a folder, which was empty before, if the comparison fails."""
    existed = out.exists()
    try:
        yield
    except BaseException:
        for child in out.iterdir() if out.exists() else ():
            shutil.rmtree(child)
        if out.exists() and not existed:
            out.rmdir()
        raise


def _stem(path: Path) -> str:
    """Return the name of the model: the name of its folder in a model repository, or else the name of its file."""
    return path.parent.parent.name if path.parent.name.isdigit() else path.stem


def _write(
    name: str, model: Path, file: Path, calibration_rows: data.LabelledRows, fixed: int | None
) -> tuple[LeftOperator, ...]:
    if name != BASE:
        return convert(name, model, file, calibration_rows.inputs, rows=fixed)
    import onnx  # noqa: PLC0415  # of the extra models

    # Write one file without external data, as for the other variants.
    onnx.save(onnx.load(model), file)
    return ()


def _run(file: Path, work: Path, request: VariantsRequest, *, seconds: float, outputs: bool = False) -> dict[str, Any]:
    return call(
        {
            "kind": "run",
            "model": str(file),
            "threads": request.threads,
            "batches": [] if outputs else [request.batch],
            "least_runs": _LEAST_RUNS,
            "rows_at_a_time": request.batch,
            "sizes": {},
            "seconds": seconds,
            "seed": 1,
            "data": str(work / "rows.npz"),
            "outputs": str(work / "outputs.npz") if outputs else None,
        },
        str(file),
    )


def _timed(variants: Sequence[Variant], work: Path, request: VariantsRequest, progress: Progress) -> list[Variant]:
    """Return the variants with their times.

    Every variant runs once in each round, because the machine's speed changes over time.
    """
    results: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in variants if not variant.failure}
    for number in range(request.rounds):
        progress(f"round {number + 1} of {request.rounds}")
        for variant in variants:
            if not variant.failure:
                file = Path(variant.path) / "1" / "model.onnx"
                results[variant.name].append(_run(file, work, request, seconds=request.seconds / request.rounds))
    return [
        variant if variant.failure else variant.model_copy(update=_times(results[variant.name], request.batch))
        for variant in variants
    ]


def _times(rounds: Sequence[Mapping[str, Any]], batch: int) -> dict[str, Figure]:
    times = [result["runs"][str(batch)] for result in rounds]
    pooled = [seconds for durations in times for seconds in durations]
    rates = [batch * len(durations) / sum(durations) for durations in times]
    half = _T[len(rates)] * stdev(rates) / math.sqrt(len(rates))
    loads = [1000 * result["load_s"] for result in rounds]
    return {
        "rate": Figure(
            value=mean(rates), unit="rows/s", n=len(pooled), interval=(max(mean(rates) - half, 0.0), mean(rates) + half),
            source=f"mean of {len(rates)} rounds in turns",
        ),
        "p99": alone.point(batch, pooled).p99,
        "load": Figure(
            value=median(loads), unit="ms", n=len(loads), interval=(min(loads), max(loads)), source="median of loads in new processes"
        ),
        "memory": alone.memory_figure(max(rounds, key=lambda result: result["memory_bytes"])),
    }  # fmt: skip


def _fixed_batch(inputs: Sequence[TensorShape]) -> int | None:
    """Return the fixed number of rows per execution; None if the model doesn't fix it."""
    size = next((tensor.shape[0] for tensor in inputs if tensor.shape), "?")
    return int(size) if size.isdigit() else None


def _mean_score(
    score: Callable[..., Any] | None, function: str, outputs: comparison.Arrays, rows: data.LabelledRows
) -> Figure | None:
    if score is None:
        return None
    try:
        values = score(outputs, rows.all)
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything
        raise HookError(f"{function} raised {type(error).__name__}: {error}") from None
    return comparison.mean_score(values, len(rows), function)


def _size(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.iterdir())


def _variant(
    name: str,
    folder: Path,
    *,
    size: int,
    base_size: float | None,
    accuracy: Figure,
    outputs: comparison.Arrays,
    base_outputs: comparison.Arrays,
    left_operators: tuple[LeftOperator, ...],
) -> Variant:
    largest, mean = comparison.deviations(outputs, base_outputs)
    return Variant(
        name=name,
        path=str(folder),
        failure="",
        size=Figure(value=size, unit="bytes", n=1, source="size of the file"),
        size_ratio=Figure(value=size / (base_size or size), unit="ratio", n=1, source="size over that of fp32"),
        accuracy=accuracy,
        same_label=comparison.same_label(outputs, base_outputs),
        largest_deviation=largest,
        mean_deviation=mean,
        load=unmeasured("ms", "not run yet"),
        memory=unmeasured("bytes", "not run yet"),
        rate=unmeasured("rows/s", "not run yet"),
        p99=unmeasured("ms", "not run yet"),
        left=left_operators,
    )


def _failed(name: str, reason: str) -> Variant:
    ratios = {field: unmeasured("ratio", "it couldn't be made") for field in ("size_ratio", "accuracy", "same_label", "largest_deviation", "mean_deviation")}  # fmt: skip
    times = {field: unmeasured("ms", "it couldn't be made") for field in ("load", "p99")}
    sizes = {field: unmeasured("bytes", "it couldn't be made") for field in ("size", "memory")}
    rate = unmeasured("rows/s", "it couldn't be made")
    return Variant(name=name, path="", failure=reason, rate=rate, left=(), **ratios, **times, **sizes)
