"""Rows of a Parquet file, which has a column for each input of the model.

The package pyarrow is required. The runner's image contains it only if the image was built with it.

Columns can contain numbers, booleans, texts, lists, lists of lists or tensors. Each value is converted to an array. The
file is read by row group, and the last row group is kept in memory.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_batch.errors import BatchError
from halcyon_batch.input_data import Sample, sha256, stamp
from halcyon_measure.inputs.tensors import array_of


class ParquetData:
    """Data set in a Parquet file that is open for reading."""

    format = "Parquet"

    def __init__(self, path: Path) -> None:
        """Open a Parquet file.

        Raises:
            BatchError: pyarrow isn't installed, or the file isn't a Parquet file.
        """
        try:
            arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise BatchError(
                "FormatUnsupported",
                f"spec.input: {path} is a Parquet file, and the runner's image has no pyarrow; build it with "
                "--build-arg PARQUET=1 (docs/guides/batch.md), or convert the file: "
                "pandas.read_parquet(...).to_json('rows.jsonl', orient='records', lines=True)",
            ) from None
        self._path, self._stamp = path, stamp(path)
        self.digest = sha256(path)
        try:
            self._file = parquet.ParquetFile(path)
        except (arrow.ArrowException, ValueError) as error:
            raise BatchError("InputUnreadable", f"spec.input: {path} isn't a file of Parquet: {error}") from None
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.total = int(metadata.num_rows)
        stored = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        self.row_bytes = max(stored // max(self.total, 1), 1)
        self._errors = (arrow.ArrowException,)
        self._group: tuple[int, Any] = (-1, None)

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the rows of the file from number `start` up to, but not including, `stop`.

        Raises:
            ValueError: the file is damaged.
        """
        samples: list[Sample] = []
        while start < stop:
            group = int(np.searchsorted(self._starts, start, "right")) - 1
            first, end = int(self._starts[group]), min(int(self._starts[group + 1]), stop)
            columns = {
                name: _values(column.slice(start - first, end - start)) for name, column in self._columns(group).items()
            }
            samples += [
                Sample(start + n, {name: values[n] for name, values in columns.items()}) for n in range(end - start)
            ]
            start = end
        return samples

    def is_unchanged(self, *_rows: int) -> bool:
        """Return whether the file still has the size and the modification time that it had when it was opened."""
        return stamp(self._path) == self._stamp

    def digest_now(self) -> str:
        """Return the digest of the current content of the file."""
        return sha256(self._path)

    def _columns(self, group: int) -> dict[str, Any]:
        if self._group[0] != group:
            try:
                table = self._file.read_row_group(group)
            except self._errors as error:
                raise ValueError(str(error)) from None
            self._group = group, {name: table.column(name).combine_chunks() for name in table.column_names}
        columns: dict[str, Any] = self._group[1]
        return columns


def _values(column: Any) -> list[Any]:
    """Return the value of each row of a column: an array, a list of lists, or None for a null.

    A number, a boolean or a text becomes an array with one element.
    """
    if hasattr(column, "chunks"):
        column = column.combine_chunks()
    if hasattr(column, "to_numpy_ndarray") and not column.null_count:  # a column of tensors of one shape
        return [*column.to_numpy_ndarray()]
    if _is_list(column) and not column.null_count:
        inner = column.flatten()
        if not inner.null_count and not _is_list(inner):
            return _split(column, inner.to_numpy(zero_copy_only=False))
    return [
        value if value is None or isinstance(value, list | dict) else array_of([value]) for value in column.to_pylist()
    ]


def _is_list(column: Any) -> bool:
    return str(column.type).startswith(("list<", "large_list<", "fixed_size_list<"))


def _split(column: Any, values: Any) -> list[Any]:
    """Divide the concatenated values of all lists in a column into the values of each list."""
    if str(column.type).startswith("fixed_size_list<"):
        return [*values.reshape(len(column), column.type.list_size)]
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False))
    return np.split(values, ends[:-1])
