"""What a reconcile of a ModelDeployment would do to its children: which there would be, and what would change in them. Pure.

Not here: what is known of the cluster (`prospect`), what should be (`control.plan`), and how it is printed (`outlook`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from halcyon.api.types import GROUP
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects import pods
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.apply_diff import holds
from halcyon.kube.kinds import Kind, kind_of
from halcyon.render import names

Object = dict[str, Any]
Change = Literal["create", "change", "same", "delete"]
Tried = Callable[[Kind, Object], Mapping[str, Any] | None]
"""What the API server would make of an object that is applied; None where it can't be asked."""
_CONTEXT = 2
"""Lines that are shown around a difference."""


@dataclass(frozen=True)
class Child:
    """An object, and what would become of it."""

    change: Change
    kind: str
    name: str
    wanted: Mapping[str, Any] | None
    """As it would be applied; None where it would be deleted."""
    diff: tuple[str, ...] = ()
    """Lines of YAML, each with +, - or a space before it."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        plain: dict[str, Any] = {"change": self.change, "kind": self.kind, "name": self.name}
        return plain | {"diff": list(self.diff), "object": self.wanted}


def children(view: Scope, planned: ReconcilePlan, tried: Tried) -> list[Child]:
    """Every child, in the order in which they would be written; those that go come last."""
    found = []
    for wanted in (*planned.first, *planned.then):
        kind, name = kind_of(wanted), str(wanted["metadata"]["name"])
        live = view.children.get((kind, name))
        if live is None:
            found.append(Child("create", kind.kind, name, wanted))
            continue
        diff = () if holds(live, wanted) else _diff(live, tried(kind, wanted) or overlaid(live, wanted))
        found.append(Child("change" if diff else "same", kind.kind, name, wanted, diff))
    return found + [Child("delete", kind.kind, name, None) for kind, name in planned.delete]


def restarts(view: Scope, planned: ReconcilePlan) -> str:
    """What it means for the servers, in a sentence."""
    rolled = planned.rollout
    if rolled is None:
        return "nothing is served, and nothing would be"
    deployments = [own(view, kinds.DEPLOYMENT, names.server(view.key.name, slot)) for slot in names.SLOTS]
    label = (d["spec"]["template"]["metadata"]["labels"].get(names.REVISION_LABEL) for d in deployments if d)
    there, live = set(label), sum(map(pods.is_live, view.pods))
    if not there:
        return f"{_servers(planned.replicas)} of the first revision would start"
    if rolled.asked.key in there:
        return "no server would restart: the revision stays"
    strategy = planned.spec.rollout.strategy if planned.spec else "Auto"
    again = "one that was there before" if any(r.key == rolled.asked.key for r in view.revisions) else "a new one"
    return f"{_servers(live)} would be replaced, by rollout.strategy {strategy}: the revision is {again}"


def _servers(count: int) -> str:
    return f"{count} server{'' if count == 1 else 's'}"


def overlaid(live: Any, wanted: Any) -> Any:  # any JSON values
    """What applying would make of it, without asking: what isn't named stays, and lists are taken as a whole."""
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        return {**live, **{key: overlaid(live.get(key), value) for key, value in wanted.items()}}
    if isinstance(live, list) and isinstance(wanted, list) and len(live) == len(wanted):
        return [overlaid(a, b) for a, b in zip(live, wanted, strict=True)]
    return live if holds(live, wanted) else wanted


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    old, new = (_told(obj).splitlines() for obj in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]
    return tuple("..." if line.startswith("@@") else line for line in lines)


def _told(obj: Mapping[str, Any]) -> str:
    """What a person has to do with, as YAML: without status and what the API server and controllers keep for themselves."""
    meta = obj.get("metadata") or {}
    kept = {key: value for key, value in obj.items() if key not in {"metadata", "status", "apiVersion", "kind"}}
    notes = {
        k: v for k, v in (meta.get("annotations") or {}).items() if not k.startswith(f"{GROUP}/") and k != _REVISION
    }
    plain = {"metadata": {"labels": meta.get("labels") or {}} | ({"annotations": notes} if notes else {}), **kept}
    if isinstance(plain.get("data"), Mapping):
        plain["data"] = {key: _read(value) for key, value in plain["data"].items()}
    return yaml.safe_dump(json.loads(json.dumps(plain)), width=160)


_REVISION = "deployment.kubernetes.io/revision"
"""Beside it, annotations of ours are the operator's own notes."""


def _read(value: Any) -> Any:
    """JSON in a ConfigMap is shown as what it says."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
