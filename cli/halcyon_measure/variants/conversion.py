"""Conversion of a model to FP16 and INT8 with ONNX Runtime's tools. The nodes that remain in FP32 are reported."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halcyon_measure.errors import ModelError
from halcyon_measure.onnx_count import operators
from halcyon_measure.onnx_count.graph import Node
from halcyon_measure.results.sections.analysis import LeftOperator

if TYPE_CHECKING:
    import onnx

Arrays = Mapping[str, np.ndarray[Any, Any]]
_CALIBRATION_BATCH = 32
_MAX_EXAMPLES = 3


def convert(
    name: str, model: Path, output: Path, calibration: Arrays, *, rows: int | None = None
) -> tuple[LeftOperator, ...]:
    """Write one variant of a model, and return its operators that still compute in FP32. `name` is a key of `VARIANTS`.

    `rows` is the fixed number of rows per execution, if the model has such a number.

    Raises:
        ModelError: the library can't convert the model.
    """
    with _quiet():
        try:
            return VARIANTS[name](model, output, calibration, rows or _CALIBRATION_BATCH)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001  # the converters raise anything
            text = " ".join(str(error).split())[:300] or type(error).__name__
            raise ModelError(f"{model}: onnxruntime can't make {name}: {text}") from None


def _fp16(model: Path, output: Path, _: Arrays, __: int) -> tuple[LeftOperator, ...]:
    import onnx  # noqa: PLC0415  # of the extra models
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    # Inputs and outputs keep their types, so that clients need no change.
    converted = convert_float_to_float16(onnx.load(model), keep_io_types=True)
    onnx.save(converted, output)
    return left_in_float(converted)


def _dynamic(model: Path, output: Path, _: Arrays, __: int) -> tuple[LeftOperator, ...]:
    from onnxruntime.quantization import quantize_dynamic  # noqa: PLC0415

    with _prepared(model) as prepared:
        quantize_dynamic(prepared, output)
    return left_unquantised(output)


def _static(model: Path, output: Path, calibration: Arrays, batch: int) -> tuple[LeftOperator, ...]:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static  # noqa: PLC0415

    rows = len(next(iter(calibration.values())))

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the library is untyped
        """Reader that returns the calibration rows in batches, as required by ONNX Runtime."""

        def __init__(self) -> None:
            # Use only whole batches, unless there are fewer rows than one batch.
            self._begins = iter(range(0, rows - rows % batch or rows, batch))

        def get_next(self) -> dict[str, Any] | None:
            """Return the next batch of inputs; None at the end."""
            begin = next(self._begins, None)
            if begin is None:
                return None
            return {name: array[begin : begin + batch] for name, array in calibration.items()}

    with _prepared(model) as prepared:
        quantize_static(prepared, output, Reader())
    return left_unquantised(output)


VARIANTS: Mapping[str, Callable[[Path, Path, Arrays, int], tuple[LeftOperator, ...]]] = {
    "fp16": _fp16,
    "int8-dynamic": _dynamic,
    "int8-static": _static,
}
"""Conversion functions by name, in the order in which they are shown."""


def left_in_float(model: onnx.ModelProto) -> tuple[LeftOperator, ...]:
    """Return the operators of an FP16 model whose outputs are FP32, except casts."""
    import onnx  # noqa: PLC0415  # of the extra models

    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {info.name: info.type.tensor_type.elem_type for info in (*graph.value_info, *graph.output)}
    return _grouped(
        ((node.op_type, node.name or node.output[0]) for node in graph.node
         if node.op_type != "Cast" and any(types.get(name) == onnx.TensorProto.FLOAT for name in node.output)),
        "the converter keeps it in FP32: it has no FP16 form, or needs the range",
    )  # fmt: skip


def left_unquantised(path: Path) -> tuple[LeftOperator, ...]:
    """Return the operators of an INT8 model that still multiply in FP32."""
    import onnx  # noqa: PLC0415  # of the extra models

    graph = onnx.load(path, load_external_data=False).graph
    producers = {name: node.op_type for node in graph.node for name in node.output}
    nodes = []
    for node in graph.node:
        kind = operators.kind_of(
            Node(node.name, node.op_type, (), (), domain="" if node.domain == "ai.onnx" else node.domain)
        )
        is_integer = "Integer" in node.op_type or node.op_type.startswith(("QLinear", "QGemm", "DynamicQuantize"))
        sources = [producers.get(name, "") for name in node.input[:2]]
        if kind == "counted" and not is_integer and sources != ["DequantizeLinear"] * 2:
            nodes.append((node.op_type, node.name or node.output[0]))
    return _grouped(iter(nodes), "onnxruntime has no INT8 form of it here, or its weights aren't constant")


def _grouped(nodes: Iterator[tuple[str, str]], reason: str) -> tuple[LeftOperator, ...]:
    names: dict[str, list[str]] = {}
    for operator, name in nodes:
        names.setdefault(operator, []).append(name)
    return tuple(
        LeftOperator(operator=operator, nodes=len(all_names), examples=tuple(all_names[:_MAX_EXAMPLES]), reason=reason)
        for operator, all_names in names.items()
    )


@contextmanager
def _prepared(model: Path) -> Iterator[Path]:
    """Yield the path of a simplified model, which the quantiser needs.

    If the model can't be simplified, yield the path of the original model.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="halcyon-variants-") as folder:
        prepared = Path(folder) / "model.onnx"
        try:
            # Symbolic shape inference needs another package; ONNX's own inference is enough.
            quant_pre_process(model, prepared, skip_symbolic_shape=True)
        except Exception:  # noqa: BLE001  # it raises anything
            prepared = model
        yield prepared


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of the conversion libraries, which are meant for users who call them directly."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
