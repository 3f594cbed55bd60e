"""A model of real Triton with a staged bottleneck or a known energy, which it publishes through Triton's own metrics.

The cases that need one server and no balancer or link are here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.results.sections.verdict import LimitName
from halcyon_measure.schedule.scenario import Scenario

Expected = LimitName | frozenset[LimitName]
"""The limit that a staged case has, or both of two limits, of which neither explains the run alone."""

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
        parameters = json.loads(args["model_config"])["parameters"]
        number = lambda name: float(parameters[name]["string_value"])
        self.constant_s, self.per_row_s = number("constant_ms") / 1000, number("per_row_ms") / 1000
        self.burns = bool(number("burns"))
        self.joules = number("joules_per_row")
        self.idle_w = number("idle_w")
        self.kind = parameters["energy"]["string_value"]
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
        rows = sum(len(tensor) for tensor in inputs)
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
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", tensor)]) for tensor in inputs]
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
    """Metrics that it publishes: counter, power, still, busy (utilisation of a full GPU) or none."""
    joules_per_row: float = 0.0
    idle_w: float = 0.0
    fails: bool = False
    """Whether it fails for lack of GPU memory."""

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        values = {name: value for name, value in asdict(self).items() if name != "name"}
        parameters = "\n".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{_plain(value)}" }} }}'
            for key, value in values.items()
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


@dataclass(frozen=True)
class Case:
    """A staged bottleneck of one server."""

    name: str
    expected: Expected
    work: Staged
    scenario: Scenario
    others: Mapping[str, Any] = field(default_factory=dict)
    cores: float = 0.0
    """Limit of the server's CPU; 0 for none."""


def cases(seconds: float) -> Sequence[Case]:
    """Return the cases, each with a load of this duration."""
    slow = Staged("slow", constant_ms=40, per_row_ms=1, max_batch=4)
    full, single = Scenario(callers=16, duration_s=seconds), Scenario(duration_s=seconds)
    burning = Staged("burns", constant_ms=40, max_batch=1, instances=4, burns=True)
    above = Scenario(kind="sustained", rate_rps=9000, duration_s=seconds)
    alone = {"processes": 1, "protocol": "grpc"}
    # Later, so many requests are in flight that the client sends one only after an answer, which it does in time.
    begin = replace(above, duration_s=min(seconds, 2.0))
    return (
        Case("one caller", "nothing", slow, single),
        Case("full instances", "instances busy", slow, full),
        Case("long wait for a batch", "waiting for batches", Staged("waits", constant_ms=5, delay_ms=60), single),
        Case("full GPU", "GPU", Staged("gpu", constant_ms=40, max_batch=4, energy="busy"), full),
        Case("no GPU memory", "GPU memory", Staged("memory", constant_ms=5, fails=True), single),
        Case("full CPU", "server CPU", burning, Scenario(callers=8, duration_s=seconds)),
        Case("limit of CPU", "throttled", burning, Scenario(callers=8, duration_s=seconds), cores=0.5),
        Case("one process of the client", "client", Staged("fast", max_batch=64), above, alone),
        Case(
            "full server and one process of the client",
            frozenset({"client", "instances busy"}),
            Staged("both", constant_ms=20, max_batch=32),
            begin,
            {**alone, "warm_up": WarmUp(0.0, fixed=True)},
        ),
    )
