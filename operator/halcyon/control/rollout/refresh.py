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
unchanged. Its value is the key of the revision, or the name of its ControllerRevision."""
_MAX_CHANGE_LENGTH = 200
"""Maximum length of a difference that is shown with both values, in characters. A longer difference is shown without
the values."""


def is_requested(scope: Scope, stored: Revision, annotation: str = REFRESH) -> bool:
    """Return whether a user has requested a refresh of this revision, or a restart if `annotation` is `RESTART`."""
    named = (scope.meta.get("annotations") or {}).get(annotation)
    return named in {stored.key, names.revision(scope.key.name, stored.key)}


def compare(scope: Scope, spec: Spec, stored: Revision, number: int) -> tuple[tuple[str, ...], Revision]:
    """Return how a new rendering differs from the revision `stored`, and the new rendering as a revision.

    The new revision's key is derived from the key of `stored`, so repeated calls return the same revision, even after a
    restart.
    """
    key = names.digest([stored.spec_key, stored.key])
    successor = revision.render(scope.subject, spec, scope.site, scope.source.content, number=number, as_key=key)
    return tuple(_differences(stored, successor)), successor


def _differences(before: Revision, after: Revision) -> Iterator[str]:
    """Yield the paths of fields that differ between two revisions, with both values if they are short."""
    yield from _between(_plain(before.template), _plain(after.template), "")
    for name, old, new in (
        ("model", before.model, after.model),
        ("overlay", before.overlay, after.overlay),
        ("startupTimeoutSeconds", before.startup_timeout_s, after.startup_timeout_s),
    ):
        yield from _between(old, new, name)


def _plain(template: Any) -> Any:
    """Return a copy of a pod template in plain JSON types, without the label that names the revision."""
    copy = json.loads(json.dumps(template))
    copy["metadata"]["labels"].pop(names.REVISION_LABEL, None)
    return copy


def _between(before: Any, after: Any, path: str) -> Iterator[str]:  # any JSON values
    if before == after:
        return
    if isinstance(before, list) and isinstance(after, list) and (named := _by_name(before, after)) is not None:
        before, after = named
        keys = [f"[{key}]" for key in {**before, **after}]
        for key, place in zip({**before, **after}, keys, strict=True):
            yield from _between(before.get(key), after.get(key), path + place)
        if list(before) != list(after) and before.keys() == after.keys():
            yield f"{path} (different order)"
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from _between(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif len(change := f"{_text(before)} to {_text(after)}") <= _MAX_CHANGE_LENGTH:
        yield f"{path} ({change})"
    else:
        yield path


def _by_name(*lists: list[Any]) -> list[dict[str, Any]] | None:
    """Return each list of named objects as a dict by name.

    Return None if an object has no name, or if a name occurs twice in a list.
    """
    dicts = []
    for items in lists:
        by_name = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
        if len(by_name) != len(items):
            return None
        dicts.append(by_name)
    return dicts


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
