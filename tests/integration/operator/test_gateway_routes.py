"""Routes of a Gateway, against the API server with the Gateway API's own definitions. Its controller is played by the tests.

The tests of this module follow each other: a cluster learns of such routes once.
"""

import time
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.spec.parse import parse
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import gateway_routes, names
from halcyon.render.site import Subject
from tests.integration import gateway_api
from tests.integration.operator_space import MERGE, Object, Space, deployment, files
from tests.integration.waiting import until

pytestmark = pytest.mark.more

EDGE: Object = {
    "name": "edge",
    "namespace": "infra",
    "http": {"sectionName": "https", "hostnames": ["m.example.com", "*.models.example.com"]},
    "grpc": {"hostnames": ["grpc.m.example.com"]},
}
BALANCED: dict[str, Any] = {"traffic": {"gateway": EDGE, "queueTimeout": "1m30s500ms", "responseTimeout": "1m30s500ms"}}
DIRECT: dict[str, Any] = {"traffic": {"gateway": EDGE, "mode": "Gateway"}}


@pytest.fixture(scope="module", autouse=True)
def _unknown(cluster: Cluster) -> None:
    """Before the operator starts; other modules may have installed them."""
    gateway_api.uninstall(cluster)


def route(space: Space, kind: Kind = kinds.HTTP_ROUTE) -> Object:
    """The route, once it is there."""
    return (
        until(
            lambda: space.get(kind, "m"),
            lambda obj: obj is not None,
            goal=f"{kind.kind} is written",
            limit_s=20,
            context=lambda: str(space.status()),
        )
        or {}
    )


def led_to(space: Space, kind: Kind = kinds.HTTP_ROUTE) -> list[tuple[str, int | None]]:
    rules = route(space, kind)["spec"]["rules"]
    led, *others = [[(backend["name"], backend.get("weight")) for backend in rule["backendRefs"]] for rule in rules]
    assert all(other == led for other in others)
    return led


