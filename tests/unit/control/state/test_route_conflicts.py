"""Which of two routes gets requests that both ask for, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.desired.plan import make
from halcyon.control.state import route_conflicts
from halcyon.control.state.scope import Scope
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import gateway_routes, names
from halcyon.render.site import Subject
from tests.unit.control.scope_builders import applied_children, pod, scope_of

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
EDGE = {"name": "edge", "namespace": "infra"}


def gateway(http: dict[str, Any] | None = None, grpc: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    entries = {"http": http if http is not None else {"hostnames": ["a.example.com"]}} | (
        {"grpc": grpc} if grpc else {}
    )
    return EDGE | entries | more


def route(
    name: str,
    gateway_spec: dict[str, Any],
    *,
    model: str = "resnet",
    namespace: str = "team",
    created_at: str = OLD,
    grpc: bool = False,
) -> Object:
    document = {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}, "name": model},
        "traffic": {"mode": "Gateway", "gateway": gateway_spec},
    }
    spec, subject = parse(name, document), Subject(namespace, name, f"uid-of-{name}")
    spec_gateway = spec.traffic.gateway
    assert spec_gateway is not None
    shares = [(names.SLOT_A, 1)]
    if grpc:
        assert spec_gateway.grpc is not None
        route_object = gateway_routes.grpc_route(subject, spec, spec_gateway, spec_gateway.grpc, shares)
    else:
        route_object = gateway_routes.http_route(subject, spec, spec_gateway, shares, model=model)
    route_object["metadata"]["creationTimestamp"] = created_at
    return route_object


@pytest.mark.parametrize(
    ("first_gateway", "second_gateway", "requests"),
    [
        (gateway(), gateway(), "/v2/models/resnet at a.example.com"),
        (gateway({"hostnames": ["a.example.com", "b.example.com"]}), gateway({"hostnames": ["b.example.com"]}), "/v2/models/resnet at b.example.com"),
        (gateway({}), gateway({}), "/v2/models/resnet at every hostname of the listener"),
        (gateway({"sectionName": "https", "hostnames": ["a.example.com"]}), gateway(), "/v2/models/resnet at a.example.com"),
        (gateway({"sectionName": "https"}), gateway({"sectionName": "http"}), ""),
        (gateway(), gateway({"hostnames": ["b.example.com"]}), ""),
        (gateway(), gateway({"hostnames": ["*.example.com"]}), ""),
        (gateway(), gateway({}), ""),
        (gateway(), gateway(name="inner"), ""),
        (gateway(), gateway(namespace="other"), ""),
    ],
    ids=["same", "one of two", "no names", "one listener of all", "listeners", "names", "wildcard", "a name and none", "gateways", "namespaces"],
)  # fmt: skip
def test_two_routes_of_one_model_name_share_the_same_requests(
    first_gateway: dict[str, Any], second_gateway: dict[str, Any], requests: str
) -> None:
    first, second = route("a", first_gateway), route("b", second_gateway)

    assert route_conflicts.shared_requests(first, second) == requests
    assert route_conflicts.shared_requests(second, first) == requests


def test_models_share_a_hostname_over_http_and_not_over_grpc() -> None:
    gateway_spec = gateway(grpc={"hostnames": ["grpc.example.com"]})

    assert route_conflicts.shared_requests(route("a", gateway_spec), route("b", gateway_spec, model="bert")) == ""
    assert (
        route_conflicts.shared_requests(route("a", gateway_spec), route("b", gateway_spec, model="resnet50")) == ""
    ), "a name that begins alike"
    assert (
        route_conflicts.shared_requests(
            route("a", gateway_spec, grpc=True), route("b", gateway_spec, model="bert", grpc=True)
        )
        == "gRPC at grpc.example.com"
    )
    assert route_conflicts.shared_requests(route("a", gateway_spec), route("b", gateway_spec, grpc=True)) == ""


def test_the_older_route_wins_and_then_the_first_by_name() -> None:
    old, new, beside = route("b", gateway()), route("a", gateway(), created_at=NEW), route("c", gateway())

    assert route_conflicts.winner(new, [beside, old]) == (old, "/v2/models/resnet at a.example.com")
    assert route_conflicts.winner(old, [new, beside]) is None
    assert route_conflicts.winner(beside, [new, old]) == (old, "/v2/models/resnet at a.example.com")
    assert route_conflicts.winner(new, [route("b", gateway(), model="bert")]) is None


def test_a_route_is_of_its_model_and_at_its_gateways() -> None:
    assert route_conflicts.key(route("a", gateway())) == Key("team", "a")
    assert route_conflicts.gateways(route("a", gateway())) == {Key("infra", "edge")}
    assert route_conflicts.gateways(route("a", {"name": "own"})) == {Key("team", "own")}


def served(*beside: Object) -> Scope:
    """`digits`, whose routes its Gateway has taken, and others at that Gateway."""
    gateway_spec = gateway(grpc={"hostnames": ["grpc.example.com"]})
    before = scope_of({"traffic": {"mode": "Gateway", "gateway": gateway_spec}}, gateway_api=True)
    planned = make(before)
    assert planned.target is not None
    children = applied_children(before)
    yes = [{"type": name, "status": "True", "observedGeneration": 1} for name in ("Accepted", "ResolvedRefs")]
    for kind in kinds.ROUTES:
        route_object = children[kind, "digits"]
        route_object["metadata"] |= {"generation": 1, "creationTimestamp": NEW}
        route_object["status"] = {"parents": [{"parentRef": EDGE, "conditions": yes}]}
    pods = (pod("p", ready=True, revision=planned.target.key),)
    return replace(before, children=children, revisions=(planned.target,), pods=pods, other_routes=beside)


def condition(now: Scope, kind: str = "RoutesAccepted") -> tuple[str, str, str]:
    new_status = status.make(now, make(now), now="2026-01-02T03:04:05Z")
    return next((c["status"], c["reason"], c["message"]) for c in new_status["conditions"] if c["type"] == kind)


def test_a_model_that_loses_its_requests_says_so_with_a_remedy() -> None:
    assert condition(served())[:2] == ("True", "RoutesAccepted")
    assert condition(served(route("older", gateway(), model="digits", created_at=NEW + "x")))[:2] == (
        "True",
        "RoutesAccepted",
    )

    state, reason, message = condition(served(route("older", gateway(), model="digits")))
    assert (state, reason) == ("False", "RouteConflict")
    assert message == (
        "Gateway infra/edge: requests for /v2/models/digits at a.example.com go to ModelDeployment "
        "older, because its HTTPRoute is older. Change spec.traffic.gateway.http.hostnames or spec.model.name of "
        "this ModelDeployment, for example to the hostname digits.team.example.com"
    )
    assert condition(served(route("older", gateway(), model="digits")), "Ready")[1] == "RouteConflict"


def test_the_names_of_another_tenant_are_not_shown() -> None:
    theirs = route("secret", gateway(grpc={"hostnames": ["grpc.example.com"]}), namespace="mallory", grpc=True)

    _, reason, message = condition(served(theirs))
    assert reason == "RouteConflict"
    assert (
        "gRPC at grpc.example.com go to another namespace's ModelDeployment, because its GRPCRoute is older"
    ) in message
    assert "Change spec.traffic.gateway.grpc.hostnames of this ModelDeployment, for example" in message
    assert not {"secret", "mallory"} & set(message.replace(",", " ").split())
