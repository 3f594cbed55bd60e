"""Whether the accepted spec is the one that was accepted. Pure.

It lies in a ConfigMap, which tenants may edit: with a spec that is refused beside it, whatever is written there would be in force. So
its digest stands on the newest ControllerRevision, which they may not.
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

# People may edit the text: it may be deeper than any that is read, and no text at all if it was written under another schema.
NOT_ACCEPTED = (SpecError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
"""What is raised in reading it if it is no spec."""


def text(spec: Spec) -> str:
    """A spec as its ConfigMap has it: without the count, which changes by itself."""
    return json.dumps(spec.model_copy(update={"replicas": 1}).to_dict(), sort_keys=True, separators=(",", ":"))


def of(accepted: str) -> str:
    """What stands on the record of the revision that was asked for when this was accepted."""
    return hashlib.sha256(accepted.encode()).hexdigest()


def text_of(config_map: Object, revisions: Iterable[Revision]) -> str | None:
    """The accepted spec in a ConfigMap, as it is written there; None where there is none, or where it isn't what was accepted.

    A record without a seal is of an earlier version of the operator: it says nothing of it. Without any record nothing was accepted.
    """
    newest = max(revisions, key=lambda r: r.number, default=None)
    accepted = _accepted(config_map)
    if newest is None or accepted is None or (newest.seal and newest.seal != of(accepted)):
        return None
    return accepted


def read(name: str, config_map: Object, revisions: Iterable[Revision]) -> Spec | None:
    """The same, parsed; None also where this version can't read it."""
    accepted = text_of(config_map, revisions)
    try:
        return None if accepted is None else parse(name, json.loads(accepted))
    except NOT_ACCEPTED:
        return None


def was_edited(config_map: Object, revisions: Iterable[Revision], in_force: Spec | None) -> bool:
    """Whether somebody has written over the accepted spec. What was in force before the newest record is only not replaced yet."""
    newest = max(revisions, key=lambda r: r.number, default=None)
    if newest is None or text_of(config_map, (newest,)) is not None:
        return False
    return in_force is None or _accepted(config_map) != text(in_force)


def _accepted(config_map: Object) -> str | None:
    data = config_map.get("data")
    found = data.get(balancer.ACCEPTED_KEY) if isinstance(data, dict) else None
    return found if isinstance(found, str) else None
