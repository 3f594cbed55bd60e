"""Results of a batch: parts with consecutive rows, lists of rows without a result, and a manifest.

A part is done if its results file exists. If a runner is killed at any point, a new runner computes only the missing
parts. If two runners work at the same time, the part that is written first stays. A row is failed if the results file
of its part doesn't contain it, whichever runner recorded the failure.
"""

# | file | content |
# | --- | --- |
# | batch.json | manifest: digest of the input, rows per part, format, and whether all parts are written |
# | part-00000.npz | results of the rows of a part, in order, with the numbers of the rows |
# | failures-00000-1f2e3d.jsonl | rows of a part without a result in one runner; written before the part |
# | failures.jsonl | all rows without a result, once all parts are written |

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import math
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from halcyon_batch.errors import BatchError
from halcyon_batch.storage import Storage
from halcyon_measure.inputs import array_file

MANIFEST: Final = "batch.json"
FAILURES: Final = "failures.jsonl"
_SUFFIXES: Final = {"Npz": "npz", "Jsonl": "jsonl"}
_PARTS, _PART_BYTES, _LEAST_ROWS = 200, 16 * 2**20, 100
_PART_NAME = re.compile(r"part-(\d{5,})\.(npz|jsonl)")
_FAILURES_NAME = re.compile(r"failures-(\d{5,})(-[0-9a-f]+)?\.jsonl")


