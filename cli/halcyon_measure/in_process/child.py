"""Child process that runs a model or measures the machine's peak rates.

It reads a job as JSON on stdin and writes the result as JSON on stdout.

python -m halcyon_measure.in_process.child
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray[Any, Any]]

MIN_RUNS, MAX_RUNS = 30, 10_000
"""Minimum and maximum number of timed executions of one batch size."""
_WARM_UP_S = 0.3
_TYPES: Mapping[str, Any] = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip
_CHUNK = 16_384
"""Number of elements that a thread processes at once. Three arrays of this size fit into the L2 cache of a core."""
_SAMPLE_S = 0.3
MAX_SAMPLES = 15
_MAX_CV = 0.02
"""Maximum coefficient of variation at which samples count as consistent."""


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Load a model, run it with each batch size, and return times in seconds and sizes in bytes.

    Fields of the job: `model`, `threads`, `batches`, `seconds` for each batch size, `sizes` of symbolic dimensions, and
    `seed`. Optional fields: `data`, an .npz file with the inputs, and `outputs`, an .npz file to which the outputs of
    all rows of the data are written. The rows are executed `rows_at_a_time`.
    """
    import onnxruntime  # noqa: PLC0415  # of the extra models

    onnxruntime.set_default_logger_severity(4)
    before = _memory("VmRSS")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job["threads"], 1
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
    load_s = time.perf_counter() - begin
    data = None
    if job.get("data"):
        with np.load(job["data"], allow_pickle=False) as stored:
            data = {name: stored[name] for name in stored.files}
    if job.get("outputs") and data is not None:
        outputs: dict[str, Any] = _outputs(session, data, job["rows_at_a_time"])
        np.savez(job["outputs"], **outputs)
    runs: dict[str, list[float]] = {}
    for batch in job["batches"]:
        feed = _rows(data, batch) if data is not None else _random(session, batch, job["sizes"], job["seed"])
        names = [output.name for output in session.get_outputs()]
        runs[str(batch)] = _timed(lambda: session.run(names, feed), job["seconds"], job.get("least_runs", MIN_RUNS))  # noqa: B023  # called before the next
    return {
        "version": onnxruntime.__version__,
        "load_s": load_s,
        "memory_bytes": _memory("VmHWM") - before,
        "runs": runs,
    }


