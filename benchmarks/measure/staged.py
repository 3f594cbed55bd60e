"""A model of real Triton with a staged bottleneck or a known energy, which it publishes through Triton's own metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass

_CONFIG = """backend: "python"
max_batch_size: {max_batch}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {width} ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ {width} ] }} ]
instance_group [ {{ kind: KIND_CPU count: {instances} }} ]
dynamic_batching {{ {delay} }}
{parameters}
"""
_MODEL = """import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        given = json.loads(args["model_config"])["parameters"]
        number = lambda name: float(given[name]["string_value"])
        self.constant_s, self.per_row_s = number("constant_ms") / 1000, number("per_row_ms") / 1000
        self.burns = bool(number("burns"))
        self.joules = number("joules_per_row")
        self.idle_w = number("idle_w")
        self.kind = given["energy"]["string_value"]
        self.fails = bool(number("fails"))
        self.lock, self.worked_j, self.began = threading.Lock(), 0.0, time.monotonic()
        self.gauges = {}
        if self.kind != "none":
            names = {"counter": ["nv_energy_consumption"], "power": ["nv_gpu_power_usage"],
                     "busy": ["nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"]}
            for name in names.get(self.kind, ["nv_energy_consumption"]):
                counts = name == "nv_energy_consumption"
                kind = pb_utils.MetricFamily.COUNTER if counts else pb_utils.MetricFamily.GAUGE
                family = pb_utils.MetricFamily(name=name, description=name, kind=kind)
                self.gauges[name] = (family, family.Metric(labels={"gpu_uuid": "GPU-staged"}))
            threading.Thread(target=self.publish, daemon=True).start()

    def publish(self):
        # Metrics can't be set before the server knows that the instance has been initialised.
        time.sleep(1.0)
        published = 0.0
        while True:
            now = time.monotonic() - self.began
            with self.lock:
                energy = self.worked_j + self.idle_w * now
            if self.kind == "still":
                energy = 1234.0
            for name, (_, metric) in self.gauges.items():
                if name == "nv_energy_consumption":
                    metric.increment(energy - published)
                    published = energy
                elif self.kind == "power":
                    metric.set(self.idle_w)
                else:
                    busy = {"nv_gpu_utilization": 0.97, "nv_gpu_memory_used_bytes": 9e9,
                            "nv_gpu_memory_total_bytes": 16e9}
                    metric.set(busy[name])
            time.sleep(0.02)

    def execute(self, requests):
        began = time.monotonic()
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        rows = sum(len(one) for one in inputs)
        until = began + self.constant_s + self.per_row_s * rows
        if self.burns:
            while time.monotonic() < until:
                pass
        else:
            time.sleep(max(until - time.monotonic(), 0))
        with self.lock:
            self.worked_j += self.joules * rows
        if self.fails:
            error = pb_utils.TritonError("CUDA out of memory")
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", one)]) for one in inputs]
"""


@dataclass(frozen=True)
class Staged:
    """A model whose executions take `constant_ms` + `per_row_ms` x rows."""

    name: str = "staged"
    constant_ms: float = 0.0
    per_row_ms: float = 0.0
    max_batch: int = 8
    delay_ms: float = 0.0
    """Longest wait for a batch."""
    instances: int = 1
    width: int = 1
    """Values of a row."""
    burns: bool = False
    """Whether it computes instead of sleeping."""
    energy: str = "none"
    """What it publishes: counter, power, still, busy (utilisation of a full GPU) or none."""
    joules_per_row: float = 0.0
    idle_w: float = 0.0
    fails: bool = False
    """Whether it fails for lack of GPU memory."""

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        given = {name: value for name, value in asdict(self).items() if name != "name"}
        parameters = "\n".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{_plain(value)}" }} }}' for key, value in given.items()
        )
        config = _CONFIG.format(
            max_batch=self.max_batch,
            width=self.width,
            instances=self.instances,
            delay=f"max_queue_delay_microseconds: {1000 * self.delay_ms:.0f}" if self.delay_ms else "",
            parameters=parameters,
        )
        return {"config.pbtxt": config, "1/model.py": _MODEL}


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
