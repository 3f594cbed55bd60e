"""Laws of rows 6.1 and 6.3 to 6.5: four models of Triton's Python backend that sleep for the time of a batch.

line: instances don't disturb each other. floor: small batches take as long as a launch. device: the rows of one instance at a time are
computed, as on a device that instances share. cliff: batches above a size take longer, and memory ends at 32 rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.tune.truth import Law
from halcyon_tune.points import Point

CORES = 2
"""CPU limit of the model, which is also its largest number of instances."""
_ROWS = 65
_CONFIG = """backend: "python"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching { }
"""
_MODEL = """import fcntl
import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        number = lambda name: float(parameters[name]["string_value"])
        self.fixed_s, self.row_s = number("fixed_ms") / 1000, number("row_ms") / 1000
        self.is_floor, self.shares = bool(number("is_floor")), bool(number("shares_device"))
        self.cliff_rows, self.cliff_factor = number("cliff_rows"), number("cliff_factor")
        self.memory_rows = number("memory_rows")
        self.device = open("/tmp/tuned-device", "w")

    def execute(self, requests):
        began = time.monotonic()
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        rows = sum(len(tensor) for tensor in inputs)
        if rows >= self.memory_rows:
            raise MemoryError(f"out of memory: a batch of {rows} rows needs more than there is")
        factor = self.cliff_factor if rows > self.cliff_rows else 1.0
        if self.shares:
            time.sleep(self.fixed_s)
            fcntl.flock(self.device, fcntl.LOCK_EX)
            try:
                time.sleep(self.row_s * rows)
            finally:
                fcntl.flock(self.device, fcntl.LOCK_UN)
        else:
            rows_s = self.row_s * rows
            total_s = max(self.fixed_s, rows_s) if self.is_floor else self.fixed_s + rows_s
            time.sleep(max(began + factor * total_s - time.monotonic(), 0))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", tensor)]) for tensor in inputs]
"""


@dataclass(frozen=True, kw_only=True)
class TritonLaw:
    """A model whose batches take a known time."""

    label: str
    objective_s: float
    fixed_ms: float
    row_ms: float
    is_floor: bool = False
    shares_device: bool = False
    cliff_rows: int = 1000
    cliff_factor: float = 1.0
    memory_rows: int = 1000
    """Rows of a batch from which memory is too small."""

    @property
    def name(self) -> str:
        """Name of the model in Triton."""
        return "m"

    @property
    def kind(self) -> str:
        """Kind of the law in one word, which names its file of results."""
        return self.label.partition(" ")[0]

    @property
    def parameters(self) -> Mapping[str, float]:
        """Parameters of the model."""
        return {key: float(value) for key, value in asdict(self).items() if key not in {"label", "objective_s"}}

    @property
    def files(self) -> Mapping[str, str]:
        """Files of the model as path -> content, with paths relative to the model's folder."""
        parameters = "\n".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value:g}" }} }}'
            for key, value in self.parameters.items()
        )
        return {"config.pbtxt": f"{_CONFIG}{parameters}\n", "1/model.py": _MODEL}

    @property
    def guess(self) -> Law:
        """Approximation of the law for the simulator, from which the sweep of a configuration starts."""
        rows = np.arange(_ROWS, dtype=np.float64)
        fixed, rows_s = self.fixed_ms / 1000, self.row_ms / 1000 * rows
        alone = np.maximum(fixed, rows_s) if self.is_floor else fixed + rows_s
        alone = np.where(rows > self.cliff_rows, self.cliff_factor * alone, alone)
        together = np.maximum(alone, 2 * rows_s) if self.shares_device else alone
        return Law(self.label, {1: alone, 2: together})

    def excess(self, point: Point) -> float | None:
        """Return by how much the executions of a point took longer than the law says, as a share.

        The result is None without statistics, and if instances wait for their device.
        """
        if not point.batches or (self.shares_device and point.configuration.instances > 1):
            return None
        seconds = self.guess.seconds[1]
        expected = math.fsum(count * float(seconds[rows]) for rows, (count, _) in point.batches.items())
        return math.fsum(spent for _, spent in point.batches.values()) / expected - 1 if expected else None

    def document(self) -> dict[str, Any]:
        """Return the law as JSON. A recorded sweep is valid for an equal law alone."""
        return asdict(self)


LAWS = (
    TritonLaw(label="line 60 + 8 b ms", objective_s=0.8, fixed_ms=60, row_ms=8),
    TritonLaw(label="floor max(120, 9 b) ms", objective_s=0.8, fixed_ms=120, row_ms=9, is_floor=True),
    TritonLaw(label="device 50 ms + 7 b ms in turns", objective_s=0.9, fixed_ms=50, row_ms=7, shares_device=True),
    TritonLaw(
        label="cliff 60 + 8 b ms, x 1.6 above 12 rows, memory up to 31",
        objective_s=0.8,
        fixed_ms=60,
        row_ms=8,
        cliff_rows=12,
        cliff_factor=1.6,
        memory_rows=32,
    ),
)
