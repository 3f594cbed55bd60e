"""The results of a batch: parts of consecutive rows, rows without a result, and a manifest for resumed batches.

    batch.json            settings of the parts: digest of the input, rows per part, format; whether all are written
    part-00000.npz        results of the rows of a part, in order, with the numbers of the rows
    failures-00000.jsonl  rows of a part without a result; written before the part, so no part exists without it
    failures.jsonl        all rows without a result, once all parts are written

A part whose results file exists is done. After a kill at any point, a new runner makes only the missing parts.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from halcyon_batch.errors import BatchError
from halcyon_batch.storage import Storage

MANIFEST: Final = "batch.json"
FAILURES: Final = "failures.jsonl"
_SUFFIXES: Final = {"Npz": "npz", "Jsonl": "jsonl"}
_PARTS, _PART_BYTES, _LEAST_ROWS = 200, 16 * 2**20, 100
_PART_NAME = re.compile(r"part-(\d{5,})\.(npz|jsonl)")


@dataclass(frozen=True)
class RowResult:
    """Result of one row: its outputs, or the reason why it has none."""

    row: int
    name: str
    outputs: Mapping[str, Any] | None
    """Arrays or plain values by output name; None if the row has no result."""
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Settings with which all parts of an output folder are made."""

    owner: str
    name: str
    digest: str
    total: int
    rows_per_part: int
    format: str
    made_with: str
    """Digest of the model's name and of the functions, which must be the same for all parts."""

    @property
    def parts(self) -> int:
        """Number of parts."""
        return math.ceil(self.total / self.rows_per_part)

    def rows(self, part: int) -> tuple[int, int]:
        """Return the number of a part's first row, and the number after that of its last row."""
        return part * self.rows_per_part, min((part + 1) * self.rows_per_part, self.total)


