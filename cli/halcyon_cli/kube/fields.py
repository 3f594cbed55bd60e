"""Tolerant getters for JSON that another version may have written. A value of the wrong type is treated as missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from halcyon.api.timestamps import parse_rfc3339


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the elements of a list that are objects."""
    return [item for item in sequence(value) if isinstance(item, Mapping)]


def count(value: object) -> int | None:
    """Return the value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: object) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def time(value: object) -> datetime | None:
    """Return the value if it is a timestamp with a time zone, else None."""
    return parse_rfc3339(value)
