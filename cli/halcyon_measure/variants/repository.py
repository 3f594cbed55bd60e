"""Files of a Triton model repository for the ONNX Runtime backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halcyon_measure.errors import ModelError
from halcyon_measure.results.sections.static import TensorShape

MAX_BATCH_SIZE = 32


def model_file(folder: Path) -> Path:
    """Return the path of the model's file in a folder of the repository, and create the folders above it."""
    file = folder / "1" / "model.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def check_empty(folder: Path) -> None:
    """Check that a folder is empty or can be created.

    Raises:
        ModelError: the path is a file, or the folder already contains files.
    """
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"--out {folder}: it is a file; give a new folder, for example --out variants")
    if folder.is_dir() and any(folder.iterdir()):
        raise ModelError(
            f"--out {folder}: it isn't empty, and nothing is overwritten; give a new folder, for example --out variants-2"
        )


def configuration(name: str, inputs: Sequence[TensorShape], outputs: Sequence[TensorShape]) -> str:
    """Return the config.pbtxt of a model. Batching is enabled if the first dimension of all tensors is open."""
    batched = all(tensor.shape and not tensor.shape[0].isdigit() for tensor in (*inputs, *outputs))
    lines = [f'name: "{name}"', 'backend: "onnxruntime"', f"max_batch_size: {MAX_BATCH_SIZE if batched else 0}"]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        entries = [
            f'  {{ name: "{tensor.name}" data_type: {_type(tensor.datatype)} '
            f"dims: [ {', '.join(_dims(tensor, batched))} ] }}"
            for tensor in tensors
        ]
        lines += [f"{kind} [", ",\n".join(entries), "]"]
    return "\n".join(lines) + "\n"


def _dims(tensor: TensorShape, batched: bool) -> list[str]:
    sizes = tensor.shape[1:] if batched else tensor.shape
    # A row of one value has no dimension left, and Triton's configuration needs one.
    return [size if size.isdigit() else "-1" for size in sizes] or ["1"]


def _type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
