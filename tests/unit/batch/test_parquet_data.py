"""Rows of Parquet files by pyarrow, and what is said where it is missing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halcyon_batch.errors import BatchError, RowError
from halcyon_batch.input_source import open_input
from halcyon_batch.row_tensors import BatchModel, fitted
from halcyon_measure.inputs.tensors import ModelInput

with_arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow isn't installed: make bootstrap installs it"
)


def write(path: Path, columns: dict[str, Any], **others: Any) -> None:
    import pyarrow as pa  # noqa: PLC0415  # not in each environment
    from pyarrow import parquet  # noqa: PLC0415  # see above

    parquet.write_table(pa.table(columns), path, **others)


@with_arrow
def test_rows_of_all_row_groups_are_arrays_by_column(tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  # not in each environment

    lists = [[float(n)] * (n % 3) for n in range(10)]
    write(
        tmp_path / "rows.parquet",
        {
            "number": pa.array(range(10), pa.int32()),
            "text": [f"t{n}" for n in range(10)],
            "lists": pa.array(lists, pa.list_(pa.float32())),
            "fixed": pa.array([[n, n + 1] for n in range(10)], pa.list_(pa.int64(), 2)),
            "nested": [[[n, 1], [2, 3]] for n in range(10)],
        },
        row_group_size=3,
    )
    data = open_input(str(tmp_path / "rows.parquet"), "")
    assert (data.format, data.total) == ("Parquet", 10)
    for rows in (data.read(0, 10), [*data.read(7, 10), *data.read(2, 7), *data.read(0, 2)]):
        for sample in rows:
            n = sample.row
            assert sample.value["number"].tolist() == [n]
            assert sample.value["text"].tolist() == [f"t{n}"]
            assert (sample.value["lists"].dtype, sample.value["lists"].tolist()) == (np.float32, lists[n])
            assert sample.value["fixed"].tolist() == [n, n + 1]
            assert np.asarray(sample.value["nested"]).tolist() == [[n, 1], [2, 3]]
        assert sorted(sample.row for sample in rows) == [*range(10)]


@with_arrow
def test_a_row_with_a_null_has_no_tensors_and_the_others_do(tmp_path: Path) -> None:
    write(tmp_path / "rows.parquet", {"x": [[1.0, 2.0], None, [3.0, None], [4.0, 5.0]], "t": ["a", "b", "c", None]})
    model = BatchModel((ModelInput("x", "FP32", (-1, 2)), ModelInput("t", "BYTES", (-1, 1))), is_batched=True)
    outcomes: list[object] = []
    for sample in open_input(str(tmp_path / "rows.parquet"), "").read(0, 4):
        try:
            outcomes.append(fitted(sample.value, model)["x"].tolist())
        except RowError as error:
            outcomes.append(str(error))
    null = "has a null; each value of a row must be present"
    assert outcomes == [[[1.0, 2.0]], f"input x {null}", f"input x {null}", f"input t {null}"]


@with_arrow
def test_bytes_of_a_column_keep_zero_bytes_at_their_end(tmp_path: Path) -> None:
    columns = {"b": [b"a\0\0", b"\0"], "nested": [[[b"a\0"], [b""]], [[b""], [b"\0"]]]}
    write(tmp_path / "rows.parquet", columns)
    inputs = ModelInput("b", "BYTES", (-1, 1)), ModelInput("nested", "BYTES", (-1, 2, 1))
    rows = [
        fitted(sample.value, BatchModel(inputs, is_batched=True))
        for sample in open_input(str(tmp_path / "rows.parquet"), "").read(0, 2)
    ]
    assert [row["b"].tolist() for row in rows] == [[[b"a\0\0"]], [[b"\0"]]]
    assert [row["nested"].tolist()[0] for row in rows] == columns["nested"]


@with_arrow
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"no parquet")
    with pytest.raises(BatchError, match=r"rows.parquet isn't a file of Parquet"):
        open_input(str(tmp_path / "rows.parquet"), "")


def test_without_pyarrow_the_message_has_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BatchError) as caught:
        open_input(str(tmp_path / "rows.parquet"), "")
    assert caught.value.reason == "FormatUnsupported"
    assert "build it with --build-arg PARQUET=1" in str(caught.value)


def test_a_null_of_a_json_line_is_no_text() -> None:
    model = BatchModel((ModelInput("t", "BYTES", (-1, 1)),), is_batched=True)
    with pytest.raises(RowError, match=r"input t has a null"):
        fitted({"t": [None]}, model)
