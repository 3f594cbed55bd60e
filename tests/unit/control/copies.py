"""API objects as tests hand them around."""

from __future__ import annotations

from typing import TypeVar

import orjson

T = TypeVar("T")


def copied(document: T) -> T:
    """A copy that shares nothing, of what JSON can hold; `copy.deepcopy` takes ten times as long."""
    made: T = orjson.loads(orjson.dumps(document))
    return made
