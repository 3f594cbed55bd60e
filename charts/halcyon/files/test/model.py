"""The model of `helm test`: y = 2 x + 1, on Triton's Python backend."""
# ruff: noqa: INP001  # Triton loads this file by its path

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton brings it


class TritonPythonModel:
    """The model class, with the name that Triton requires."""

    def execute(self, requests: list) -> list:  # type: ignore[type-arg]  # Triton's own types
        """Return a response for each request."""
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", self._of(request))]) for request in requests]

    @staticmethod
    def _of(request: object) -> object:
        return 2 * pb_utils.get_input_tensor_by_name(request, "x").as_numpy() + 1
