"""Refresh of a revision: whether this operator would render it differently, and whether a user has requested that. Pure.

An upgrade of the operator changes no pod, because each revision is applied from its ControllerRevision. A user requests a refresh by an
annotation that names the outdated revision. It applies to that revision only, so it may stay there; it has no effect once there is a
newer rendering of the same spec. The new rendering is a revision of its own, and is rolled out like any other.

Out of scope: how it is rolled out (`rollout`), and the status (`control/status/rollout.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.types import GROUP
from halcyon.control.state.scope import Scope
from halcyon.render import names, revision
from halcyon.render.revision import Revision

REFRESH = f"{GROUP}/refresh"
"""Annotation of a ModelDeployment: the revision to render again, by its key or the name of its ControllerRevision."""
_SHOWN = 100
"""Half the maximum length of a shown difference (both values), in characters."""


def is_wanted(view: Scope, known: Revision) -> bool:
    """Return whether a user has requested a refresh of this revision."""
    said = (view.meta.get("annotations") or {}).get(REFRESH)
    return said in {known.key, names.revision(view.key.name, known.key)}


def compared(view: Scope, spec: Spec, known: Revision, number: int) -> tuple[tuple[str, ...], Revision]:
    """Return the differences between `known` and its rendering by this operator, and the revision that would be its successor.

    The successor's key is derived from that of `known`, so a second call, or one after a crash, returns the same.
    """
    key = names.digest([known.asks, known.key])
    successor = revision.render(view.subject, spec, view.site, view.source.content, number=number, as_key=key)
    return tuple(_differences(known, successor)), successor


def _differences(before: Revision, after: Revision) -> Iterator[str]:
    """Yield the paths that differ in the pod template and in the revision's other fields; with both values if they are short."""
    yield from _between(_plain(before.template), _plain(after.template), "")
    for name, one, other in (
        ("model", before.model, after.model),
        ("overlay", before.overlay, after.overlay),
        ("startupTimeoutSeconds", before.startup_timeout_s, after.startup_timeout_s),
    ):
        yield from _between(one, other, name)


def _plain(template: Any) -> Any:
    """Return a copy in plain JSON types, without the label that names the revision."""
    copy = json.loads(json.dumps(template))
    copy["metadata"]["labels"].pop(names.REVISION_LABEL, None)
    return copy


def _between(one: Any, other: Any, path: str) -> Iterator[str]:  # any JSON values
    if one == other:
        return
    if isinstance(one, list) and isinstance(other, list) and (named := _by_name(one, other)) is not None:
        one, other = named
        keys = [f"[{key}]" for key in {**one, **other}]
        for key, place in zip({**one, **other}, keys, strict=True):
            yield from _between(one.get(key), other.get(key), path + place)
        if list(one) != list(other) and one.keys() == other.keys():
            yield f"{path} (different order)"
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _between(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif len(said := f"{_said(one)} to {_said(other)}") <= 2 * _SHOWN:
        yield f"{path} ({said})"
    else:
        yield path


def _by_name(*lists: list[Any]) -> list[dict[str, Any]] | None:
    """Return lists of objects as dicts by the objects' names; None if an object has no name, or a name is there twice."""
    found = []
    for items in lists:
        by = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
        if len(by) != len(items):
            return None
        found.append(by)
    return found


def _said(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
