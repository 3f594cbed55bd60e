"""Backends of Triton whose number of threads is a parameter of the model."""

from collections.abc import Mapping

THREAD_PARAMETERS: Mapping[str, str] = {
    "onnxruntime": "intra_op_thread_count",
    "pytorch": "INTRA_OP_THREAD_COUNT",
    "openvino": "INFERENCE_NUM_THREADS",
}
"""Name of the parameter in `model.parameters` that sets the number of threads of an instance, by backend."""
MODEL_FILES: Mapping[str, str] = {"model.onnx": "onnxruntime", "model.pt": "pytorch", "model.xml": "openvino"}
"""Backend that Triton selects if the configuration names none, by the name of the model's file in a version folder."""
