"""JSON encoding of the documents that agents and operator exchange: the fields of a dataclass, and a version number.

Agents and operator are not upgraded at the same moment. Therefore fields that were added later have a default, and unknown fields are
ignored. Documents with another version number are rejected. The types of values are not checked here; the code that reads a document
does this. The module uses only the standard library, because the agent's memory is limited
(docs/decisions/0042-documents-between-parts.md).
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

T = TypeVar("T")

NOT_A_DOCUMENT = (KeyError, TypeError, AttributeError, RecursionError, ValueError)
"""Exceptions that parsing of text that is no valid document can raise. JSON and UTF-8 errors are ValueErrors."""


class UnknownVersionError(ValueError):
    """The document has a version number that is not supported."""

    def __init__(self, version: object) -> None:
        super().__init__(f"version {version}")
        self.version = version


def encoded(document: object, version: int, *, leave_out: frozenset[str] = frozenset(), sort_keys: bool = False) -> str:
    """Return the document as one line of JSON, with its version and with the fields of its dataclass except `leave_out`.

    In nested dataclasses, fields with an unknown value (None) are omitted, so that they take no space.
    """
    raw = {name: value for name, value in vars(document).items() if name not in leave_out}
    return json.dumps({"version": version, **raw}, default=_without_unknown, sort_keys=sort_keys, separators=(",", ":"))


def _without_unknown(part: object) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if value is not None}


def fields_of(text: str | bytes, version: int) -> dict[str, Any]:
    """Return the fields of a JSON document.

    Raises:
        UnknownVersionError: the document has another version.
        Exception: the text is not a document. The exception has one of the types in `NOT_A_DOCUMENT`.
    """
    return checked(json.loads(text), version)


def checked(raw: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the fields of a document that is already parsed from JSON. It raises the same errors as `fields_of`."""
    actual = raw.pop("version")
    if actual != version:
        raise UnknownVersionError(actual)
    return raw


def decoded(kind: type[T], raw: dict[str, Any]) -> T:
    """Return an instance of the dataclass `kind` with the values in `raw`, ignoring unknown fields."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]  # only dataclasses are given
    return kind(**{name: value for name, value in raw.items() if name in fields})
