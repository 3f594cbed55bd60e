"""RoutesAccepted: each row of the table in `halcyon.control.status.routes`, and what it means for Ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from tests.unit.control.scope_builders import applied_children, pod, scope_of

EDGE = {"name": "edge", "grpc": {"hostnames": ["grpc.example.com"]}}
YES = {"Accepted": ("True", ""), "ResolvedRefs": ("True", "")}


def route_status(conditions: dict[str, tuple[str, str]], *, gateway: str = "edge", generation: int = 2) -> Object:
    listed = [
        {"type": name, "status": state, "reason": "Why", "message": message, "observedGeneration": generation}
        for name, (state, message) in conditions.items()
    ]
    return {"parents": [{"parentRef": {"name": gateway, "namespace": "team"}, "conditions": listed}]}


def served(mode: str = "Gateway", *, http: Object | None = None, grpc: Object | None = None, **fields: Any) -> Scope:
    """A ready server, and routes of generation 2 with these statuses."""
    before = scope_of({"traffic": {"mode": mode, "gateway": EDGE}}, gateway_api=True)
    planned = make(before)
    assert planned.target is not None
    children = applied_children(before)
    for kind, reported in ((kinds.HTTP_ROUTE, http), (kinds.GRPC_ROUTE, grpc)):
        children[kind, "digits"]["metadata"]["generation"] = 2
        children[kind, "digits"]["status"] = reported or {}
    if (beside := children.get((kinds.DEPLOYMENT, "digits-balancer"))) is not None:
        beside["status"] = {"availableReplicas": 2}
    pods = (pod("p", ready=True, revision=planned.target.key),)
    return replace(before, children=children, revisions=(planned.target,), pods=pods, **fields)


def conditions(now: Scope) -> dict[str, tuple[str, str, str]]:
    new_status = status.make(now, make(now), now="2026-01-02T03:04:05Z")
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in new_status["conditions"]}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (served(gateway_api=False), ("False", "GatewayAPIMissing")),
        (
            scope_of({"traffic": {"mode": "Gateway", "gateway": EDGE}}, gateway_api=True),
            ("Unknown", "RoutesPending"),
        ),
        (served(), ("Unknown", "RoutesPending")),
        (served(http=route_status(YES)), ("Unknown", "RoutesPending")),
        (served(http=route_status(YES), grpc=route_status(YES, gateway="another")), ("Unknown", "RoutesPending")),
        (served(http=route_status(YES), grpc=route_status(YES, generation=1)), ("Unknown", "RoutesPending")),
        (served(http=route_status(YES), grpc=route_status({"Accepted": ("True", "")})), ("Unknown", "RoutesPending")),
        (
            served(http=route_status(YES), grpc=route_status(YES | {"ResolvedRefs": ("False", "no port")})),
            ("False", "RoutesRejected"),
        ),
        (served(http=route_status(YES), grpc=route_status(YES)), ("True", "RoutesAccepted")),
    ],
)
def test_the_condition_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert conditions(now)["RoutesAccepted"][:2] == expected


def test_the_gateways_message_is_shown_in_its_words() -> None:
    now = served(http=route_status(YES), grpc=route_status(YES | {"ResolvedRefs": ("False", "no port 8001")}))

    assert (
        conditions(now)["RoutesAccepted"][2]
        == "Gateway team/edge: GRPCRoute digits was rejected: condition ResolvedRefs is False (Why): no port 8001"
    )


def test_a_cluster_without_the_gateway_api_is_reported_with_field() -> None:
    message = conditions(served(gateway_api=False))["RoutesAccepted"][2]

    assert message.startswith(
        "spec.traffic.gateway: Gateway team/edge gets no routes, because this cluster does not serve"
    )


def test_ready_waits_for_the_gateway_only_where_there_are_no_balancers() -> None:
    assert conditions(served())["Ready"][:2] == ("Unknown", "Unknown")
    assert conditions(served(gateway_api=False))["Ready"][:2] == ("False", "GatewayAPIMissing")
    assert conditions(served(http=route_status(YES), grpc=route_status(YES)))["Ready"][:2] == ("True", "Ready")
    assert conditions(served("Balancer"))["Ready"][:2] == ("True", "Ready")


def test_routes_have_no_condition_without_a_gateway() -> None:
    assert "RoutesAccepted" not in conditions(scope_of())


@pytest.mark.parametrize(
    ("their_status", "reason"),
    [
        (None, "RouteConflict"),
        (route_status(YES), "RouteConflict"),
        (route_status({"Accepted": ("False", "the listener does not allow the namespace")}), "RoutesAccepted"),
        (route_status({"Accepted": ("False", "no such Gateway")}, gateway="another"), "RouteConflict"),
        (route_status({"Accepted": ("False", "of an earlier generation")}, generation=1), "RouteConflict"),
    ],
)
def test_an_older_route_that_the_gateway_rejects_is_no_conflict(their_status: Object | None, reason: str) -> None:
    now = served(http=route_status(YES), grpc=route_status(YES))
    mine = now.children[kinds.HTTP_ROUTE, "digits"]
    mine["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    older = {"namespace": "team-b", "creationTimestamp": "2026-01-01T00:00:00Z"}
    theirs = {**mine, "metadata": {**mine["metadata"], **older}, "status": their_status or {}}

    assert conditions(replace(now, other_routes=(theirs,)))["RoutesAccepted"][1] == reason