@dataclass(frozen=True)
class RowResult:
    """Result of one row: its outputs, or the reason why it has none."""

    row: int
    name: str
    outputs: Mapping[str, Any] | None
    """Outputs of the row by name, as arrays or plain values; None if the row has no result."""
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Settings that are common to all parts in an output folder of a batch."""

    owner: str
    name: str
    digest: str
    total: int
    rows_per_part: int
    format: str
    made_with: str
    """Digest of the model's name and of the user's functions, which must be the same for all parts."""

    @property
    def parts(self) -> int:
        """Number of parts into which the results of the batch are divided."""
        return math.ceil(self.total / self.rows_per_part)

    def rows(self, part: int) -> tuple[int, int]:
        """Return the range of row numbers in a part, as its first number and the number after its last one."""
        return part * self.rows_per_part, min((part + 1) * self.rows_per_part, self.total)


def rows_per_part(total: int, row_bytes: int) -> int:
    """Return the number of rows in each part of the results.

    A part must fit into memory, and be so small that little work is lost if the runner is killed.
    """
    return max(min(max(math.ceil(total / _PARTS), _LEAST_ROWS), _PART_BYTES // row_bytes), 1)


@dataclass
class OutputParts:
    """Parts of the results of a batch, in a folder on a volume or in a bucket."""

    storage: Storage
    manifest: Manifest
    location: str
    present: set[int] = field(default_factory=set)
    failed: int = 0
    """Number of rows without a result in the existing parts."""
    is_complete: bool = False
    _runner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Random name of this run. It is part of the names of its failures files, so that no other run replaces or removes
    them."""
    _failure_files: dict[int, list[str]] = field(default_factory=dict)
    """Names of the failures files of each part."""

    @classmethod
    def begin(cls, storage: Storage, manifest: Manifest, location: str) -> OutputParts:
        """Open an output folder: a new one, or one in which an earlier runner has written parts.

        Raises:
            BatchError: the folder contains other files, or the results of another input, model or function.
        """
        names = storage.names()
        stored = storage.read(MANIFEST)
        if stored is None:
            if names:
                raise BatchError(
                    "OutputExists",
                    f"spec.output: {location} isn't empty: it has {', '.join(sorted(names)[:3])}, and no {MANIFEST}; name a new folder in a new BatchInference",
                )
            storage.create(MANIFEST, _json(vars(manifest)))
            stored = storage.read(MANIFEST) or b""
        stored_manifest, is_complete = _parse(stored, location)
        _check_same(stored_manifest, manifest, location)
        parts = cls(storage, stored_manifest, location, is_complete=is_complete)
        for name in names:
            if (match := _PART_NAME.fullmatch(name)) and match[2] == _SUFFIXES[stored_manifest.format]:
                parts.present.add(int(match[1]))
        parts._find_failure_files(names)
        if is_complete:
            parts.failed = len((storage.read(FAILURES) or b"").splitlines())
            parts._tidy(names)
        else:
            parts.failed = sum(len(parts._failures(part)) for part in sorted(parts.present))
        return parts

    @property
    def missing(self) -> list[int]:
        """Numbers of the parts that aren't written yet, in ascending order."""
        return [part for part in range(self.manifest.parts) if part not in self.present]

    @property
    def rows(self) -> int:
        """Number of rows in the existing parts, including rows without a result."""
        return sum(stop - start for start, stop in map(self.manifest.rows, self.present))

    def write(self, part: int, results: Sequence[RowResult]) -> None:
        """Write a part of the results, unless another runner has written it.

        The list of failed rows is written first. The results file is written last, and marks the part as done.

        Raises:
            BatchError: the results can't be stored in this format, or not at all.
        """
        succeeded = [result for result in results if result.outputs is not None]
        failed = [result for result in results if result.outputs is None]
        encode = _npz if self.manifest.format == "Npz" else _jsonl
        content = encode(succeeded)
        if failed:
            lines = [{"row": result.row, **_name_field(result), "failure": result.failure} for result in failed]
            name = f"failures-{part:05d}-{self._runner}.jsonl"
            self.storage.write(name, b"".join(_json(line) for line in lines))
            self._failure_files.setdefault(part, []).append(name)
        if self.storage.create(self._part_name(part), content):
            self.failed += len(failed)
        else:
            self._find_failure_files(self.storage.names())
            self.failed += len(self._failures(part))
        self.present.add(part)

    def finish(self) -> None:
        """Write the failed rows of all parts to one file, and mark the output as complete."""
        self._find_failure_files(self.storage.names())
        failures = {row: line for part in sorted(self._failure_files) for row, line in self._failures(part).items()}
        if _parse(self.storage.read(MANIFEST) or b"", self.location)[1]:
            # Another runner has finished, and may have removed files of failures before they were read here.
            self.is_complete = True
            return
        unknown = "it has no result, and the file with the reason is gone"
        lines = [line or _json({"row": row, "failure": unknown}).rstrip() for row, line in failures.items()]
        self.storage.write(FAILURES, b"".join(line + b"\n" for line in lines))
        done = {"complete": {"rows": self.manifest.total - len(lines), "failed": len(lines)}}
        self.storage.write(MANIFEST, _json({**vars(self.manifest), **done}))
        self.is_complete = True
        self._tidy(self.storage.names())

    def _part_name(self, part: int) -> str:
        return f"part-{part:05d}.{_SUFFIXES[self.manifest.format]}"

    def _find_failure_files(self, names: Iterable[str]) -> None:
        self._failure_files = {}
        for name in sorted(names):
            if match := _FAILURES_NAME.fullmatch(name):
                self._failure_files.setdefault(int(match[1]), []).append(name)

    def _failures(self, part: int) -> dict[int, bytes | None]:
        """Return the numbers of the rows that a part doesn't contain, each with its line in a failures file.

        The line is None if no failures file contains the row. A part without a failures file contains all its rows,
        because the failures file is written before the part.
        """
        files = self._failure_files.get(part)
        if not files:
            return {}
        reasons: dict[int, bytes] = {}
        for name in files:
            with self._reading(name):
                lines = (self.storage.read(name) or b"").splitlines()
                reasons |= {int(json.loads(line)["row"]): line for line in lines}
        with self._reading(self._part_name(part)):
            stored = _rows_in(self.storage.read(self._part_name(part)) or b"", self.manifest.format)
        return {row: reasons.get(row) for row in range(*self.manifest.rows(part)) if row not in stored}

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Return a context manager that raises a BatchError with the file's name if its content is invalid."""
        try:
            yield
        except (*array_file.DAMAGES, KeyError, TypeError) as error:
            raise BatchError(
                "OutputUnreadable",
                f"spec.output: {name} in {self.location} is damaged: {error}; put the former file back, or remove the files of this part, whose "
                "rows are then computed again, and resume",
            ) from None

    def _tidy(self, names: set[str]) -> None:
        for name in names:
            if name.startswith("failures-"):
                self.storage.remove(name)