def rows_per_part(total: int, row_bytes: int) -> int:
    """Return the number of rows per part.

    Parts are small enough to lose little work after a kill, and fit into memory.
    """
    return max(min(max(math.ceil(total / _PARTS), _LEAST_ROWS), _PART_BYTES // row_bytes), 1)


@dataclass
class OutputParts:
    """The parts in a storage.

    If two runners work at the same time, both write the same parts, and each file is complete.
    """

    storage: Storage
    manifest: Manifest
    where: str
    present: set[int] = field(default_factory=set)
    failed: int = 0
    """Number of rows without a result in the parts that exist."""
    is_complete: bool = False

    @classmethod
    def begin(cls, storage: Storage, manifest: Manifest, where: str) -> OutputParts:
        """Return the parts of a new output, or those that an earlier runner wrote.

        Raises:
            BatchError: the folder contains other files, or the results of another input, model or function.
        """
        names = storage.names()
        stored = storage.read(MANIFEST)
        if stored is None:
            if names:
                raise BatchError(
                    "OutputExists",
                    f"spec.output: {where} isn't empty: it has {', '.join(sorted(names)[:3])}, and no {MANIFEST}; name a new folder",
                )
            storage.create(MANIFEST, _json(vars(manifest)))
            stored = storage.read(MANIFEST) or b""
        found, is_complete = _parse(stored, where)
        _check_same(found, manifest, where)
        parts = cls(storage, found, where, is_complete=is_complete)
        for name in names:
            if (match := _PART_NAME.fullmatch(name)) and match[2] == _SUFFIXES[found.format]:
                parts.present.add(int(match[1]))
        if is_complete:
            parts.failed = len((storage.read(FAILURES) or b"").splitlines())
            parts._tidy(names)
        else:
            parts.failed = sum(len(parts._failures(part)) for part in sorted(parts.present))
        return parts

    @property
    def missing(self) -> list[int]:
        """Numbers of the parts that aren't written yet, ascending."""
        return [part for part in range(self.manifest.parts) if part not in self.present]

    @property
    def rows(self) -> int:
        """Number of rows in the parts that exist, including rows without a result."""
        return sum(stop - start for start, stop in map(self.manifest.rows, self.present))

    def write(self, part: int, results: Sequence[RowResult]) -> None:
        """Write a part: first its failures, then its results, which mark it as done.

        Raises:
            BatchError: the results can't be stored in this format, or not at all.
        """
        good = [one for one in results if one.outputs is not None]
        bad = [one for one in results if one.outputs is None]
        if bad:
            lines = [{"row": one.row, **_named(one), "failure": one.failure} for one in bad]
            self.storage.write(_failures_name(part), b"".join(_json(line) for line in lines))
        else:
            # A killed runner may have left a failures file for rows that have a result now.
            self.storage.remove(_failures_name(part))
        encode = _npz if self.manifest.format == "Npz" else _jsonl
        self.storage.write(f"part-{part:05d}.{_SUFFIXES[self.manifest.format]}", encode(good))
        self.present.add(part)
        self.failed += len(bad)

    def finish(self) -> None:
        """Collect the failures of all parts in one file, and mark the output as complete."""
        lines = [line for part in range(self.manifest.parts) for line in self._failures(part)]
        self.storage.write(FAILURES, b"".join(line + b"\n" for line in lines))
        done = {"complete": {"rows": self.manifest.total - len(lines), "failed": len(lines)}}
        self.storage.write(MANIFEST, _json({**vars(self.manifest), **done}))
        self.is_complete = True
        self._tidy(self.storage.names())

    def _failures(self, part: int) -> list[bytes]:
        return (self.storage.read(_failures_name(part)) or b"").splitlines()

    def _tidy(self, names: set[str]) -> None:
        for name in names:
            if name.startswith("failures-"):
                self.storage.remove(name)


def _failures_name(part: int) -> str:
    return f"failures-{part:05d}.jsonl"


def _named(one: RowResult) -> dict[str, str]:
    return {"name": one.name} if one.name else {}


def _parse(stored: bytes, where: str) -> tuple[Manifest, bool]:
    try:
        document = json.loads(stored)
        is_complete = document.pop("complete", None) is not None
        return Manifest(**document), is_complete
    except (ValueError, TypeError, AttributeError) as error:
        raise BatchError(
            "OutputExists", f"spec.output: {MANIFEST} in {where} isn't one of a batch: {error}; name a new folder"
        ) from None


def _check_same(found: Manifest, manifest: Manifest, where: str) -> None:
    if found.owner != manifest.owner:
        raise BatchError(
            "OutputExists",
            f"spec.output: {where} has the results of another BatchInference, {found.name} ({found.owner}); name a new folder",
        )
    if found.digest != manifest.digest:
        raise BatchError(
            "InputChanged",
            f"spec.input has changed: its digest is {manifest.digest}, and {where} has results of {found.digest}; put the former "
            "content back, or make a new BatchInference with a new output",
        )
    if (found.made_with, found.format) != (manifest.made_with, manifest.format):
        raise BatchError(
            "RecipeChanged",
            f"the functions of spec.hooks have changed: their digest is {manifest.made_with}, and {where} has results of "
            f"{found.made_with}; make a new BatchInference with a new output",
        )


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _jsonl(results: Sequence[RowResult]) -> bytes:
    return b"".join(_json({"row": one.row, **_named(one), "outputs": plain(one.outputs)}) for one in results)


def plain(value: Any) -> Any:
    """Return a value in JSON's types.

    Values that JSON lacks become strings: NaN and infinities by name, bytes as text or base64.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _npz(results: Sequence[RowResult]) -> bytes:
    arrays: dict[str, Any] = {"row": np.array([one.row for one in results], np.int64)}
    if any(one.name for one in results):
        arrays["name"] = np.array([one.name for one in results])
    names = [*(results[0].outputs or {})] if results else []
    for name in names:
        values = [np.asarray((one.outputs or {}).get(name)) for one in results]
        shapes = {value.shape for value in values}
        if len(shapes) > 1 or name in {"row", "name"}:
            raise BatchError(
                "OutputUnsuitable",
                f"output {name} can't be stored as Npz: its shapes differ between rows, for example "
                f"{' and '.join(str(list(one)) for one in sorted(shapes)[:2])}, or its name is row or name; set output.format: Jsonl, "
                "and name a new folder",
            )
        stacked = np.stack(values)
        try:
            # Objects would be stored as a pickle, which a reader must not trust.
            arrays[name] = np.array(stacked.tolist(), "S") if stacked.dtype.hasobject else stacked
        except (TypeError, ValueError) as error:
            raise BatchError(
                "OutputUnsuitable",
                f"output {name} can't be stored as Npz: {error}; set output.format: Jsonl, and name a new folder",
            ) from None
    buffer = io.BytesIO()
    # numpy.savez takes no array of the name `file`. The time of a member is fixed, so equal rows make equal parts.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()
