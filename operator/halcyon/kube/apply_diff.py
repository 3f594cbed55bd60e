"""Comparison of a live object with the desired one, so that unchanged objects are not written. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import orjson

from halcyon.api.types import GROUP, quantity
from halcyon.kube.kinds import Object

DIGEST = f"{GROUP}/applied"
"""Annotation with the digest of the object that was applied. With it, fields that were applied before and have since
been removed are detected."""


def with_digest(obj: Object) -> Object:
    """Return a copy of the object with the annotation `DIGEST`."""
    text = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).hexdigest()[:16]
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), DIGEST: digest}}}


def holds(live: Any, desired: Any) -> bool:  # any JSON value
    """Return True if `live` has all fields of `desired`, with the same values.

    Fields that only `live` has are ignored, because they are defaults of the API server or belong to other field
    managers. Lists must have the same items in the same order, because Halcyon owns each list that it writes as a
    whole. Quantities are compared by value.
    """
    if isinstance(desired, dict):
        # The API server omits fields with an empty string, but keeps empty strings as values of a map.
        return isinstance(live, dict) and all(
            holds(live[key], value) if key in live else value == "" for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(holds(a, b) for a, b in zip(live, desired, strict=True))
        )
    return bool(live == desired) or _same_quantity(live, desired)


# Strings that are compared as quantities. They have no exponent, because the API server only writes one if it received one, and at most 18
# digits. Other strings that look like numbers (a digest `0e12`, a long id) must be identical.
_WRITTEN = re.compile(r"[0-9]{1,18}(\.[0-9]*)?[A-Za-z]*")


def _same_quantity(live: Any, desired: Any) -> bool:  # any JSON value
    if not (isinstance(live, str) and isinstance(desired, str)):
        return False
    if not (_WRITTEN.fullmatch(live) and _WRITTEN.fullmatch(desired)):
        return False
    try:
        # The API server rounds the resources of a pod up to thousandths.
        return math.ceil(quantity(live) * 1000) == math.ceil(quantity(desired) * 1000)
    except ValueError:
        return False
