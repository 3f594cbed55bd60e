"""A model of real Triton whose times are known, and the latencies that follow from them.

Each request contains its execution time, and the model records the begin and the end of each execution.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NAME = "timed"
_RECORD = "executions"
_FIELDS = 3
_MAX_OVERTAKING = 16
"""Maximum number of places by which the server may have changed the order of two requests."""

_CONFIG = """backend: "python"
max_batch_size: 0
input [ { name: "seconds" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "served" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
parameters { key: "stop_every_s" value { string_value: "STOP_EVERY" } }
parameters { key: "stop_once" value { string_value: "STOP_ONCE" } }
parameters { key: "stop_s" value { string_value: "STOP_FOR" } }
"""
_MODEL = """import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.every_s = float(parameters["stop_every_s"]["string_value"])
        self.stop_s = float(parameters["stop_s"]["string_value"])
        self.once = parameters["stop_once"]["string_value"] == "yes"
        self.next = None
        path = os.path.join(args["model_repository"], "RECORD")
        self.record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def execute(self, requests):
        responses = []
        for request in requests:
            began = time.monotonic()
            if self.every_s and self.next is None:
                self.next = began + self.every_s
            if self.every_s and began >= self.next:
                time.sleep(self.stop_s)
                self.next += 1e9 if self.once else self.every_s
                began = time.monotonic()
            (seconds,) = pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy()
            # A sleep ends late by the kernel's timer, so the last part is an active wait.
            time.sleep(max(float(seconds) - 0.0005, 0))
            while time.monotonic() < began + float(seconds):
                pass
            ended = time.monotonic()
            served = np.array([ended - began], np.float32)
            os.write(self.record, np.array([seconds, began, ended]).tobytes())
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("served", served)]))
        return responses
"""


@dataclass(frozen=True)
class Timed:
    """A model of one instance without batching; a request's input is its execution time in seconds.

    Once in `stop_every_s` it stops for `stop_s` before a request; with `once`, a single time.
    """

    stop_every_s: float = 0.0
    stop_s: float = 0.0
    once: bool = False
    name: str = NAME

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        config = _CONFIG.replace("STOP_EVERY", f"{self.stop_every_s:g}").replace("STOP_FOR", f"{self.stop_s:g}")
        config = config.replace("STOP_ONCE", "yes" if self.once else "no")
        return {"config.pbtxt": config, "1/model.py": _MODEL.replace("RECORD", _RECORD)}


@dataclass(frozen=True)
class Executions:
    """Executions of the model, in their order. Times are in seconds of the machine's monotonic clock."""

    requested: Floats
    """Execution times that the requests contain, in seconds."""
    began: Floats
    ended: Floats

    @classmethod
    def read(cls, repository: Path, *, first: int = 0) -> Executions:
        """Return the executions that the model has recorded in its repository, from number `first` on."""
        values = np.fromfile(repository / NAME / _RECORD, np.float64).reshape(-1, _FIELDS)[first:]
        return cls(values[:, 0], values[:, 1], values[:, 2])

    def __len__(self) -> int:
        return len(self.began)

    def numbers_of(self, requested: Floats) -> npt.NDArray[np.int64]:
        """Return the number of the execution of each request.

        The server may have changed the order of requests that arrived at the same time. Requests near each other have
        different execution times.

        Raises:
            ValueError: a request has no execution near its place.
        """
        free = np.ones(len(self), bool)
        numbers = np.empty(len(requested), np.int64)
        for number, seconds in enumerate(requested):
            first = max(number - _MAX_OVERTAKING, 0)
            near = slice(first, number + _MAX_OVERTAKING + 1)
            (same,) = np.nonzero(free[near] & (self.requested[near] == seconds))
            if not len(same):
                raise ValueError(f"request {number} of {seconds} s has no execution near its place")
            numbers[number] = first + same[0]
            free[numbers[number]] = False
        return numbers

    def switch_s(self, arrived: Floats) -> Floats:
        """Return the seconds from the end of each execution until the server could begin another one.

        `arrived` has, for each execution, the time at which its request was at the server. If the next request was
        waiting already, its begin shows the time. Otherwise, it is the median of those that were shown.
        """
        gaps = self.began[1:] - self.ended[:-1]
        waited = arrived[1:] < self.ended[:-1]
        switch = np.full(len(self), float(np.median(gaps[waited])) if waited.any() else 0.0)
        switch[:-1][waited] = gaps[waited]
        return switch


def lindley(arrivals: Floats, services: Floats) -> Floats:
    """Return the seconds for which each request waits at a server that takes one at a time, in order."""
    free = float("-inf")
    waits = np.empty(len(arrivals))
    for number, (arrival, service) in enumerate(zip(arrivals, services, strict=True)):
        begin = max(free, arrival)
        waits[number] = begin - arrival
        free = begin + service
    return waits


def latencies(due: Floats, sent: Floats, requested: Floats, executions: Executions, *, around_s: float) -> Floats:
    """Return the latencies of an ideal client, which sends each request when it is due.

    They follow by Lindley's recursion from the due times and from the times for which the server was really busy with
    each request. `sent` only shows which requests were waiting at the server. `around_s` is what a request to an idle
    server takes beyond its execution.
    """
    place = executions.numbers_of(requested)
    order = np.argsort(place)
    sent = sent[order]
    # The two clocks differ by a constant: the quickest request began at once.
    arrived = sent + float(np.min(executions.began - sent))
    busy = executions.ended - executions.began
    return lindley(due, (busy + executions.switch_s(arrived))[place]) + busy[place] + around_s
