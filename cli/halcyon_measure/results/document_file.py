"""Reader of results from `bench.json` or from a report. Errors name the file and the field, and give an example.

Out of scope: the meaning of the fields (`document`).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from halcyon_measure.errors import MeasureError
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure

VERSION = 1
MAX_BYTES = 64 << 20
"""Maximum size in bytes of a file that is read."""
_EMBEDDED = re.compile(
    r'<script id="data" type="application/json" data-encoding="(plain|deflate)">(.*?)</script>', re.DOTALL
)
_EXAMPLES: Mapping[type, str] = {bool: "true", int: "233", float: "24.6", str: '"digits"'}
_COUNTS = ("answered", "rejected", "timed_out", "disconnected", "errors", "wrong", "not_sent")


class DocumentError(MeasureError):
    """The file isn't a result of `halcyon bench`, or is incomplete."""


@dataclass(frozen=True)
class StoredDocument:
    """Document with the name of the file from which it was read."""

    name: str
    document: BenchDocument
    data: Mapping[str, Any]
    """JSON value exactly as it was read."""


def read(path: Path) -> tuple[StoredDocument, ...]:
    """Return the documents in a file: one in a `bench.json`, one or more in a report.

    For a folder, its `bench.json` is read.

    Raises:
        DocumentError: the file can't be read, is truncated, has another version, or has invalid fields.
    """
    if path.is_dir():
        path /= "bench.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DocumentError(f"{path}: larger than {MAX_BYTES >> 20} MiB, so it isn't a result; give bench.json")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DocumentError(f"{path}: not text; give bench.json, not requests.npz") from None
    if text.lstrip()[:9].lower() == "<!doctype":
        documents = embedded(text, str(path))
        return tuple(_checked(f"{path}, {name}", name, data) for name, data in documents)
    return (_checked(str(path), _path_text(path.name), _parsed(text, str(path))),)


def read_all(paths: Sequence[Path]) -> tuple[StoredDocument, ...]:
    """Return the documents in several files. Documents of files with the same name are named by their paths.

    Raises:
        DocumentError: a file can't be read, is truncated, has another version, or has invalid fields.
    """
    stored_documents = [(path, stored) for path in paths for stored in read(path)]
    counts = Counter(stored.name for _, stored in stored_documents)
    documents, seen = [], Counter[str]()
    for path, stored in stored_documents:
        name = stored.name
        if counts[name] > 1:
            name = _path_text(path) if name == _path_text(path.name) else f"{_path_text(path)}, {name}"
        seen[name] += 1
        documents.append(replace(stored, name=name if seen[name] == 1 else f"{name} ({seen[name]})"))
    return tuple(documents)


def embedded(html: str, path: str = "the report") -> list[tuple[str, Any]]:
    """Return the names and JSON values of the documents in a report.

    Raises:
        DocumentError: the report has no documents, or is truncated.
    """
    match = _EMBEDDED.search(html)
    if match is None:
        raise DocumentError(f"{path}: no results of halcyon bench are in this page; it is cut off, or isn't a report")
    text = match.group(2)
    if match.group(1) == "deflate":
        try:
            text = zlib.decompress(base64.b64decode(text, validate=True)).decode("utf-8")
        except (ValueError, binascii.Error, zlib.error):
            raise DocumentError(f"{path}: the results in this report are damaged; write the report again") from None
    try:
        documents = [(str(entry["name"]), entry["document"]) for entry in _parsed(text, path)]
    except (KeyError, TypeError):
        raise DocumentError(f"{path}: the results in this report are damaged; write the report again") from None
    if not documents:
        raise DocumentError(f"{path}: this report has no results; write the report again")
    return documents


def parse(data: Any, path: str) -> BenchDocument:
    """Return the document for a JSON value that was read from the file `path`.

    Raises:
        DocumentError: a field is missing, unknown or invalid.
    """
    if not isinstance(data, dict):
        raise DocumentError(
            f'{path}: not a result of halcyon bench: it must be an object, {{"version": {VERSION}, ...}}'
        )
    if "version" not in data:
        raise DocumentError(f'{path}: version: missing; a result of halcyon bench begins with {{"version": {VERSION}')
    if data["version"] != VERSION or isinstance(data["version"], bool):
        writer = f" (made by {data['made_by']})" if isinstance(data.get("made_by"), str) else ""
        raise DocumentError(
            f"{path}: version: {json.dumps(data['version'])}{writer}; this command reads version {VERSION}. Use the "
            "halcyon that wrote it, or measure again"
        )
    for field, value in _numbers(data, ""):
        if not math.isfinite(value):
            raise DocumentError(
                f"{path}: {field}: {value} isn't a number of JSON; a figure that wasn't measured is null and has a "
                'reason, for example {"value": null, "reason": "no request was answered", ...}'
            )
    try:
        document = BenchDocument.model_validate(data)
    except ValidationError as error:
        raise DocumentError(f"{path}: {_problem(error)}") from None
    _check(document, path)
    return document


