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


def with_all_fields(
    entries: Iterable[Entry], manager: str, api_version: str, *, kept: Iterable[Sequence[str]]
) -> list[Entry]:
    """Return `managedFields` in which the applies of `manager` own all fields that other managers own, except those at `kept`.

    Fields of subresources, and of another API version, stay with their managers. The list is empty if `entries` is.
    """
    copies = [copy.deepcopy(dict(entry)) for entry in entries]
    ours = next((entry for entry in copies if _is_apply(entry, manager)), None)
    if ours is None and copies:
        ours = {"manager": manager, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1"}
        copies.append(ours)
    for entry in copies:
        if entry is ours or ours is None or entry.get("subresource") or entry.get("apiVersion") != api_version:
            continue
        left: dict[str, Any] = {}
        for path in kept:
            _add(left, _only(entry.get("fieldsV1") or {}, path))
        _add(ours.setdefault("fieldsV1", {}), _without(entry.get("fieldsV1") or {}, left))
        entry["fieldsV1"] = left
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


def _only(fields: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return only the part of a set of fields at and below a path; empty if it has none."""
    below = fields.get(name := f"f:{path[0]}")
    if below is None:
        return {}
    part = below if len(path) == 1 else _only(below, path[1:])
    return {name: part} if part or len(path) == 1 else {}


def _without(fields: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a set of fields without a part of it, which has the whole of each field at which it ends."""
    rest: dict[str, Any] = {}
    for name, below in fields.items():
        if name not in part:
            rest[name] = below
        elif part[name] and part[name] != below and (others := _without(below, part[name])):
            rest[name] = others
    return rest
