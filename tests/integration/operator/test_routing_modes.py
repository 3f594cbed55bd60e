"""Models without balancers: how one way becomes the other, against a real API server and real controllers.

Nodes and pods are KWOK's stand-ins: they are Ready at once and run nothing. Real requests are in the scenarios.
"""

import json
from typing import Any

import pytest

from halcyon.kube import kinds
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import until

pytestmark = pytest.mark.more

SERVICE: dict[str, Any] = {"traffic": {"mode": "Direct"}}
SERVERS, BALANCERS = "server", "balancer"


def led_to(space: Space) -> str:
    """What the Service of the model's name selects."""
    component: str = space.must(kinds.SERVICE, "m")["spec"]["selector"]["app.kubernetes.io/component"]
    return component


def of_balancers(space: Space) -> set[str]:
    return {kind for kind, name in space.children() if name == "m-balancer"}


def test_a_model_without_balancers_has_a_name_for_balancing_clients(space: Space) -> None:
    space.serve(replicas=2, **SERVICE)

    assert led_to(space) == SERVERS
    assert of_balancers(space) == {"ConfigMap"}
    headless = space.must(kinds.SERVICE, "m-headless")["spec"]
    assert headless["clusterIP"] == "None"
    assert space.status()["address"]["headless"] == f"m-headless.{space.namespace}.svc"
    assert space.condition("BalancerReady")[:2] == ("True", "NoBalancer")
    assert space.condition("Ready")[:2] == ("True", "Ready")


def test_one_routing_mode_becomes_the_other_and_back(space: Space) -> None:
    space.serve()
    assert led_to(space) == BALANCERS
    everything = of_balancers(space)

    space.apply(deployment(**SERVICE))
    # What agents read goes with the last of their pods, which nobody tells a reconcile.
    until(lambda: of_balancers(space), lambda kinds_: kinds_ == {"ConfigMap"}, goal="the balancers are gone")
    space.wait_settled()
    assert led_to(space) == SERVERS

    space.apply(deployment())
    until(lambda: led_to(space), lambda to: to == BALANCERS, goal="the Service leads to balancers")
    available = space.must(kinds.DEPLOYMENT, "m-balancer")["status"].get("availableReplicas")
    assert available, "it led to balancers before one was there"
    space.wait_settled()
    assert of_balancers(space) == everything
    assert space.get(kinds.SERVICE, "m-headless") is None


def test_fields_that_need_a_balancer_are_refused_by_the_api_server(space: Space) -> None:
    wake = deployment(scaling={"minReplicas": 0, "maxReplicas": 2}, **SERVICE)
    share = deployment(rollout={"strategy": "Canary"}, **SERVICE)
    for document, message in ((wake, "only balancers hold requests"), (share, "set strategy: Auto")):
        answer = space.try_apply(document, dry=True)
        assert answer.status == 422, answer
        assert message in str(answer.body), answer.body


def test_a_stateful_model_needs_a_header_for_more_than_one_replica(space: Space) -> None:
    sticky = {"traffic": {"stickiness": {"header": "X-Sequence-ID"}}}
    space.apply(files("max_batch_size: 8\nsequence_batching { direct {} }"), deployment(replicas=2))
    message = space.wait_condition("Accepted", "False", "Invalid")
    assert "Set spec.traffic.stickiness: {header: x-sequence-id}" in message
    assert space.get(kinds.DEPLOYMENT, "m-a") is None

    space.apply(deployment(replicas=2, **sticky))
    space.wait_settled()
    plan = json.loads(space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["plan.json"])
    assert (plan["sequences"], plan["sticky_header"]) == (True, "x-sequence-id")
    assert space.must(kinds.SERVICE, "m")["spec"]["sessionAffinity"] == "ClientIP"

    # Without it again: what was accepted stays, the header with it.
    space.apply(deployment(replicas=2))
    space.wait_condition("Accepted", "False", "Invalid")
    after = json.loads(space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["plan.json"])
    assert after == plan
    assert space.replicas() == 2
