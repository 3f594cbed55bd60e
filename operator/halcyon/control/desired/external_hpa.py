"""External HPAs: one that targets the ModelDeployment, or one that targets a Deployment of its servers. Pure.

Halcyon leaves the replicas to either. One that targets the ModelDeployment writes spec.replicas, as ours does. One that targets a
Deployment bypasses spec.replicas. Then its replicas are in force: otherwise the two would undo each other's writes, and pods would come
and go every 15 s.

spec.replicas   Deployment's replicas   the other slot has pods   an HPA on the Deployment
0               -                       -                         is ignored: 0 switches scaling off
-               0                       -                         is inactive by itself
-               -                       yes                       is ignored: the slots share the replicas during a canary
else                                                              is followed, within the limits of the spec and the site
"""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.spec import Spec, defaults
from halcyon.control.acceptance import site_policy
from halcyon.control.state.ownership import server_counts
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds


@dataclass(frozen=True)
class ExternalHpa:
    """An autoscaler that isn't ours."""

    why: str
    """Sentence about which HPA scales what."""
    undo: str
    """What a user can do about it."""
    count: int | None = None
    """Replicas that it has set on our Deployment, within the limits; None if spec.replicas is in force."""


def autoscaler(view: Scope, spec: Spec) -> ExternalHpa | None:
    """Return the external HPA that scales this model; None if there is none."""
    if view.foreign_autoscaler and spec.scaling is not None:
        why = f"{view.foreign_autoscaler} scales this ModelDeployment"
        return ExternalHpa(why, "Delete the HPA, or remove spec.scaling")
    counts = server_counts(view)
    there = [name for name, count in counts.items() if count]
    if not spec.replicas or len(there) != 1 or not (who := view.foreign_below.get(there[0])):
        return None
    limit = site_policy.most(view, spec)
    count = defaults.wanted_replicas(spec.model_copy(update={"replicas": counts[there[0]]}))
    return ExternalHpa(
        f"{who} scales Deployment {there[0]}, which Halcyon manages for this ModelDeployment",
        f"Delete the HPA, or set its target to {kinds.MODEL_DEPLOYMENT.kind} {view.key.name}",
        count if limit is None else min(count, limit),
    )
