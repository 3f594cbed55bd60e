"""Triton Python model that sleeps for the time that a GPU would compute, and returns its input `x` as `y`.

An execution takes t0_ms + a_ms x rows, and initialize() takes start_ms. The model does nothing else, because ten pods
of it share two cores with the measuring process.
"""

import json
import time

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it


class TritonPythonModel:
    """The class that Triton's Python backend uses, with one object per instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model, which takes start_ms."""
        parameters = json.loads(args["model_config"]).get("parameters", {})

        def seconds(name: str) -> float:
            return float(parameters.get(name, {}).get("string_value", "0")) / 1000

        self._t0_s, self._a_s = seconds("t0_ms"), seconds("a_ms")
        time.sleep(seconds("start_ms"))

    def execute(self, requests: list) -> list:  # type: ignore[type-arg]  # Triton's own classes, which have no types
        """Sleep once for the rows of all requests together, and return one response per request, in order."""
        began_s = time.monotonic()
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        rows = sum(len(values) for values in inputs)
        time.sleep(max(began_s + self._t0_s + self._a_s * rows - time.monotonic(), 0.0))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
