"""Rows on which variants of a model are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halcyon_measure.errors import ModelError
from halcyon_measure.results.sections.static import TensorShape
from halcyon_measure.variants import data


def test_an_input_without_rows_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    np.savez(file, x=np.zeros((8, 4), np.float32), threshold=np.float32(0.5))
    shapes = [
        TensorShape(name="x", datatype="FP32", shape=("n", "4")),
        TensorShape(name="threshold", datatype="FP32", shape=()),
    ]
    with pytest.raises(ModelError, match="input threshold of the model is a single number without rows"):
        data.read(file, shapes)
