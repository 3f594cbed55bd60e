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
from halcyon.control.objects import child_names, pods
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.control.state.serving_revision import stored_serving_revision
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, kind_of
from halcyon.render import balancer, gateway_routes, names, revision, services
from halcyon.render.metadata import Object
from halcyon.render.names import Slot


def prerequisites(scope: Scope, spec: Spec) -> list[Object]:
    """Return those objects of the routing mode to which other objects refer.

    The API server accepts a RoleBinding only if its Role exists, and pods only if their ServiceAccount does.
    """
    if routing_mode.is_direct(spec):
        return []
    return [balancer.service_account(scope.subject), balancer.role(scope.subject)]


def objects(scope: Scope, spec: Spec, rollout: RolloutPlan) -> list[Object]:
    """Return the objects of the routing mode, without those that `prerequisites` returns."""
    subject = scope.subject
    # Needed without balancers too: both replicas of the operator read the spec in force from this ConfigMap.
    objects = [balancer.config_map(subject, _balanced(scope, spec, rollout), accepted_spec_digest.text(spec))]
    objects += _routes(scope, spec, rollout)
    if routing_mode.is_direct(spec):
        return [*objects, services.service(subject, spec), services.headless(subject, spec)]
    return [
        *objects,
        balancer.role_binding(subject),
        balancer.deployment(subject, with_balancer_replicas(scope, spec), scope.site),
        services.service(subject, spec) if _stays_direct(scope) else balancer.service(subject, spec),
        balancer.disruption_budget(subject),
    ]


def surplus(scope: Scope, spec: Spec, rollout: RolloutPlan) -> list[tuple[Kind, str]]:
    """Return this ModelDeployment's objects that belong to another routing mode and are no longer needed."""
    name = scope.key.name
    desired = {(kind_of(o), o["metadata"]["name"]) for o in _routes(scope, spec, rollout)}
    if not scope.gateway_api:  # routes aren't cached yet, as after a start; they may lead to these Services
        desired |= set(child_names.gateway_services(name))
    removed = [(kind, name) for kind in kinds.ROUTES] if scope.gateway_api else []
    if not routing_mode.is_direct(spec):
        removed += [] if _stays_direct(scope) else child_names.unbalanced_children(name)
    else:
        has_balancers = scope.balancers or own(scope, kinds.DEPLOYMENT, names.balancer(name))
        kept = child_names.AGENT_KINDS if has_balancers else ()
        removed += [(kind, n) for kind, n in child_names.balancer_children(name) if kind not in kept]
        removed += child_names.gateway_services(name)
    return [child for child in removed if child not in desired and own(scope, *child)]


def _routes(scope: Scope, spec: Spec, rollout: RolloutPlan) -> list[Object]:
    """Return the Gateway API routes of a model and their Services; none if the cluster lacks the kinds of routes."""
    gateway, subject = spec.traffic.gateway, scope.subject
    if gateway is None or not scope.gateway_api:
        return []
    shares = _shares(scope, rollout)
    routes = [gateway_routes.http_route(subject, spec, gateway, shares, model=rollout.model)]
    if gateway.grpc is not None:
        routes.append(gateway_routes.grpc_route(subject, spec, gateway, gateway.grpc, shares))
    if routing_mode.is_direct(spec):
        routes += [gateway_routes.slot_service(subject, spec, slot) for slot, _ in shares]
    return routes


def _shares(scope: Scope, rollout: RolloutPlan) -> list[tuple[Slot, int]]:
    """Return the slots with their weights in a Gateway's routes. A slot that can't answer passes its share to the other.

    Balancers do that themselves. It has no ready pods, or these serve another model name than the one that is routed.
    """
    serving = {pod["metadata"]["labels"].get(names.SLOT_LABEL) for pod in scope.pods if pods.is_ready(pod)}
    can_answer = {a.slot for a in rollout.slots if a.slot in serving and a.revision.model == rollout.model and a.weight}
    return [(a.slot, a.weight if a.slot in can_answer or not can_answer else 0) for a in rollout.slots]


def has_surplus_balancers(scope: Scope, spec: Spec) -> bool:
    """Return whether balancer pods still exist after a change to a routing mode without balancers.

    The end of these pods triggers no reconcile.
    """
    return routing_mode.is_direct(spec) and scope.balancers > 0


def _stays_direct(scope: Scope) -> bool:
    service = own(scope, kinds.SERVICE, scope.key.name)
    selected: dict[str, Any] = (service or {}).get("spec", {}).get("selector") or {}
    deployment = own(scope, kinds.DEPLOYMENT, names.balancer(scope.key.name)) or {}
    available = (deployment.get("status") or {}).get("availableReplicas")
    return selected.get(names.COMPONENT_LABEL) == names.SERVER and not available


def _balanced(scope: Scope, spec: Spec, rollout: RolloutPlan) -> BalancerPlan:
    """Return the balancer plan, which includes each slot's share of the requests."""
    start_s = (scope.status.get("coldStart") or {}).get("seconds")
    slots = tuple(allocation.slot for allocation in rollout.slots)
    spec, lower_class = with_balancer_replicas(scope, serving_spec(scope, spec)), _lower_class(scope)
    plan = balancer.plan(scope.subject, spec, scope.site, slots, start_s=start_s, lower_class=lower_class)
    weights = {allocation.slot: allocation.weight for allocation in rollout.slots}
    served = (rollout.requested, rollout.rollback_revision, *(allocation.revision for allocation in rollout.slots))
    return replace(
        plan,
        model=rollout.model,
        sequences=plan.sequences or any(RolloutRecord.of(r).sequences for r in served if r is not None),
        slots=tuple(replace(slot, weight=weights[Slot(slot.name)]) for slot in plan.slots),
    )


def serving_spec(scope: Scope, spec: Spec) -> Spec:
    """Return the spec with the batch size and other settings of the serving revision."""
    return revision.serving_spec(scope.key.name, spec, stored_serving_revision(scope))


def _lower_class(scope: Scope) -> LowerClass:
    """Return how much capacity the balancers give to batch inference.

    While this is unknown, the value in the last written plan is kept, because each change reloads HAProxy.
    """
    if scope.lower_class is not None:
        return scope.lower_class
    config_map = own(scope, kinds.CONFIG_MAP, names.balancer(scope.key.name)) or {}
    try:
        return BalancerPlan.from_json((config_map.get("data") or {}).get(PLAN_KEY, "")).lower_class
    except PlanError:
        return "None"
