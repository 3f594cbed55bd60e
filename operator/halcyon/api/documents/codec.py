"""JSON of the documents that agents and operator exchange: a version, the fields of a dataclass, and rules for other versions.

Agents and operator are not replaced at the same moment. A field that a later version adds has a default, and a field that this
version does not know is ignored. A document of another version is refused. Types of values are not checked here: the reader of a
document knows what a wrong value means. Standard library only: the agent's memory is a budget
(docs/decisions/0042-documents-between-parts.md).
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

T = TypeVar("T")

NOT_A_DOCUMENT = (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError)
"""What reading a text raises that is no such document."""


class UnknownVersionError(ValueError):
    """The document has a version that this process can't read."""

    def __init__(self, version: object) -> None:
        super().__init__(f"version {version}")
        self.version = version


def encoded(document: object, version: int, *, leave_out: frozenset[str] = frozenset(), sort_keys: bool = False) -> str:
    """Return a document on one line: its dataclass's fields, but for some of them, and its version."""
    raw = {name: value for name, value in vars(document).items() if name not in leave_out}
    return json.dumps({"version": version, **raw}, default=vars, sort_keys=sort_keys, separators=(",", ":"))


def fields_of(text: str | bytes, version: int) -> dict[str, Any]:
    """Return the fields of a document.

    Raises:
        UnknownVersionError: it has another version.
        Exception: one of `NOT_A_DOCUMENT`.
    """
    raw: dict[str, Any] = json.loads(text)
    found = raw.pop("version")
    if found != version:
        raise UnknownVersionError(found)
    return raw


def made(kind: type[T], raw: dict[str, Any]) -> T:
    """Return an instance built from the fields that this version knows."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]  # only dataclasses are given
    return kind(**{name: value for name, value in raw.items() if name in known})
