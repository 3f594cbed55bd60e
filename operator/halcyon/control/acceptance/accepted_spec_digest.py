"""The digest that protects the accepted spec against edits. Pure.

The accepted spec is stored in a ConfigMap, which tenants may edit. Without the digest, a tenant could make the current spec invalid
and put any text into force through the ConfigMap. So the digest is stored on the newest ControllerRevision, which tenants may not edit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.kube.client import Object
from halcyon.render import balancer
from halcyon.render.revision import Revision

# Users may edit the text: it may be nested too deeply to be read, and no text at all if it was written under another schema.
NOT_ACCEPTED = (SpecError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
"""Exceptions raised while reading a text that is no spec."""


def text(spec: Spec) -> str:
    """Return the text of a spec for its ConfigMap. It leaves out the replicas, which change by themselves."""
    return json.dumps(spec.model_copy(update={"replicas": 1}).to_dict(), sort_keys=True, separators=(",", ":"))


def of(accepted: str) -> str:
    """Return the digest of an accepted spec, to be stored on the ControllerRevision of the revision that it requests."""
    return hashlib.sha256(accepted.encode()).hexdigest()


def text_of(config_map: Object, revisions: Iterable[Revision]) -> str | None:
    """Return the text of the accepted spec in a ConfigMap; None if there is none, or its digest doesn't match.

    A ControllerRevision without a digest is from an earlier version of the operator and proves nothing either way: the text is taken
    as it is. Without any ControllerRevision nothing was accepted.
    """
    newest = max(revisions, key=lambda r: r.number, default=None)
    accepted = _accepted(config_map)
    if newest is None or accepted is None or (newest.seal and newest.seal != of(accepted)):
        return None
    return accepted


def read(name: str, config_map: Object, revisions: Iterable[Revision]) -> Spec | None:
    """Return the accepted spec, parsed; None also if this version can't read it."""
    accepted = text_of(config_map, revisions)
    try:
        return None if accepted is None else parse(name, json.loads(accepted))
    except NOT_ACCEPTED:
        return None


def was_edited(config_map: Object, revisions: Iterable[Revision], in_force: Spec | None) -> bool:
    """Return whether the accepted spec was overwritten by another writer.

    The text that was in force before the newest revision is no edit: it just wasn't replaced yet.
    """
    newest = max(revisions, key=lambda r: r.number, default=None)
    if newest is None or text_of(config_map, (newest,)) is not None:
        return False
    return in_force is None or _accepted(config_map) != text(in_force)


def _accepted(config_map: Object) -> str | None:
    data = config_map.get("data")
    found = data.get(balancer.ACCEPTED_KEY) if isinstance(data, dict) else None
    return found if isinstance(found, str) else None
