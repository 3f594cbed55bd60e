"""The digest that protects the accepted spec against edits. Pure.

The accepted spec is stored in a ConfigMap, which tenants may edit. Without a digest, a tenant could make the current
spec invalid and write any spec to the ConfigMap, which would then be in force. The digest is an annotation of the
newest ControllerRevision, which tenants may not edit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import SpecError, parse
from halcyon.kube.kinds import Object
from halcyon.render import balancer
from halcyon.render.revision import Revision

# Users may edit the text, so it may be nested too deeply to parse. Under another schema it may not even be a string.
NOT_ACCEPTED = (SpecError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
"""Exceptions that parsing can raise if the stored text isn't a valid spec."""


def text(spec: Spec) -> str:
    """Return a spec as JSON for the ConfigMap. Its `replicas` are always 1, because autoscaling changes them."""
    return json.dumps(spec.model_copy(update={"replicas": 1}).to_dict(), sort_keys=True, separators=(",", ":"))


def of(accepted: str) -> str:
    """Return the digest of an accepted spec's text. It is stored in the ControllerRevision of the spec's revision."""
    return hashlib.sha256(accepted.encode()).hexdigest()


def text_of(config_map: Object, revisions: Iterable[Revision]) -> str | None:
    """Return the text of the accepted spec in a ConfigMap; None if there is none, or if its digest doesn't match.

    Earlier operator versions wrote ControllerRevisions without a digest. If the newest one has no digest, the text
    can't be checked and is returned as it is. Without any ControllerRevision, no spec was accepted and the result is
    None.
    """
    newest = max(revisions, key=lambda r: r.number, default=None)
    accepted = _accepted(config_map)
    if newest is None or accepted is None or (newest.seal and newest.seal != of(accepted)):
        return None
    return accepted


def read(name: str, config_map: Object, revisions: Iterable[Revision]) -> Spec | None:
    """Return the parsed accepted spec. Return None if `text_of` returns None, or if this version can't parse it."""
    accepted = text_of(config_map, revisions)
    try:
        return None if accepted is None else parse(name, json.loads(accepted))
    except NOT_ACCEPTED:
        return None


def was_edited(config_map: Object, revisions: Iterable[Revision], in_force: Spec | None) -> bool:
    """Return whether the accepted spec in the ConfigMap was overwritten by another writer.

    A text that doesn't match the newest digest was not edited if it is that of the spec in force: it is merely older
    than the newest ControllerRevision.
    """
    newest = max(revisions, key=lambda r: r.number, default=None)
    if newest is None or text_of(config_map, (newest,)) is not None:
        return False
    return in_force is None or _accepted(config_map) != text(in_force)


def _accepted(config_map: Object) -> str | None:
    data = config_map.get("data")
    accepted = data.get(balancer.ACCEPTED_KEY) if isinstance(data, dict) else None
    return accepted if isinstance(accepted, str) else None
