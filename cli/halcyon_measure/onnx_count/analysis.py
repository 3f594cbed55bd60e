"""Construction of the section `static` from a model file: counts by batch size, for given symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from halcyon_measure.errors import ModelError
from halcyon_measure.onnx_count import reader
from halcyon_measure.onnx_count.count import count
from halcyon_measure.results.sections.static import Dimension, Static, StaticSize, TensorShape

MAX_SIZE = 2**31 - 1
MAX_BATCH = 4096
DEFAULT_BATCHES = (1, 8, 32)


def analyse(path: Path, *, batches: Sequence[int] = (), sizes: Mapping[str, int] | None = None) -> Static:
    """Return the section `static` with the counts of a model for each batch size.

    `sizes` contains the sizes of symbolic dimensions, by name or as INPUT:INDEX. If `batches` is empty, the model's
    fixed batch size is used, or `DEFAULT_BATCHES` if it has none.

    Raises:
        ModelError: the model's operations can't be counted, or a size is missing or invalid.
    """
    model = reader.read(path)
    bindings = dict(sizes or {})
    batch, batches, open_dimensions = _bind(model, bindings, batches)
    counts = [count(model.graph({**bindings, **dict.fromkeys(batch, size)}), size) for size in batches]
    first = counts[0]
    return Static(
        file=str(path),
        source="onnx",
        file_bytes=model.file_bytes,
        opsets=model.opsets,
        inputs=model.inputs(),
        outputs=model.outputs(),
        batch_dimension=batch[0] if batch else "",
        dimensions=tuple(Dimension(name=name, size=bindings[name]) for name in open_dimensions),
        parameters=first.parameters,
        weight_bytes=first.weight_bytes,
        datatype=first.datatype,
        sizes=tuple(counted.size for counted in counts),
        uncounted=first.uncounted,
        complete=all(counted.complete for counted in counts),
    )


def static_from_flops(path: Path, flops: float) -> Static:
    """Return the section `static` for a model in another format, for which the user gives the operations per row.

    Raises:
        ModelError: there is no such file, or the number isn't positive.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder; for example model.pt")
    if not 1 <= flops <= 1e18:
        raise ModelError(f"--flops is {flops:g}; it must be 1 to 1e18 for one row, for example 8.2e9")
    size = StaticSize(
        batch=1, macs=round(flops / 2), flops=round(flops), input_bytes=None, output_bytes=None,
        activation_bytes=None, peak_activation_bytes=None, least_bytes=None, unfused_bytes=None, operators=(),
    )  # fmt: skip
    return Static(
        file=str(path), source="given", file_bytes=None, opsets=(), inputs=(), outputs=(), batch_dimension="", dimensions=(),
        parameters=None, weight_bytes=None, datatype="", sizes=(size,), uncounted=(), complete=False,
    )  # fmt: skip


def _bind(
    model: reader.Model, sizes: Mapping[str, int], batches: Sequence[int]
) -> tuple[list[str], Sequence[int], list[str]]:
    """Return the names of the batch dimensions, the batch sizes, and the names of the other symbolic dimensions."""
    shapes = model.inputs()
    dimensions = reader.symbolic(shapes)
    _check(model.path, dimensions, sizes, batches)
    batch = _batch(shapes, dimensions, sizes)
    other_dimensions = [name for name in dimensions if name not in batch]
    if unbound := [name for name in other_dimensions if name not in sizes]:
        example = " ".join(f"--dim {name}=128" for name in unbound)
        raise ModelError(
            f"{model.path}: its inputs have dimensions without a size: {', '.join(unbound)}; for example {example}"
        )
    if batch:
        return batch, tuple(batches) or DEFAULT_BATCHES, other_dimensions
    fixed = next((size for shape in shapes if shape.shape for size in [_size(shape.shape[0], sizes)] if size), 1)
    if mismatched := [size for size in batches if size != fixed]:
        raise ModelError(
            f"{model.path}: batch size {mismatched[0]}: the first dimension of its input {shapes[0].name} is {fixed}; it "
            f"must be symbolic, for example torch.onnx.export(..., dynamic_axes={{'{shapes[0].name}': {{0: 'batch'}}}})"
        )
    return [], (fixed,), other_dimensions


def _batch(shapes: Sequence[TensorShape], dimensions: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
    """Return the names of the batch dimensions: one named "batch...", or else the first dimensions of the inputs."""
    first = [name for name in _first(shapes) if name not in sizes]
    named = [name for name in dimensions if name.lower().startswith("batch") and name not in sizes]
    # If the first dimensions have several names (for example batch and frames), only one is the batch.
    batch = (named or [name for name in first if ":" not in name])[:1]
    return batch + [name for name in first if ":" in name]


def _first(shapes: Sequence[TensorShape]) -> list[str]:
    """Return the names of the inputs' first dimensions, if they are symbolic."""
    first = [shape.model_copy(update={"shape": shape.shape[:1]}) for shape in shapes]
    return reader.symbolic(first)


def _size(dimension: str, sizes: Mapping[str, int]) -> int | None:
    return int(dimension) if dimension.isdigit() else sizes.get(dimension)


def _check(path: Path, dimensions: Sequence[str], sizes: Mapping[str, int], batches: Sequence[int]) -> None:
    for name, size in sizes.items():
        if name not in dimensions:
            dimensions_text = f"it has {', '.join(dimensions)}" if dimensions else "all its dimensions are fixed"
            raise ModelError(f"{path}: --dim {name}={size}: no input has this dimension; {dimensions_text}")
        if not 1 <= size <= MAX_SIZE:
            raise ModelError(f"{path}: --dim {name}={size}: a size must be 1 to {MAX_SIZE}, for example {name}=128")
    for size in batches:
        if not 1 <= size <= MAX_BATCH:
            raise ModelError(f"{path}: batch size {size}: it must be 1 to {MAX_BATCH}, for example 8")
