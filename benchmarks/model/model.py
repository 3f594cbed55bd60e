"""Sleeps as long as a GPU would compute: t0_ms + a_ms x rows per execution, and start_ms in initialize(). `y` is `x`.

Nothing else: ten pods of it share two cores with whoever measures them.
"""

import json
import time

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it


class TritonPythonModel:
    """What Triton's Python backend calls, one object per instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load, for as long as start_ms says."""
        parameters = json.loads(args["model_config"]).get("parameters", {})

        def seconds(name: str) -> float:
            return float(parameters.get(name, {}).get("string_value", "0")) / 1000

        self._t0_s, self._a_s = seconds("t0_ms"), seconds("a_ms")
        time.sleep(seconds("start_ms"))

    def execute(self, requests: list) -> list:  # type: ignore[type-arg]  # Triton's own classes, which have no types
        """One sleep for the rows of all requests together; one response per request, in order."""
        began_s = time.monotonic()
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        rows = sum(len(values) for values in inputs)
        time.sleep(max(began_s + self._t0_s + self._a_s * rows - time.monotonic(), 0.0))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