def set_conditions(space: Space, kind: Kind, **conditions: tuple[str, str]) -> None:
    """What the Gateway's controller says of a route as it is: status and message, by type."""
    obj = route(space, kind)
    reported = [
        {
            "type": name,
            "status": status,
            "reason": "BecauseOfTheTest",
            "message": message,
            "observedGeneration": obj["metadata"]["generation"],
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        for name, (status, message) in conditions.items()
    ]
    parent = {
        "parentRef": obj["spec"]["parentRefs"][0],
        "controllerName": "example.com/gateway-controller",
        "conditions": reported,
    }
    path = kind.path(space.namespace, "m", "status")
    answer = space.api.call("PATCH", path, {"status": {"parents": [parent]}}, content_type=MERGE)
    assert answer.status == 200, answer


def test_routes_are_written_once_the_cluster_knows_them_and_its_gateway_reports(cluster: Cluster, space: Space) -> None:
    space.serve(**BALANCED)
    message = space.wait_condition("RoutesAccepted", "False", "GatewayAPIMissing")
    assert message.startswith("spec.traffic.gateway: Gateway infra/edge gets no routes, ")
    assert "Install the CRDs of the Gateway API" in message
    assert space.condition("Ready")[0] == "True", "balancers serve without a Gateway"

    gateway_api.install(cluster)
    spec = route(space)["spec"]
    assert spec["hostnames"] == EDGE["http"]["hostnames"]
    assert {key: spec["parentRefs"][0][key] for key in ("namespace", "name", "sectionName")} == {
        "namespace": "infra", "name": "edge", "sectionName": "https",
    }  # fmt: skip
    # The wait in a balancer, and the time in a server.
    assert spec["rules"][0]["timeouts"] == {"request": "181s"}
    assert led_to(space) == [("m", 1)]
    assert led_to(space, kinds.GRPC_ROUTE) == [("m", 1)]

    assert "edge" in space.wait_condition("RoutesAccepted", "Unknown", "RoutesPending")
    for kind in kinds.ROUTES:
        set_conditions(space, kind, Accepted=("True", ""), ResolvedRefs=("True", ""))
    space.wait_condition("RoutesAccepted", "True", "RoutesAccepted")
    set_conditions(
        space, kinds.GRPC_ROUTE, Accepted=("False", "no listener has this hostname"), ResolvedRefs=("True", "")
    )
    message = space.wait_condition("RoutesAccepted", "False", "RoutesRejected")
    assert (
        "GRPCRoute m was rejected: condition Accepted is False (BecauseOfTheTest): no listener has this hostname"
        in message
    )
    assert space.condition("Ready")[0] == "True"

    space.apply(deployment())
    until(lambda: [space.get(kind, "m") for kind in kinds.ROUTES], lambda routes: not any(routes), goal="they are gone")


def test_the_younger_of_two_conflicting_models_says_so_until_they_differ(cluster: Cluster, space: Space) -> None:
    gateway_api.install(cluster)
    model = {**deployment()["spec"]["model"], "name": "resnet"}
    gateway = {"name": "edge", "namespace": "infra", "http": {"hostnames": [f"{space.namespace}.example.com"]}}
    both = {"model": model, "traffic": {"gateway": gateway}}
    space.serve("older", **both)
    until(lambda: space.get(kinds.HTTP_ROUTE, "older"), bool, goal="the older has a route")
    time.sleep(1.1)  # an object's age is told in whole seconds, and of one second the name decides
    space.serve("m", **both)

    message = space.wait_condition("RoutesAccepted", "False", "RouteConflict")
    assert f"requests for /v2/models/resnet at {space.namespace}.example.com go to ModelDeployment older" in message
    assert space.condition("RoutesAccepted", "older")[1] == "RoutesPending"
    # The other's change is heard without one of its own.
    space.apply(deployment("older", model=model))
    space.wait_condition("RoutesAccepted", "Unknown", "RoutesPending")


def test_written_routes_have_only_fields_that_the_definitions_know(cluster: Cluster, space: Space) -> None:
    gateway_api.install(cluster)
    spec = parse("m", {**deployment()["spec"], **DIRECT})
    gateway = spec.traffic.gateway
    assert gateway is not None
    assert gateway.grpc is not None
    subject, shares = (
        Subject(space.namespace, "m", "0c8a9a4e-0000-4000-8000-000000000001"),
        [(names.SLOT_A, 95), (names.SLOT_B, 5)],
    )
    objects = (
        gateway_routes.http_route(subject, spec, gateway, shares, model="Digits.v2-x_y"),
        gateway_routes.grpc_route(subject, spec, gateway, gateway.grpc, shares),
        *(gateway_routes.slot_service(subject, spec, slot) for slot, _ in shares),
    )
    for obj in objects:
        # Strict: a field that the definition lacks is an error.
        assert space.try_apply(obj, dry=True).status in {200, 201}, space.try_apply(obj, dry=True)


def test_without_balancers_a_gateway_gives_a_canary_its_share(cluster: Cluster, space: Space) -> None:
    gateway_api.install(cluster)
    canary = {
        "rollout": {
            "strategy": "Canary",
            "canary": {"steps": [{"weight": 20, "pause": {"duration": "1h"}}], "analysis": {"mode": "Disabled"}},
        }
    }
    space.apply(files(), deployment(replicas=4, **DIRECT, **canary))
    assert led_to(space) == [("m-route-a", 100)]
    space.wait_condition("Ready", "Unknown")
    for kind in kinds.ROUTES:
        set_conditions(space, kind, Accepted=("True", ""), ResolvedRefs=("True", ""))
    space.wait_condition("Ready", "True", "Ready")
    assert space.get(kinds.DEPLOYMENT, "m-balancer") is None

    space.apply(deployment(replicas=4, **DIRECT, **canary, batching={"maxBatchSize": 2}))
    shared = [("m-route-a", 80), ("m-route-b", 20)]
    for kind in kinds.ROUTES:
        until(lambda kind=kind: led_to(space, kind), lambda led: led == shared, goal="the canary has its share")  # type: ignore[misc]
    selector = space.must(kinds.SERVICE, "m-route-b")["spec"]["selector"]
    assert selector["serving.halcyon.dev/slot"] == "b"
