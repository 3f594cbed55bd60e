"""External HPAs: HPAs not created by Halcyon that target a ModelDeployment or its server Deployments. Pure.

Halcyon stops scaling a model that has an external HPA. An HPA that targets the ModelDeployment writes spec.replicas, as
Halcyon's own HPA does. An HPA that targets a Deployment bypasses spec.replicas. Halcyon then adopts the Deployment's
replicas. If it didn't, the HPA and Halcyon would undo each other's writes, and pods would be created and deleted every
15 s.
"""

# spec.replicas   Deployment's replicas   other slot has replicas   HPA on the Deployment
# 0               -                       -                         ignored: 0 switches scaling off
# -               0                       -                         ignored: an HPA is inactive at 0 replicas
# -               -                       yes                       ignored: the slots share the replicas during a canary
# else                                                              adopted, within the limits of the spec and the site
#
# Balancers: the replicas of an external HPA on their Deployment are adopted, if they aren't 0.

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.spec import Spec, defaults, routing_mode
from halcyon.control.acceptance import site_policy
from halcyon.control.state.ownership import own, server_counts
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.render import names


@dataclass(frozen=True)
class ExternalHpa:
    """HPA that was not created by Halcyon and that scales this model."""

    why: str
    """Message that names the external HPA and the object that it scales."""
    undo: str
    """Advice for users on how to let Halcyon scale the model again."""
    count: int | None = None
    """Replicas that the external HPA has set on a server Deployment, within the limits; None if spec.replicas is in
    force."""


def autoscaler(scope: Scope, spec: Spec) -> ExternalHpa | None:
    """Return the external HPA that scales this model; None if there is none."""
    if scope.external_hpa and spec.scaling is not None:
        why = f"{scope.external_hpa} scales this ModelDeployment"
        return ExternalHpa(why, "Delete the HPA, or remove spec.scaling")
    counts = server_counts(scope)
    scaled = [name for name, count in counts.items() if count]
    if not spec.replicas or len(scaled) != 1 or not (hpa := scope.deployment_hpas.get(scaled[0])):
        return None
    limit = site_policy.max_replicas(scope, spec)
    count = defaults.bounded_replicas(spec.model_copy(update={"replicas": counts[scaled[0]]}))
    return ExternalHpa(
        f"{hpa} scales Deployment {scaled[0]}, which Halcyon manages for this ModelDeployment",
        f"Delete the HPA, or set its target to {kinds.MODEL_DEPLOYMENT.kind} {scope.key.name}",
        count if limit is None else min(count, limit),
    )


def balancer_replicas(scope: Scope, spec: Spec) -> int:
    """Return the number of balancer pods, as set by an external HPA on their Deployment or by the spec.

    If Halcyon reset the number that an HPA has set, balancers would be created and deleted every 15 s.
    """
    name = names.balancer(scope.key.name)
    deployment = own(scope, kinds.DEPLOYMENT, name)
    count = 0 if deployment is None else int(deployment["spec"].get("replicas") or 0)
    return count if count and name in scope.deployment_hpas else spec.traffic.balancer_replicas


def with_balancer_replicas(scope: Scope, spec: Spec) -> Spec:
    """Return the spec with the number of balancer pods that is in force."""
    count = balancer_replicas(scope, spec)
    if count == spec.traffic.balancer_replicas:
        return spec
    return spec.model_copy(update={"traffic": spec.traffic.model_copy(update={"balancer_replicas": count})})


def ignored_balancer_replicas(scope: Scope, spec: Spec) -> str:
    """Return a message if an external HPA sets the number of balancer pods, otherwise an empty string."""
    name = names.balancer(scope.key.name)
    hpa = scope.deployment_hpas.get(name)
    if hpa is None or routing_mode.is_direct(spec) or own(scope, kinds.DEPLOYMENT, name) is None:
        return ""
    return (
        f"spec.traffic.balancerReplicas is {spec.traffic.balancer_replicas}, but {hpa} scales Deployment {name} to "
        f"{balancer_replicas(scope, spec)}; delete the HPA to use spec.traffic.balancerReplicas"
    )
