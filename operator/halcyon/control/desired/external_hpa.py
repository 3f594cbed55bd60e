"""External HPAs: HPAs not created by Halcyon that target a ModelDeployment or its server Deployments. Pure.

Halcyon stops scaling a model that has an external HPA. An HPA that targets the ModelDeployment writes spec.replicas, as
Halcyon's own HPA does. An HPA that targets a Deployment bypasses spec.replicas. Halcyon then adopts the Deployment's
replicas. If it didn't, the HPA and Halcyon would undo each other's writes, and pods would be created and deleted every
15 s.

An HPA on a Deployment is ignored if scaling is off, if the HPA is inactive, or if both slots have replicas. Otherwise
its replicas are adopted, within the limits of the spec and the site.
"""

# spec.replicas   Deployment's replicas   other slot has replicas   HPA on the Deployment
# 0               -                       -                         ignored: 0 switches scaling off
# -               0                       -                         ignored: an HPA is inactive at 0 replicas
# -               -                       yes                       ignored: the slots share the replicas during a canary
# else                                                              adopted, within the limits of the spec and the site

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.spec import Spec, defaults
from halcyon.control.acceptance import site_policy
from halcyon.control.state.ownership import server_counts
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds


@dataclass(frozen=True)
class ExternalHpa:
    """HPA that Halcyon hasn't created and that scales this model."""

    why: str
    """Sentence that names the external HPA and the object that it scales."""
    undo: str
    """Sentence about what a user can do so that Halcyon scales the model again."""
    count: int | None = None
    """Replicas that the external HPA has set on a server Deployment, within the limits; None if spec.replicas is in
    force."""


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
