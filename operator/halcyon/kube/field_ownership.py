"""Owners of an object's fields, from its `managedFields`. Pure.

A server-side apply removes a field that is no longer in the applied object only if no other manager owns the field.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
"""Entry of `managedFields`: a manager, an operation, and the fields that it owns."""


def with_sole_owner(entries: Iterable[Entry], manager: str, path: Sequence[str]) -> list[Entry] | None:
    """Return `managedFields` in which the applies of `manager` own all fields below a path, and no other manager does.

    Return None if no other manager owns such a field, or if `manager` has not applied the object. `entries` is the present
    value of `managedFields`. An example of `path` is `("spec", "template")`.
    """
    copies = [copy.deepcopy(dict(entry)) for entry in entries]
    ours = next((entry for entry in copies if _is_apply(entry, manager)), None)
    if ours is None:
        return None
    moved = [fields for entry in copies if entry is not ours and (fields := _pop(entry, path))]
    if not moved:
        return None
    owned = ours.setdefault("fieldsV1", {})
    for name in path:
        owned = owned.setdefault(f"f:{name}", {})
    for fields in moved:
        _add(owned, fields)
    return [entry for entry in copies if entry.get("fieldsV1")]


def _is_apply(entry: Entry, manager: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", "")


def _pop(entry: Entry, path: Sequence[str]) -> dict[str, Any]:
    """Remove the fields below a path from an entry, and return them; empty if it has none. Fields left empty are removed."""
    parents = [entry.get("fieldsV1") or {}]
    for name in path[:-1]:
        parents.append(parents[-1].get(f"f:{name}") or {})
    fields: dict[str, Any] = parents[-1].pop(f"f:{path[-1]}", None) or {}
    for parent, name in zip(reversed(parents[:-1]), reversed(path[:-1]), strict=True):
        if not parent.get(f"f:{name}"):
            parent.pop(f"f:{name}", None)
    return fields


def _add(to: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name, below in fields.items():
        _add(to.setdefault(name, {}), below)
