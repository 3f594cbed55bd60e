"""Tolerant getters for JSON that another version may have written: values of the wrong type count as missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from halcyon.api.timestamps import parse_rfc3339


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object; empty if it isn't one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """Return a list; empty if it isn't one."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list."""
    return [item for item in sequence(value) if isinstance(item, Mapping)]


def count(value: object) -> int | None:
    """Return an integer, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: object) -> str | None:
    """Return a non-empty string, or None."""
    return value if isinstance(value, str) and value else None


def time(value: object) -> datetime | None:
    """Return a timestamp with its time zone, or None."""
    return parse_rfc3339(value)