def _path_text(path: Path | str) -> str:
    """Return a path as text. Bytes that aren't UTF-8 are escaped, so that pages and tables can contain the text."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def _checked(path: str, name: str, data: Any) -> StoredDocument:
    return StoredDocument(name=name, document=parse(data, path), data=data)


def _parsed(text: str, path: str) -> Any:
    if not text.strip():
        raise DocumentError(f"{path}: empty; copy the file again, or measure again")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg:
            raise DocumentError(
                f"{path}: cut off after {len(text.encode())} bytes, in line {error.lineno}; copy the file again, or "
                "measure again"
            ) from None
        line = text.splitlines()[error.lineno - 1].strip()[:60] if text.splitlines() else ""
        raise DocumentError(
            f"{path}: not JSON: line {error.lineno}, column {error.colno}: {error.msg}, at {line!r}"
        ) from None
    except ValueError:
        raise DocumentError(f"{path}: not a result of halcyon bench: a number has more than 4,300 digits") from None
    except RecursionError:
        raise DocumentError(f"{path}: nested too deep for a result of halcyon bench") from None


def _numbers(value: Any, field: str) -> Iterator[tuple[str, float]]:
    """Yield each floating-point number with the path of its field."""
    if isinstance(value, float):
        yield field, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{field}.{name}" if field else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{field}[{index}]")


def _problem(error: ValidationError) -> str:
    """Return the first validation error as a sentence, with an example."""
    first_error = error.errors(include_url=False)[0]
    location = first_error["loc"]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    model, kind, text = _described(location)
    example = next((literal for candidate, literal in _EXAMPLES.items() if candidate in {kind, *get_args(kind)}), None)
    hint = f"; for example {example}" if example else ""
    if kind is Figure:
        hint = '; for example {"value": 24.6, "unit": "ms", "n": 233, "source": "due to done"}'
    more = f" ({error.error_count() - 1} more problems)" if error.error_count() > 1 else ""
    if first_error["type"] == "missing":
        return f"{field}: missing. {text}{hint}{more}"
    if first_error["type"] == "extra_forbidden":
        fields = ", ".join(model.model_fields) if model is not None else ""
        return f"{field}: unknown in version {VERSION}; the fields here are {fields}{more}"
    input_text = json.dumps(first_error["input"], default=str)
    input_text = input_text if len(input_text) <= 60 else f"{input_text[:57]}..."
    return f"{field}: {input_text}: {first_error['msg'][:1].lower()}{first_error['msg'][1:]}. {text}{hint}{more}"


def _described(path: Sequence[int | str]) -> tuple[type[BaseModel] | None, Any, str]:
    """Return the model class with a field, the field's type, and its description."""
    model: type[BaseModel] | None = BenchDocument
    kind: Any = BenchDocument
    text = ""
    owner = model
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        owner = model
        field = model.model_fields.get(part)
        if field is None:
            return owner, None, ""
        kind, text = field.annotation, field.description or ""
        model = _model(kind)
    return owner, kind, text


def _model(kind: Any) -> type[BaseModel] | None:
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _check(document: BenchDocument, path: str) -> None:
    """Check the rules that the field types don't cover: consistency of counts, intervals, and reasons."""
    requests = document.requests
    for name, count in requests:
        if count is not None and count < 0:
            raise DocumentError(f"{path}: requests.{name}: {count}; it must be 0 or more, for example 233")
    total = sum(getattr(requests, name) for name in _COUNTS)
    if total != requests.due:
        raise DocumentError(
            f"{path}: requests.due: {requests.due}; it must be the sum of {', '.join(_COUNTS)}, which is {total}"
        )
    if (distribution := document.distribution) is not None:
        for name in ("latency_ms", "from_send_ms"):
            if (count := len(getattr(distribution, name))) != len(distribution.shares):
                raise DocumentError(
                    f"{path}: distribution.{name}: {count} values; it must have one for each of the {len(distribution.shares)} "
                    "shares"
                )
    for field, figure in _figures(document, ""):
        if figure.value is None and not figure.reason:
            raise DocumentError(
                f'{path}: {field}.reason: empty; a null value needs one, for example "no request was answered"'
            )
        if figure.interval is not None and figure.interval[0] > figure.interval[1]:
            low, high = figure.interval
            raise DocumentError(
                f"{path}: {field}.interval: [{low}, {high}]; the lower end comes first, as [{high}, {low}]"
            )


def _figures(value: Any, field: str) -> Iterator[tuple[str, Figure]]:
    if isinstance(value, Figure):
        yield field, value
    elif isinstance(value, BaseModel):
        for name, inner in value:
            yield from _figures(inner, f"{field}.{name}" if field else name)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _figures(inner, f"{field}[{index}]")