def _name_field(result: RowResult) -> dict[str, str]:
    return {"name": result.name} if result.name else {}


def _parse(stored: bytes, location: str) -> tuple[Manifest, bool]:
    try:
        document = json.loads(stored)
        is_complete = document.pop("complete", None) is not None
        manifest = Manifest(**document)
        errors = [
            f"{name} is {count!r}"
            for name, count in (("total", manifest.total), ("rows_per_part", manifest.rows_per_part))
            if type(count) is not int or count < 1
        ]
    except (ValueError, TypeError, AttributeError) as error:
        errors = [str(error)]
    if errors:
        raise BatchError(
            "OutputExists",
            f"spec.output: {MANIFEST} in {location} isn't one of a batch: {errors[0]}; name a new folder in a new BatchInference",
        )
    return manifest, is_complete


def _check_same(stored: Manifest, manifest: Manifest, location: str) -> None:
    if stored.owner != manifest.owner:
        raise BatchError(
            "OutputExists",
            f"spec.output: {location} has the results of another BatchInference, {stored.name} ({stored.owner}); name a new folder in a new BatchInference",
        )
    if stored.digest != manifest.digest:
        raise BatchError(
            "InputChanged",
            f"spec.input has changed: its digest is {manifest.digest}, and {location} has results of {stored.digest}; put the former "
            "content back, or make a new BatchInference with a new output",
        )
    if (stored.made_with, stored.format) != (manifest.made_with, manifest.format):
        raise BatchError(
            "RecipeChanged",
            f"the functions of spec.hooks or the name of the model in requests have changed: their digest is {manifest.made_with}, and "
            f"{location} has results of {stored.made_with}; restore them, or make a new BatchInference with a new output",
        )


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _jsonl(results: Sequence[RowResult]) -> bytes:
    lines = ({"row": result.row, **_name_field(result), "outputs": plain(result.outputs)} for result in results)
    return b"".join(map(_json, lines))


