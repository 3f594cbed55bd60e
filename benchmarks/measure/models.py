"""Models of real Triton whose times are known: each request says how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

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
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        given = json.loads(args["model_config"])["parameters"]
        self.every_s = float(given["stop_every_s"]["string_value"])
        self.stop_s = float(given["stop_s"]["string_value"])
        self.once = given["stop_once"]["string_value"] == "yes"
        self.next = None

    def execute(self, requests):
        made = []
        for request in requests:
            began = time.monotonic()
            if self.every_s and self.next is None:
                self.next = began + self.every_s
            if self.every_s and began >= self.next:
                time.sleep(self.stop_s)
                self.next += 1e9 if self.once else self.every_s
                began = time.monotonic()
            (seconds,) = pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy()
            # A sleep ends late by the kernel's timer; the rest is waited for actively.
            time.sleep(max(float(seconds) - 0.0005, 0))
            while time.monotonic() < began + float(seconds):
                pass
            served = np.array([time.monotonic() - began], np.float32)
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("served", served)]))
        return made
"""


@dataclass(frozen=True)
class Timed:
    """A model of one instance without batching; a request's input is its execution time in seconds.

    Once in `stop_every_s` it stops for `stop_s` before a request; with `once`, a single time.
    """

    stop_every_s: float = 0.0
    stop_s: float = 0.0
    once: bool = False
    name: str = "timed"

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        config = _CONFIG.replace("STOP_EVERY", f"{self.stop_every_s:g}").replace("STOP_FOR", f"{self.stop_s:g}")
        config = config.replace("STOP_ONCE", "yes" if self.once else "no")
        return {"config.pbtxt": config, "1/model.py": _MODEL}
