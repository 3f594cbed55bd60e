"""Refresh of a revision: the rollout of a new pod template for an unchanged spec, on a user's request. Pure.

An upgrade of the operator changes no pod, because each revision's pod template is stored in its ControllerRevision. A
user requests a refresh with an annotation that names the outdated revision. The annotation affects only that revision,
so it need not be removed: after the refresh it has no effect. The new rendering is a new revision, and is rolled out
like any other revision.

Out of scope: the rollout of the new revision (`rollout`), and the status (`control/status/rollout.py`).
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
"""Annotation of a ModelDeployment that requests a new rendering of a revision. Its value is the key of the revision, or
the name of its ControllerRevision."""
RESTART = f"{GROUP}/restart"
"""Annotation of a ModelDeployment that requests the replacement of a revision's pods, even if their template is
unchanged. The value has the same form as that of `REFRESH`."""
_SHOWN = 100
"""Half of the maximum length, in characters, of a difference that is shown with both values. A longer difference is
shown without the values."""


def is_wanted(view: Scope, known: Revision, annotation: str = REFRESH) -> bool:
    """Return whether a user has requested a refresh of this revision, or a restart if `annotation` is `RESTART`."""
    said = (view.meta.get("annotations") or {}).get(annotation)
    return said in {known.key, names.revision(view.key.name, known.key)}


def compared(view: Scope, spec: Spec, known: Revision, number: int) -> tuple[tuple[str, ...], Revision]:
    """Return how a new rendering differs from the stored revision `known`, and the new rendering as a revision.

    The new revision's key is derived from the key of `known`, so repeated calls return the same revision, even after a
    restart.
    """
    key = names.digest([known.spec_key, known.key])
    successor = revision.render(view.subject, spec, view.site, view.source.content, number=number, as_key=key)
    return tuple(_differences(known, successor)), successor


def _differences(before: Revision, after: Revision) -> Iterator[str]:
    """Yield the paths of fields that differ between two revisions, with both values if they are short."""
    yield from _between(_plain(before.template), _plain(after.template), "")
    for name, one, other in (
        ("model", before.model, after.model),
        ("overlay", before.overlay, after.overlay),
        ("startupTimeoutSeconds", before.startup_timeout_s, after.startup_timeout_s),
    ):
        yield from _between(one, other, name)


def _plain(template: Any) -> Any:
    """Return a copy of a pod template in plain JSON types. It doesn't have the label that names the revision."""
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
    """Return each list of named objects as a dict by name.

    Return None if an object has no name, or if a name occurs twice in a list.
    """
    found = []
    for items in lists:
        by = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
        if len(by) != len(items):
            return None
        found.append(by)
    return found


def _said(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
