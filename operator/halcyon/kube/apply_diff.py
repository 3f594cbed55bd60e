"""Comparison of a live object with the desired one, so that only differences are written. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import orjson

from halcyon.api.types import GROUP, quantity
from halcyon.kube.client import Object

DIGEST = f"{GROUP}/applied"
"""Annotation with the digest of the applied object: it reveals fields that were applied before and are left out now."""


def with_digest(obj: Object) -> Object:
    """Return the object with the annotation."""
    text = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).hexdigest()[:16]
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), DIGEST: digest}}}


def holds(live: Any, wanted: Any) -> bool:  # any JSON value
    """Return whether `live` has everything that `wanted` has.

    Fields that only `live` has are defaults of the API server or belong to other managers. Lists are compared item by item:
    those that we write are ours as a whole. Quantities are equal if their values are.
    """
    if isinstance(wanted, dict):
        # The API server leaves empty strings out, and keeps them as values of a map.
        return isinstance(live, dict) and all(
            holds(live[key], value) if key in live else value == "" for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(holds(a, b) for a, b in zip(live, wanted, strict=True))
        )
    return bool(live == wanted) or _same_quantity(live, wanted)


# Without an exponent, which the API server writes only if it was given one, and no longer than sizes are: other texts that
# look like numbers (a digest `0e12`, a long id) are equal only if they are identical.
_WRITTEN = re.compile(r"[0-9]{1,18}(\.[0-9]*)?[A-Za-z]*")


def _same_quantity(live: Any, wanted: Any) -> bool:  # any JSON value
    if not (isinstance(live, str) and isinstance(wanted, str)):
        return False
    if not (_WRITTEN.fullmatch(live) and _WRITTEN.fullmatch(wanted)):
        return False
    try:
        # The API server rounds a pod's resources up to thousandths.
        return math.ceil(quantity(live) * 1000) == math.ceil(quantity(wanted) * 1000)
    except ValueError:
        return False
