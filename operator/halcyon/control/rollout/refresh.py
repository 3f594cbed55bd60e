"""Rendering a revision anew: whether it would come out otherwise now, and whether a person wants it so. Pure.

An upgrade of the operator changes no pod, for each revision is applied from its record. A person's word is an annotation that names
the revision whose rendering has had its day: it counts for that one and no other, so it may stay there, and is done once there is a
newer rendering of the same spec. That one is a revision of its own, and takes over like any other.

Not here: how it takes over (`rollout`), and what is told of it (`rollout_status`).
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
"""Annotation of a ModelDeployment: the revision that is to be rendered anew, by its key or its record's name."""
_SHOWN = 100
"""Characters of a value that is shown."""


def is_wanted(view: Scope, known: Revision) -> bool:
    """Whether a person has asked for this revision to be rendered anew."""
    said = (view.meta.get("annotations") or {}).get(REFRESH)
    return said in {known.key, names.revision(view.key.name, known.key)}


def compared(view: Scope, spec: Spec, known: Revision, number: int) -> tuple[tuple[str, ...], Revision]:
    """What would be rendered otherwise now than `known` was, and the revision that would be its successor.

    The successor's key follows from that of `known`: whoever looks twice, or after a crash, finds the same.
    """
    key = names.digest([known.asks, known.key])
    anew = revision.render(view.subject, spec, view.site, view.source.content, number=number, as_key=key)
    return tuple(_differences(known, anew)), anew


def _differences(before: Revision, after: Revision) -> Iterator[str]:
    """Places of the pod template, and of what belongs to it, by name; short values with both."""
    yield from _between(_plain(before.template), _plain(after.template), "")
    for name, one, other in (
        ("model", before.model, after.model),
        ("overlay", before.overlay, after.overlay),
        ("startupTimeoutSeconds", before.startup_timeout_s, after.startup_timeout_s),
    ):
        yield from _between(one, other, name)


def _plain(template: Any) -> Any:
    """As JSON has it, without the label that names the revision."""
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
            yield f"{path} (in another order)"
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _between(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif len(said := f"{_said(one)} to {_said(other)}") <= 2 * _SHOWN:
        yield f"{path} ({said})"
    else:
        yield path


def _by_name(*lists: list[Any]) -> list[dict[str, Any]] | None:
    """Lists of objects that each have a name, by it; None where they are none such, or a name is there twice."""
    found = []
    for items in lists:
        by = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
        if len(by) != len(items):
            return None
        found.append(by)
    return found


def _said(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
