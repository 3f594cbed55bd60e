"""The RoutesAccepted condition: whether the Gateway has accepted a model's routes. Pure."""

# the API has the kinds   the routes exist       an older one claims     their Gateway reports    RoutesAccepted
#                                                the same requests
# no                      -                      -                       -                        False    GatewayAPIMissing
# yes                     no                     -                       -                        Unknown  RoutesPending
# yes                     yes                    -                       a condition isn't True   False    RoutesRejected, with its message
# yes                     yes                    yes                     anything else            False    RouteConflict
# yes                     yes                    no                      nothing                  Unknown  RoutesPending
# yes                     yes                    no                      all are True             True     RoutesAccepted

from __future__ import annotations

from typing import Any

from halcyon.api.conditions import Condition, Reason, Type
from halcyon.api.spec.gateway import Gateway
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.state import route_conflicts
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind

_REQUIRED = ("Accepted", "ResolvedRefs")


def accepted(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the RoutesAccepted condition; None if the spec names no Gateway."""
    gateway = plan.spec.traffic.gateway if plan.spec else None
    if gateway is None:
        return None
    target = f"Gateway {gateway.namespace or scope.key.namespace}/{gateway.name}"
    if not scope.gateway_api:
        text = (
            f"spec.traffic.gateway: {target} gets no routes, because this cluster does not serve both HTTPRoute and GRPCRoute "
            "(gateway.networking.k8s.io/v1). Install the CRDs of the Gateway API and a Gateway controller; Halcyon then "
            "creates the routes"
        )
        return Condition(Type.ROUTES_ACCEPTED, status=False, reason=Reason.GATEWAY_API_MISSING, message=text)
    results = [_result(scope, kind, gateway) for kind in _kinds(gateway)]
    if rejected := [text for accepted, text in results if accepted is False]:
        message = f"{target}: {'; '.join(rejected)}"
        return Condition(Type.ROUTES_ACCEPTED, status=False, reason=Reason.ROUTES_REJECTED, message=message)
    if conflict := _conflict(scope, gateway):
        message = f"{target}: {conflict}"
        return Condition(Type.ROUTES_ACCEPTED, status=False, reason=Reason.ROUTE_CONFLICT, message=message)
    if waiting := [text for accepted, text in results if accepted is None]:
        message = (
            f"{target} has not accepted all routes yet: {'; '.join(waiting)}. Check that the Gateway exists and that its "
            f"listeners allow routes from namespace {scope.key.namespace}"
        )
        return Condition(Type.ROUTES_ACCEPTED, status=None, reason=Reason.ROUTES_PENDING, message=message)
    message = f"{target} has accepted {' and '.join(route for _, route in results)}"
    return Condition(Type.ROUTES_ACCEPTED, status=True, reason=Reason.ROUTES_ACCEPTED, message=message)


def _conflict(scope: Scope, gateway: Gateway) -> str:
    for kind in _kinds(gateway):
        route = own(scope, kind, scope.key.name)
        winner = route_conflicts.winner(route, scope.other_routes) if route else None
        if winner is None:
            continue
        other, requests = winner
        owner = route_conflicts.key(other)
        # A tenant's names are not shown to another tenant.
        is_ours = owner.namespace == scope.key.namespace
        owner_text = f"ModelDeployment {owner.name}" if is_ours else "another namespace's ModelDeployment"
        field = "spec.traffic.gateway.http.hostnames or spec.model.name"
        if kind is not kinds.HTTP_ROUTE:
            field = "spec.traffic.gateway.grpc.hostnames"
        return (
            f"requests for {requests} go to {owner_text}, because its {kind.kind} is older. Change {field} of this "
            f"ModelDeployment, for example to the hostname {scope.key.name}.{scope.key.namespace}.example.com"
        )
    return ""


def _kinds(gateway: Gateway) -> list[Kind]:
    return [kinds.HTTP_ROUTE] if gateway.grpc is None else [kinds.HTTP_ROUTE, kinds.GRPC_ROUTE]


def _result(scope: Scope, kind: Kind, gateway: Gateway) -> tuple[bool | None, str]:
    """Return whether the Gateway has accepted the route (None: it has not reported yet), and a message about it."""
    route = own(scope, kind, scope.key.name)
    if route is None:
        return None, f"{kind.kind} {scope.key.name} has not been created yet"
    statuses = (route.get("status") or {}).get("parents") or ()
    parents = [_newest(entry, route) for entry in statuses if _is_gateway(entry.get("parentRef") or {}, scope, gateway)]
    for conditions in parents:
        for required in _REQUIRED:
            condition = conditions.get(required) or {}
            if condition.get("status") == "False":
                return False, (
                    f"{kind.kind} {scope.key.name} was rejected: condition {required} is False "
                    f"({condition.get('reason')}): {condition.get('message')}"
                )
    if not parents or any(c.get(required, {}).get("status") != "True" for c in parents for required in _REQUIRED):
        return None, f"the Gateway has not reported on {kind.kind} {scope.key.name} yet"
    return True, f"{kind.kind} {scope.key.name}"


def _newest(parent: Object, route: Object) -> dict[str, dict[str, Any]]:
    """Return the conditions of one of a route's parents by type, without those for an earlier generation."""
    generation = int(route["metadata"].get("generation") or 0)
    conditions = parent.get("conditions") or ()
    return {str(c.get("type")): c for c in conditions if int(c.get("observedGeneration") or generation) >= generation}


def _is_gateway(reference: Object, scope: Scope, gateway: Gateway) -> bool:
    namespace = reference.get("namespace") or scope.key.namespace
    return (namespace, reference.get("name")) == (gateway.namespace or scope.key.namespace, gateway.name)