def plain(value: Any) -> Any:
    """Return a value converted to types that JSON supports.

    Values without an equivalent in JSON become strings: NaN and infinities their names, bytes their text or base64.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()  # of an array without dimensions it is the value itself, for example a mapping
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _rows_in(part: bytes, format_: str) -> set[int]:
    """Return the numbers of the rows that the results file of a part contains."""
    if format_ == "Jsonl":
        return {int(json.loads(line)["row"]) for line in part.splitlines()}
    with np.load(io.BytesIO(part), allow_pickle=False) as archive:
        return {int(row) for row in archive["row"]}


def _npz(results: Sequence[RowResult]) -> bytes:
    arrays: dict[str, Any] = {"row": np.array([result.row for result in results], np.int64)}
    if any(result.name for result in results):
        arrays["name"] = np.array([result.name for result in results])
    names = dict.fromkeys(name for result in results for name in result.outputs or {})
    for name in names:
        if lacking := [result.row for result in results if name not in (result.outputs or {})]:
            raise _unsuitable(name, f"row {lacking[0]} has no value for it, and other rows have one")
        if name in {"row", "name"}:
            raise _unsuitable(
                name, "a part has an array of this name for the rows themselves; give the output another one"
            )
        arrays[name] = _stacked(name, [(result.row, (result.outputs or {})[name]) for result in results])
    buffer = io.BytesIO()
    # numpy.savez takes no array of the name `file`. The time of a member is fixed, so equal rows make equal parts.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def _stacked(name: str, values: Sequence[tuple[int, Any]]) -> Any:
    """Return the values of an output, given as pairs of row and value, as one array that leaves each value unchanged.

    The array has no Python objects, because NumPy would store them as a pickle, which readers must not trust.
    """
    try:
        arrays = [np.asarray(value) for _, value in values]
    except ValueError:
        raise _unsuitable(name, "its lists have different lengths") from None
    if len(shapes := {array.shape for array in arrays}) > 1:
        listed = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise _unsuitable(name, f"its shapes differ between rows, for example {listed}")
    is_typed = all(isinstance(value, np.ndarray | np.generic) for _, value in values)
    if is_typed and len({array.dtype for array in arrays}) <= 1 and not any(array.dtype.hasobject for array in arrays):
        return np.stack(arrays)
    cells = [(row, cell) for (row, value), array in zip(values, arrays, strict=True) for cell in _cells(value, array)]
    is_text = any(isinstance(cell, bytes | str) for _, cell in cells)
    kinds = bytes | str if is_text else int | float | complex | dt.date | dt.timedelta
    other = [(row, cell) for row, cell in cells if not isinstance(cell, kinds)]
    # As a text, it would be the word None, or the text of a number.
    for row, cell in sorted(other, key=lambda entry: isinstance(entry[1], int | float))[:1]:
        raise _unsuitable(
            name, f"its value in row {row} is {plain(cell)!r:.60}, and Npz has only numbers or only texts"
        )
    return _texts(name, cells).reshape(len(arrays), *arrays[0].shape) if is_text else _numbers(name, cells, arrays)


def _cells(value: Any, array: Any) -> list[Any]:
    """Return the elements of a row's value as Python objects. `array` is the same value as a NumPy array."""
    if not isinstance(value, list):
        return [value] if isinstance(value, int | str | bytes) else array.ravel().tolist()
    return [cell.item() if isinstance(cell, np.generic) else cell for cell in np.array(value, object).flat]


def _texts(name: str, cells: Sequence[tuple[int, Any]]) -> Any:
    if cut := [row for row, cell in cells if cell[-1:] in {b"\0", "\0"}]:
        raise _unsuitable(name, f"its value in row {cut[0]} ends with a zero byte, which NumPy removes")
    try:
        return np.array([cell for _, cell in cells], "S" if any(isinstance(cell, bytes) for _, cell in cells) else "U")
    except ValueError as error:
        raise _unsuitable(name, str(error)) from None


def _numbers(name: str, cells: Sequence[tuple[int, Any]], arrays: Sequence[Any]) -> Any:
    changed = cells
    with contextlib.suppress(TypeError):  # times and numbers have no common type
        stacked = np.stack(arrays)
        if stacked.dtype.kind in "mM":
            return stacked
        if not stacked.dtype.hasobject:
            converted = zip(cells, stacked.ravel().tolist(), strict=True)
            changed = [cell for cell, value in converted if cell[1] != value and not math.isnan(value.real)]
        if not changed:
            return stacked
    if all(isinstance(cell, int) for _, cell in cells):
        # NumPy makes floats of integers above 2^63 beside smaller ones.
        with contextlib.suppress(OverflowError):
            return np.array([cell for _, cell in cells], np.uint64).reshape(len(arrays), *arrays[0].shape)
    row, cell = changed[0]
    raise _unsuitable(name, f"no type of NumPy has its value in row {row}, {cell!r:.60}, and the others unchanged")


def _unsuitable(name: str, why: str) -> BatchError:
    return BatchError(
        "OutputUnsuitable",
        f"output {name} can't be stored as Npz: {why}; in a new BatchInference, set output.format: Jsonl and name a new folder",
    )
