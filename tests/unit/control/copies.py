"""Copies of API objects for tests."""

from __future__ import annotations

from typing import TypeVar

import orjson

T = TypeVar("T")


def copied(document: T) -> T:
    """Return a deep copy of JSON data. `copy.deepcopy` takes ten times as long."""
    copy: T = orjson.loads(orjson.dumps(document))
    return copy