def peaks(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the largest samples of the machine's rates: `compute` in FLOP/s, `triad` and `read` in bytes/s.

    Fields of the job: `datatype`, `threads`, `working_set` in bytes, and `samples`, the number of samples to return.
    """
    product, flops = _product(job["datatype"], job["threads"])
    with ThreadPoolExecutor(job["threads"]) as pool:
        elements = max(job["working_set"] // 12 // job["threads"], _CHUNK)
        parts = [tuple(np.ones(elements, np.float32) for _ in range(3)) for _ in range(job["threads"])]

        def triad() -> None:
            list(pool.map(_triad, parts))

        def read() -> None:
            list(pool.map(_read, parts))

        total = elements * job["threads"]
        return {
            "compute": _largest(lambda: _rate(product, flops), job["samples"]),
            "triad": _largest(lambda: _rate(triad, 12 * total), job["samples"]),
            "read": _largest(lambda: _rate(read, 8 * total), job["samples"]),
            "working_set": 12 * total,
        }


def _outputs(session: Any, data: Arrays, rows_at_a_time: int) -> dict[str, np.ndarray[Any, Any]]:
    names = [output.name for output in session.get_outputs()]
    rows = len(next(iter(data.values())))
    parts: list[Sequence[np.ndarray[Any, Any]]] = [
        session.run(names, {name: array[begin : begin + rows_at_a_time] for name, array in data.items()})
        for begin in range(0, rows, rows_at_a_time)
    ]
    return {name: np.concatenate([part[index] for part in parts]) for index, name in enumerate(names)}


def _rows(data: Arrays, batch: int) -> Arrays:
    return {name: np.take(array, range(batch), axis=0, mode="wrap") for name, array in data.items()}


def _random(session: Any, batch: int, sizes: Mapping[str, int], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    feed: dict[str, np.ndarray[Any, Any]] = {}
    for model_input in session.get_inputs():
        kind = _TYPES.get(model_input.type.removeprefix("tensor(").removesuffix(")"))
        if kind is None:
            raise ValueError(
                f"input {model_input.name} has the type {model_input.type}, for which there are no random values"
            )
        shape = [
            size if isinstance(size, int) else sizes.get(size or f"{model_input.name}:{index}", batch)
            for index, size in enumerate(model_input.shape)
        ]
        # Integers are often indices, and 0 and 1 are valid indices of every table.
        values: Any = rng.random(shape) if np.issubdtype(kind, np.floating) else rng.integers(0, 2, shape)
        feed[model_input.name] = values.astype(kind)
    return feed


def _timed(execute: Callable[[], Any], seconds: float, least: int) -> list[float]:
    end = time.perf_counter() + min(_WARM_UP_S, seconds)
    execute()
    while time.perf_counter() < end:
        execute()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < MAX_RUNS and (len(times) < least or time.perf_counter() - begin < seconds):
        before = time.perf_counter()
        execute()
        times.append(time.perf_counter() - before)
    return times


def _product(datatype: str, threads: int) -> tuple[Callable[[], Any], float]:
    """Return a function that computes a matrix product in ONNX Runtime, and the number of its operations."""
    import onnxruntime  # noqa: PLC0415
    from onnx import TensorProto, helper  # noqa: PLC0415

    size = 1024
    rng = np.random.default_rng(1)
    left: Any
    right: Any
    if datatype in {"INT8", "UINT8"}:
        kinds = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)
        operator, left, right = "MatMulInteger", rng.integers(0, 9, (size, size)), rng.integers(-9, 9, (size, size))
    else:
        kinds = (TensorProto.FLOAT16,) * 3 if datatype == "FP16" else (TensorProto.FLOAT,) * 3
        operator, left, right = "MatMul", rng.random((size, size)), rng.random((size, size))
    values = [helper.make_tensor_value_info(n, kind, [size, size]) for n, kind in zip("aby", kinds, strict=True)]
    weight = helper.make_tensor("b", kinds[1], [size, size], right.astype(helper.tensor_dtype_to_np_dtype(kinds[1])))
    graph = helper.make_graph([helper.make_node(operator, ["a", "b"], ["y"])], "g", values[:1], values[2:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"a": left.astype(helper.tensor_dtype_to_np_dtype(kinds[0]))}
    return lambda: session.run(["y"], feed), 2.0 * size**3


def _triad(arrays: tuple[np.ndarray[Any, Any], ...]) -> None:
    """Compute a = b + 3 c in chunks that stay in a core's cache between the multiplication and the addition."""
    a, b, c = arrays
    for begin in range(0, len(a), _CHUNK):
        piece = slice(begin, begin + _CHUNK)
        np.multiply(c[piece], 3.0, out=a[piece])
        np.add(a[piece], b[piece], out=a[piece])


def _read(arrays: tuple[np.ndarray[Any, Any], ...]) -> None:
    np.dot(arrays[0], arrays[1])


def _rate(execute: Callable[[], Any], amount: float) -> float:
    """Return the rate of the fastest execution within `_SAMPLE_S` seconds; other processes only slow it down."""
    execute()
    fastest, end = math.inf, time.perf_counter() + _SAMPLE_S
    while time.perf_counter() < end:
        before = time.perf_counter()
        execute()
        fastest = min(fastest, time.perf_counter() - before)
    return amount / fastest


def _largest(sample: Callable[[], float], count: int) -> list[float]:
    """Return the largest `count` samples, in the order in which they were taken.

    Samples are taken until the largest are consistent, but at most `MAX_SAMPLES`.
    """
    samples: list[float] = []
    while len(samples) < MAX_SAMPLES:
        samples.append(sample())
        best = sorted(samples)[-count:]
        if len(best) == count and np.std(best, ddof=1) <= _MAX_CV * np.mean(best):
            break
    least = sorted(samples)[-count]
    return [value for value in samples if value >= least][:count]


def _memory(field: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{field}:"))


def main() -> int:
    """Run the job given on stdin, and print its result."""
    job = json.load(sys.stdin)
    json.dump((run if job["kind"] == "run" else peaks)(job), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
