"""Generator of docs/reference/bench.md: the fields of `bench.json` and the columns of `requests.npz`.

`scripts/generate docs` runs it in the repository's root: `python -m generators.bench_reference`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from generators.field_descriptions import docstrings
from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.document import BenchDocument, Latencies
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections.analysis import VariantsDocument
from halcyon_measure.results.sections.hardware import Series

_HEAD = """\
# Results of `halcyon bench`

<!-- Generated from halcyon_measure/results by `scripts/generate docs`. A test keeps it up to date. -->

`halcyon bench --save FOLDER` writes two files: `bench.json` with the result, and `requests.npz` with every request of the measured part of the run. The
text output and `-o json` show the content of `bench.json`. [Measure a model](../guides/measure.md) is the guide.

The current version of the format of `bench.json` is 1 (field `version`). If the meaning of a field changes, the version of the format changes
too; adding a field doesn't change the version. A figure that wasn't measured has the value `null` and a `reason`.

## bench.json
"""
_FIGURES = """
### Figures

Every measured number is an object:
"""
_LATENCIES = """
### Latencies

The sections `latency`, `from_send`, `first_byte` and `prepare` contain the figures `mean`, `p50`, `p90`, `p95`, `p99`, `p99_9` and `max`, all in ms. For
example, `p95` is the smallest measured value such that at least 95 % of the requests are at or below it.
"""
_SERIES = """
### Series

A quantity that is sampled once a second, such as CPU time, has the figures `mean`, `p10`, `p90` and `max`.
"""
_COLUMNS = """
## requests.npz

The file `requests.npz` is a NumPy archive. Each array in `requests.npz` has one value for each request, in the order in which the requests were due. Times in
`requests.npz` are in seconds since the beginning of the measured part of the run. Above five million requests, `halcyon bench` writes the file `histogram.npz`
instead of `requests.npz`. The file `histogram.npz` contains histograms with logarithmic bins: one histogram per kind of duration (arrays `durations`,
`bins_s` and `counts`), and one latency histogram per second of the run (array `cells`). When `halcyon bench` writes a histogram, it
sets `run.histogram` to true; counts and means are then still exact, and percentiles are accurate to 0.2 %.

| array | meaning |
| --- | --- |
"""
_OUTCOMES = """
| `outcome` | name | meaning |
| --- | --- | --- |
"""


_FILES = """
## Results of `halcyon analyse` and `halcyon variants`

The output of `halcyon analyse -o json` contains `version`, `made_by`, `made_at`, and the sections `static`, `alone` and `roofline` of `bench.json`. The
output of `halcyon variants -o json` has these fields:

| field | type | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [_HEAD, "\n| field | type | meaning |\n| --- | --- | --- |\n"]
    parts += [f"| `{name}` | {kind} | {text} |\n" for name, kind, text in _rows(BenchDocument, "")]
    parts += [_FIGURES, "\n| field | type | meaning |\n| --- | --- | --- |\n"]
    parts += [f"| `{name}` | {kind} | {text} |\n" for name, kind, text in _rows(Figure, "")]
    parts += [_LATENCIES, _SERIES, _COLUMNS]
    columns = docstrings(Columns)
    parts += [
        f"| `{field.name}` | {columns.get(field.name, _PLAIN.get(field.name, ''))} |\n" for field in fields(Columns)
    ]
    parts += ["| `messages`, `pods` | texts that `kind` and `pod` are indices into |\n", _OUTCOMES]
    outcomes = docstrings(Outcome)
    parts += [
        f"| {outcome.value} | `{outcome.name.lower()}` | {outcomes.get(outcome.name, 'The whole answer arrived.')} |\n"
        for outcome in Outcome
    ]
    parts.append(_FILES)
    parts += [f"| `{name}` | {kind} | {text} |\n" for name, kind, text in _rows(VariantsDocument, "")]
    return "".join(parts)


_PLAIN = {
    "due": "Time when it was due.",
    "first_byte": "Time when the first byte of the answer arrived.",
    "rows": "Rows of the request.",
    "sent_bytes": "Size of the request.",
    "received_bytes": "Size of the answer.",
}
"""Meanings of the columns that have no docstring."""


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        inner = _inner(kind)
        nested = inner is not None and inner not in {Figure, Latencies, Series}
        text = field.description or (inspect.cleandoc(inner.__doc__ or "").split("\n")[0] if inner is not None else "")
        path = f"{prefix}{name}" + ("[]" if get_origin(kind) is tuple and inner is not None else "")
        yield path, _type(kind), text
        if nested and inner is not None:
            yield from _rows(inner, f"{path}.")


def _inner(kind: Any) -> type[BaseModel] | None:
    """Return the model class of a field, or of the items of its list; None if there is none."""
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _type(kind: Any) -> str:
    """Return the type in the terms of JSON."""
    inner = _inner(kind)
    if inner in {Figure, Latencies, Series}:
        return inner.__name__.lower()
    if get_origin(kind) is tuple:
        return "list"
    args = get_args(kind)
    if inner is not None:
        return "object or null" if type(None) in args else "object"
    if type(None) in args:
        return " or ".join([_type(argument) for argument in args if argument is not type(None)] + ["null"])
    if args:
        return "string" if isinstance(args[0], str) else "number"
    return {bool: "boolean", int: "integer", float: "number", str: "string"}[kind]


if __name__ == "__main__":
    sys.stdout.write(page())
