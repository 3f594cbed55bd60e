"""JSON merge patches: creation from two values or for one field, and application. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SAME: Final = object()
"""Result of `difference` for equal values. It isn't None, because None is a patch that removes a field."""


def difference(current: Any, desired: Any) -> Any:  # JSON values
    """Return the merge patch that turns `current` into `desired`; `SAME` if they are equal."""
    if isinstance(current, Mapping) and isinstance(desired, Mapping):
        patch: dict[str, Any] = {}
        for key in {**current, **desired}:
            change = difference(current.get(key), desired.get(key))
            if change is not SAME:
                patch[key] = change
        return patch or SAME
    return SAME if current == desired else desired


def of_field(field: str, value: Any) -> dict[str, Any]:  # a JSON value
    """Return the merge patch that sets a field such as `spec.batching.maxBatchSize`."""
    first, *below = field.split(".")
    for name in reversed(below):
        value = {name: value}
    return {first: value}


def applied(value: Any, patch: Any) -> Any:  # JSON values
    """Return the value after a merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), change)
    return result
