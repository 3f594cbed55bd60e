"""One row for each request of a run, as NumPy columns, and the file in which they are stored.

Times are seconds since the beginning of the measured part of the run, on one monotonic clock for all processes of the
machine. Requests that became due earlier belong to the warm-up and aren't in the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """All requests of a run, in the order in which they were due."""

    due: Floats
    prepared: Floats
    """Time at which the bytes of the request were ready; equal to `due` if they were built before the run."""
    sent: Floats
    """Time at which the request was passed to the protocol's client; NaN if it wasn't sent."""
    written: Floats
    """Time at which the last byte of the request was written to the socket; NaN if the client doesn't report it, as for
    gRPC."""
    first_byte: Floats
    done: Floats
    """Time at which the answer was complete, or the failure was known."""
    finished: Floats
    """Time at which the user's function had processed the answer; equal to `done` if there is no function."""
    encode: Floats
    """Time for serialising the request, part of the time from `due` to `prepared`; 0 if it was serialised before the
    run."""
    decode: Floats
    """Time for decoding the answer, part of the time from `done` to `finished`; 0 if the answer isn't decoded."""
    outcome: Integers
    """Outcome of the request, a value of `Outcome`."""
    kind: Integers
    """Index of the failure message in the messages of the run; -1 for an answer."""
    rows: Integers
    sent_bytes: Integers
    received_bytes: Integers
    pod: Integers
    """Index of the pod in the pods of the run; -1 if the answer doesn't name its pod."""

    def __len__(self) -> int:
        return len(self.due)

    @classmethod
    def of(cls, rows: Sequence[tuple[float, ...]]) -> Self:
        """Return columns made from rows whose values are in the order of the fields."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(cls)))
        ordered = table[np.argsort(table[:, 0], kind="stable")]
        values: list[Any] = []
        for index, field in enumerate(fields(cls)):
            column = ordered[:, index]
            values.append(column.astype(np.int64) if field.type == "Integers" else column)
        return cls(*values)

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Return the merged columns of several processes. Their indices must already refer to common lists."""
        if not parts:
            return cls.of([])
        due = np.concatenate([part.due for part in parts])
        order = np.argsort(due, kind="stable")
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts])[order] for field in fields(cls)))

    def select(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """Return the requests for which `mask` is True."""
        return Columns(*(getattr(self, field.name)[mask] for field in fields(Columns)))

    def save(self, path: Path, *, messages: Sequence[str], pods: Sequence[str]) -> None:
        """Write a compressed .npz file with one array per field, and the arrays `messages` and `pods`."""
        arrays: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Columns)}
        with path.open("wb") as stream:
            np.savez_compressed(
                stream, messages=np.array(messages, dtype=str), pods=np.array(pods, dtype=str), **arrays
            )

    @classmethod
    def load(cls, path: Path) -> tuple[Self, list[str], list[str]]:
        """Read a file that `save` has written, and return (columns, messages, pods)."""
        with np.load(path, allow_pickle=False) as stored:
            columns = cls(*(stored[field.name] for field in fields(cls)))
            return columns, stored["messages"].tolist(), stored["pods"].tolist()
