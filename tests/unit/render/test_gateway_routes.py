"""What routes of a Gateway let through, beside what balancers do."""

from __future__ import annotations

import re
from typing import Any

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.api.spec.parse import parse
from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.model import Listen
from halcyon.render import gateway_routes, names
from halcyon.render.metadata import Object
from halcyon.render.site import Subject

SUBJECT, SHARES = Subject("team", "digits", "uid"), [(names.SLOT_A, 95), (names.SLOT_B, 5)]
PLAN = BalancerPlan(
    namespace="team",
    name="digits",
    model="digits",
    slots=(Slot("a", "digits-server-a", 100, 4),),
    max_connections=48,
    queue_limit=200,
    queue_timeout_ms=60000,
    response_timeout_ms=60000,
    drain_ms=30000,
)
SPEC = parse(
    "digits",
    {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
        "traffic": {"gateway": {"name": "edge", "http": {}, "grpc": {"hostnames": ["grpc.example.com"]}}},
    },
)


def rendered_routes() -> tuple[Object, Object]:
    gateway = SPEC.traffic.gateway
    assert gateway is not None
    assert gateway.grpc is not None
    return (
        gateway_routes.http_route(SUBJECT, SPEC, gateway, SHARES, model="digits"),
        gateway_routes.grpc_route(SUBJECT, SPEC, gateway, gateway.grpc, SHARES),
    )


def matches(route: Object) -> list[dict[str, Any]]:
    return [match for rule in route["spec"]["rules"] for match in rule["matches"]]


def test_routes_let_through_what_balancers_do() -> None:
    config = haproxy_cfg.render(PLAN, listen=Listen())
    http, grpc = rendered_routes()

    paths = {match["path"]["value"] for match in matches(http) if match["path"]["type"] == "Exact"}
    assert paths == set(
        re.findall(r"(?<= )/v2\S*", "\n".join(re.findall(r"acl (?:reads|calls) path -m str .*", config)))
    )
    assert {"/v2/models/digits/config", "/v2/models/digits/stats"} <= paths
    methods = {f"/{match['method']['service']}/{match['method']['method']}" for match in matches(grpc)}
    assert methods == set(re.findall(r"/(?:inference|grpc)[.]\w+(?:[.]\w+)*/\w+", config))
    assert {"/inference.GRPCInferenceService/ModelConfig", "/inference.GRPCInferenceService/ModelStatistics"} <= methods


def test_no_rule_has_more_matches_than_the_gateway_api_allows() -> None:
    http, grpc = rendered_routes()

    # Of 1.2, the oldest version whose HTTPRoute allows more than eight.
    assert all(len(rule["matches"]) <= 64 for rule in http["spec"]["rules"])
    assert all(len(rule["matches"]) <= 8 for rule in grpc["spec"]["rules"])


def test_streams_of_events_have_a_rule_without_a_timeout() -> None:
    http, _ = rendered_routes()

    timeouts = {match["path"]["value"]: rule["timeouts"] for rule in http["spec"]["rules"] for match in rule["matches"]}
    assert timeouts.pop("/v2/models/digits/generate_stream") == {"request": "0s"}
    assert {timeout["request"] for timeout in timeouts.values()} == {"120s"}
    backends = [rule["backendRefs"] for rule in http["spec"]["rules"]]
    assert backends == [backends[0]] * 2
