"""Differences between a model's objects in the cluster and the objects that a reconcile would apply. Pure.

Out of scope: the state of the cluster (`cluster_scope`), the desired objects (`control.desired.plan`), and printing
(`preview`).
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
DryRun = Callable[[Kind, Object], Mapping[str, Any] | None]
"""Function that returns an object as the API server would store it after an apply; None if the user may not apply
it."""
_CONTEXT = 2
"""Number of unchanged lines that are shown around a difference."""


@dataclass(frozen=True)
class ChildDiff:
    """Object of the plan, and the change that a reconcile would make to it."""

    change: Change
    kind: str
    name: str
    desired: Mapping[str, Any] | None
    """Object as it would be applied; None if it would be deleted."""
    diff: tuple[str, ...] = ()
    """Lines of the difference in YAML, each with the prefix +, - or a space."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the difference."""
        plain: dict[str, Any] = {"change": self.change, "kind": self.kind, "name": self.name}
        return plain | {"diff": list(self.diff), "object": self.desired}


def diff_children(scope: Scope, planned: ReconcilePlan, dry_run: DryRun) -> list[ChildDiff]:
    """Return a diff for every object, in the order in which a reconcile writes them. Deletions come last."""
    diffs = []
    for desired in (*planned.first, *planned.then):
        kind, name = kind_of(desired), str(desired["metadata"]["name"])
        live = scope.children.get((kind, name))
        if live is None:
            diffs.append(ChildDiff("create", kind.kind, name, desired))
            continue
        diff = () if holds(live, desired) else _diff(live, dry_run(kind, desired) or merged(live, desired))
        diffs.append(ChildDiff("change" if diff else "same", kind.kind, name, desired, diff))
    return diffs + [ChildDiff("delete", kind.kind, name, None) for kind, name in planned.delete]


def restarts(scope: Scope, planned: ReconcilePlan) -> str:
    """Return a sentence that says whether the change restarts model pods."""
    rollout = planned.rollout
    if rollout is None:
        return "nothing is served, and nothing would be served"
    deployments = [own(scope, kinds.DEPLOYMENT, names.server(scope.key.name, slot)) for slot in names.SLOTS]
    keys = (d["spec"]["template"]["metadata"]["labels"].get(names.REVISION_LABEL) for d in deployments if d)
    deployed_keys, live = set(keys), sum(map(pods.is_live, scope.pods))
    if not deployed_keys:
        return f"{_servers(planned.replicas)} of the first revision would start"
    if rollout.requested.key in deployed_keys:
        return "no model pod would restart: the revision stays the same"
    strategy = planned.spec.rollout.strategy if planned.spec else "Auto"
    origin = "an earlier one" if any(r.key == rollout.requested.key for r in scope.revisions) else "new"
    return f"{_servers(live)} would be replaced by rollout.strategy {strategy}: the revision is {origin}"


def _servers(count: int) -> str:
    return f"{count} model pod{'' if count == 1 else 's'}"


def merged(live: Any, desired: Any) -> Any:  # any JSON values
    """Return the result of an apply, computed locally.

    Fields that aren't applied stay unchanged. A list is replaced if its length differs.
    """
    if isinstance(live, Mapping) and isinstance(desired, Mapping):
        return {**live, **{key: merged(live.get(key), value) for key, value in desired.items()}}
    if isinstance(live, list) and isinstance(desired, list) and len(live) == len(desired):
        return [merged(a, b) for a, b in zip(live, desired, strict=True)]
    return live if holds(live, desired) else desired


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    old, new = (_as_yaml(obj).splitlines() for obj in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]
    return tuple("..." if line.startswith("@@") else line for line in lines)


def _as_yaml(obj: Mapping[str, Any]) -> str:
    """Return the object as YAML, without status and without the fields that the API server and controllers set."""
    meta = obj.get("metadata") or {}
    body = {key: value for key, value in obj.items() if key not in {"metadata", "status", "apiVersion", "kind"}}
    notes = {
        k: v for k, v in (meta.get("annotations") or {}).items() if not k.startswith(f"{GROUP}/") and k != _REVISION
    }
    plain = {"metadata": {"labels": meta.get("labels") or {}} | ({"annotations": notes} if notes else {}), **body}
    if isinstance(plain.get("data"), Mapping):
        plain["data"] = {key: _decode_json(value) for key, value in plain["data"].items()}
    return yaml.safe_dump(json.loads(json.dumps(plain)), width=160)


_REVISION = "deployment.kubernetes.io/revision"
"""Annotation that the Deployment controller sets. Like Halcyon's own annotations, it isn't part of the diff."""


def _decode_json(value: Any) -> Any:
    """Return the parsed value if it is JSON, so that the diff is readable. Other values are returned unchanged."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
