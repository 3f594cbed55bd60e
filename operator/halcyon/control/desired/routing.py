"""Objects that a model's routing mode needs, and the change from one mode to another. Pure.

Balancers that are no longer needed are deleted after the Service selects the servers. The agents need their
ServiceAccount and RBAC objects to drain, so these objects are deleted after the last balancer pod.
"""

# spec.traffic.mode   a balancer is available   Service selects now   Service should select
# Balancer            yes                       -                     the balancers
# Balancer            no                        the servers           the servers, until a balancer is available
# Balancer            no                        else                  the balancers
# else                -                         -                     the servers

from __future__ import annotations

from dataclasses import replace
from typing import Any

from halcyon.api.documents.balancer_plan import PLAN_KEY, BalancerPlan, LowerClass, PlanError
from halcyon.api.spec import Spec, routing_mode
from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.desired.external_hpa import with_balancer_replicas
from halcyon.control.objects import child_names
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, kind_of
from halcyon.render import balancer, gateway_routes, names, services
from halcyon.render.metadata import Object
from halcyon.render.names import Slot


def first(view: Scope, spec: Spec) -> list[Object]:
    """Return those objects of the routing mode to which other objects refer.

    The API server accepts a RoleBinding only if its Role exists, and pods only if their ServiceAccount does.
    """
    if routing_mode.is_direct(spec):
        return []
    return [balancer.service_account(view.subject), balancer.role(view.subject)]


def then(view: Scope, spec: Spec, rolled: RolloutPlan) -> list[Object]:
    """Return the objects of the routing mode, without those that `first` returns."""
    subject = view.subject
    # Needed without balancers too: both replicas of the operator read the spec in force from this ConfigMap.
    objects = [balancer.config_map(subject, _balanced(view, spec, rolled), accepted_spec_digest.text(spec))]
    objects += _routes(view, spec, rolled)
    if routing_mode.is_direct(spec):
        return [*objects, services.service(subject, spec), services.headless(subject, spec)]
    return [
        *objects,
        balancer.role_binding(subject),
        balancer.deployment(subject, with_balancer_replicas(view, spec), view.site),
        services.service(subject, spec) if _stays_direct(view) else balancer.service(subject, spec),
        balancer.disruption_budget(subject),
    ]


def surplus(view: Scope, spec: Spec, rolled: RolloutPlan) -> list[tuple[Kind, str]]:
    """Return this ModelDeployment's objects that belong to another routing mode and are no longer needed."""
    name = view.key.name
    wanted = {(kind_of(o), o["metadata"]["name"]) for o in _routes(view, spec, rolled)}
    gone = [(kind, name) for kind in kinds.ROUTES] if view.gateway_api else []
    if not routing_mode.is_direct(spec):
        gone += [] if _stays_direct(view) else child_names.unbalanced_children(name)
    else:
        kept = child_names.AGENT_KINDS if view.balancers or own(view, kinds.DEPLOYMENT, names.balancer(name)) else ()
        gone += [(kind, n) for kind, n in child_names.balancer_children(name) if kind not in kept]
        gone += child_names.gateway_services(name)
    return [where for where in gone if where not in wanted and own(view, *where)]


def _routes(view: Scope, spec: Spec, rolled: RolloutPlan) -> list[Object]:
    """Return the Gateway API routes of a model and their Services.

    Return none if the cluster doesn't have the kinds of these routes.
    """
    gateway, subject = spec.traffic.gateway, view.subject
    if gateway is None or not view.gateway_api:
        return []
    shares = [(placed.slot, placed.weight) for placed in rolled.slots]
    made = [gateway_routes.http_route(subject, spec, gateway, shares, model=rolled.model)]
    if gateway.grpc is not None:
        made.append(gateway_routes.grpc_route(subject, spec, gateway, gateway.grpc, shares))
    if routing_mode.is_direct(spec):
        made += [gateway_routes.slot_service(subject, spec, slot) for slot, _ in shares]
    return made


def lingers(view: Scope, spec: Spec) -> bool:
    """Return whether balancer pods still exist after a change to a routing mode without balancers.

    The end of these pods triggers no reconcile.
    """
    return routing_mode.is_direct(spec) and view.balancers > 0


def _stays_direct(view: Scope) -> bool:
    service = own(view, kinds.SERVICE, view.key.name)
    selected: dict[str, Any] = (service or {}).get("spec", {}).get("selector") or {}
    deployment = own(view, kinds.DEPLOYMENT, names.balancer(view.key.name)) or {}
    available = (deployment.get("status") or {}).get("availableReplicas")
    return selected.get(names.COMPONENT_LABEL) == names.SERVER and not available


def _balanced(view: Scope, spec: Spec, rolled: RolloutPlan) -> BalancerPlan:
    """Return the balancer plan, which includes each slot's share of the requests."""
    start_s = (view.status.get("coldStart") or {}).get("seconds")
    slots = tuple(placed.slot for placed in rolled.slots)
    counted = with_balancer_replicas(view, spec)
    whole = balancer.plan(view.subject, counted, view.site, slots, start_s=start_s, lower_class=_lower_class(view))
    weights = {placed.slot: placed.weight for placed in rolled.slots}
    return replace(
        whole,
        model=rolled.model,
        sequences=any(RolloutRecord.of(r).sequences for r in (rolled.requested, rolled.target)),
        slots=tuple(replace(s, weight=weights[Slot(s.name)]) for s in whole.slots),
    )


def _lower_class(view: Scope) -> LowerClass:
    """Return how much capacity the balancers give to batch inference.

    While this is unknown, the value in the last written plan is kept, because each change reloads HAProxy.
    """
    if view.lower_class is not None:
        return view.lower_class
    written = own(view, kinds.CONFIG_MAP, names.balancer(view.key.name)) or {}
    try:
        return BalancerPlan.from_json((written.get("data") or {}).get(PLAN_KEY, "")).lower_class
    except PlanError:
        return "None"
