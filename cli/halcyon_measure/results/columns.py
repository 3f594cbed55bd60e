"""One row for each request of a run, as NumPy columns, and the file that keeps them.

Times are seconds since the beginning of the measured part of the run, on one monotonic clock for all processes of the
machine. Requests that became due before it are warm-up and aren't in the columns.
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
    """Time when the bytes of the request were ready; equal to `due` if they were made before the run."""
    sent: Floats
    """Time when the protocol's client received it; NaN if it wasn't sent."""
    written: Floats
    """Time when its last byte was in the socket; NaN if the client doesn't report it, as over gRPC."""
    first_byte: Floats
    done: Floats
    """Time when the answer was complete, or the failure was known."""
    finished: Floats
    """Time when the user's function had processed the answer; `done` if there is none."""
    encode: Floats
    """Duration of its serialisation, a part of the time from `due` to `prepared`; 0 if it was serialised before the run."""
    decode: Floats
    """Duration of decoding the answer, a part of the time from `done` to `finished`; 0 if it isn't decoded."""
    outcome: Integers
    """A value of `Outcome`."""
    kind: Integers
    """Index into the messages of the run; -1 for an answer."""
    rows: Integers
    sent_bytes: Integers
    received_bytes: Integers
    pod: Integers
    """Index into the pods of the run; -1 if the answer doesn't name one."""

    def __len__(self) -> int:
        return len(self.due)

    @classmethod
    def of(cls, rows: Sequence[tuple[float, ...]]) -> Self:
        """Return columns made of rows, whose values are in the order of the fields."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(cls)))
        ordered = table[np.argsort(table[:, 0], kind="stable")]
        values: list[Any] = []
        for index, field in enumerate(fields(cls)):
            column = ordered[:, index]
            values.append(column.astype(np.int64) if field.type == "Integers" else column)
        return cls(*values)

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Return the columns of several processes together. Their indices must already refer to common lists."""
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
