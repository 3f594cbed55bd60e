"""Values out of JSON that another version may have written: what isn't of the form expected is as if it weren't there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """An object; empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """A list; empty where it is none."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list."""
    return [one for one in sequence(value) if isinstance(one, Mapping)]


def count(value: object) -> int | None:
    """A whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: object) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def time(value: object) -> datetime | None:
    """A time with its zone."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
