"""Digits on Triton's Python backend: a real classifier, with a simulated GPU time and GPU gauge.

Input: `pixels` FP32[rows, 64], an 8x8 image of values 0 to 16. Outputs: `probabilities` FP32[rows, 10] and `label`
INT64[rows, 1] by ONNX Runtime; `BATCH` INT32[rows, 1], the rows Triton executed together; `WHO` STRING[rows, 1], the pod.

What is not real: on a machine without a GPU the network takes microseconds and no GPU is busy. So an execution sleeps until
it has taken `gpu_ms + gpu_ms_per_row * rows` in all (parameters in milliseconds; both 0 if not given: then nothing is
pretended), and `nv_gpu_utilization` (0 to 1, Triton's own name for a GPU's gauge) is the share of the last 1.5 s that was
spent in executions. Each instance counts as a GPU of its own.
"""
# ruff: noqa: INP001  # Triton loads this file by its path

import json
import os
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it

WINDOW_S = 1.5
PUBLISH_EVERY_S = 0.25


class BusyShare:
    """Busy share of a sliding window. Times are of one monotonic clock, in seconds. Thread-safe."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._spans: deque[tuple[float, float]] = deque()
        self._since_s: float | None = None

    def start(self, now_s: float) -> None:
        """Begin an execution; at most one runs at a time."""
        with self._lock:
            self._since_s = now_s

    def stop(self, now_s: float) -> None:
        """End the execution that began last."""
        with self._lock:
            if self._since_s is not None:
                self._spans.append((self._since_s, now_s))
                self._since_s = None

    def value(self, now_s: float) -> float:
        """Return the share, 0 to 1, of the window that ends at `now_s`; an execution under way counts."""
        begin_s = now_s - self._window_s
        with self._lock:
            while self._spans and self._spans[0][1] <= begin_s:
                self._spans.popleft()
            busy_s = sum(end - max(start, begin_s) for start, end in self._spans)
            if self._since_s is not None:
                busy_s += now_s - max(self._since_s, begin_s)
        return min(1.0, busy_s / self._window_s)


class TritonPythonModel:
    """The class that Triton's Python backend uses, one object per instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the network and start to publish the gauge."""
        parameters = json.loads(args["model_config"]).get("parameters", {})

        def milliseconds(name: str) -> float:
            return float(parameters.get(name, {}).get("string_value", "0"))

        self._cost_s = milliseconds("gpu_ms") / 1000
        self._row_cost_s = milliseconds("gpu_ms_per_row") / 1000
        self._who = (os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or "unknown").encode()

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a pod has little CPU; more threads would only compete for it
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        self._busy = BusyShare(WINDOW_S)
        self._family = pb_utils.MetricFamily(
            name="nv_gpu_utilization",
            description="GPU utilization rate [0.0 - 1.0)",  # as Triton has it; it keeps the first one it was given
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self._gauge = self._family.Metric(labels={"gpu_uuid": f"stand-in-{args['model_instance_name']}"})
        self._stopped = threading.Event()
        # A thread, because the gauge would otherwise keep its last value when no request arrives.
        self._publisher = threading.Thread(target=self._publish, name="nv_gpu_utilization", daemon=True)
        self._publisher.start()

    def execute(self, requests: list) -> list:  # type: ignore[type-arg]  # Triton's own classes, which have no types
        """Run the rows of all requests in one pass, and return one response per request, in order."""
        start_s = time.monotonic()
        self._busy.start(start_s)
        try:
            parts = [pb_utils.get_input_tensor_by_name(request, "pixels").as_numpy() for request in requests]
            rows = np.concatenate(parts)
            probabilities = self._session.run(["probabilities"], {"pixels": rows})[0]
            remaining_s = start_s + self._cost_s + self._row_cost_s * len(rows) - time.monotonic()
            if remaining_s > 0:
                time.sleep(remaining_s)
        finally:
            self._busy.stop(time.monotonic())

        ends = np.cumsum([len(part) for part in parts])[:-1]
        return [
            self._response(request.requested_output_names(), part, batch=len(rows))
            for request, part in zip(requests, np.split(probabilities, ends), strict=True)
        ]

    def finalize(self) -> None:
        """Stop publishing the gauge, which Triton removes next."""
        self._stopped.set()
        self._publisher.join()

    def _response(self, output_names: list[str], probabilities: np.ndarray, *, batch: int) -> object:
        # Only the requested outputs: each tensor is copied on its way to Triton, and strings are the slowest.
        count = len(probabilities)
        tensors = []
        if "probabilities" in output_names:
            tensors.append(pb_utils.Tensor("probabilities", probabilities))
        if "label" in output_names:
            tensors.append(pb_utils.Tensor("label", probabilities.argmax(axis=1).astype(np.int64).reshape(count, 1)))
        if "BATCH" in output_names:
            tensors.append(pb_utils.Tensor("BATCH", np.full((count, 1), batch, np.int32)))
        if "WHO" in output_names:
            tensors.append(pb_utils.Tensor("WHO", np.full((count, 1), self._who, object)))
        return pb_utils.InferenceResponse(tensors)

    def _publish(self) -> None:
        published = None
        while True:
            share = round(self._busy.value(time.monotonic()), 3)
            if share != published:  # a call into the server is not free
                self._gauge.set(share)
                published = share
            if self._stopped.wait(PUBLISH_EVERY_S):
                return
