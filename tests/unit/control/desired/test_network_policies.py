"""Which NetworkPolicies a model has: each row of the table in `halcyon.control.desired.network_policies`."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from tests.unit.control.scope_builders import applied_children, conflicting_object, scope_of
from tests.unit.render.rendered import WALLED

DIRECT = {"traffic": {"mode": "Direct"}}
AROUND_BALANCERS = (kinds.NETWORK_POLICY, "digits-balancer")


def policies(seen: Scope) -> dict[str, Any]:
    return {o["metadata"]["name"]: o["spec"] for o in make(seen).then if o["kind"] == "NetworkPolicy"}


def let_in(seen: Scope) -> list[str]:
    """Who is let in to the servers, in the order of the rules."""
    clients = []
    for rule in policies(seen)["digits-server"]["ingress"]:
        labels = [peer["podSelector"]["matchLabels"] for peer in rule.get("from", ())]
        clients.append(labels[0].get("app") or labels[0]["app.kubernetes.io/component"] if labels else "anybody")
    return clients


def after(before: Scope, spec: dict[str, Any] | None, *, balancers: int) -> Scope:
    """What is there once the plan of `before` was applied."""
    planned = make(before)
    assert planned.target is not None
    children = {**dict(before.children), **applied_children(before, planned)}
    for child in planned.delete:
        children.pop(child)
    return scope_of(spec, site=WALLED, children=children, revisions=(planned.target,), balancers=balancers)


def test_network_policies_are_absent_unless_the_site_enables_them() -> None:
    assert policies(scope_of()) == {}
    assert policies(scope_of(DIRECT)) == {}


@pytest.mark.parametrize(
    ("spec", "balancers", "who", "both"),
    [
        (None, 0, ["halcyon", "balancer"], True),
        (None, 2, ["halcyon", "balancer"], True),
        (DIRECT, 0, ["halcyon", "anybody"], False),
        (DIRECT, 2, ["halcyon", "balancer", "anybody"], True),
    ],
    ids=["balanced, none yet", "balanced", "direct", "direct, they linger"],
)
def test_network_policies_follow_the_routing_mode(
    spec: dict[str, Any] | None, balancers: int, who: list[str], both: bool
) -> None:
    seen = scope_of(spec, site=WALLED, balancers=balancers)

    assert let_in(seen) == who
    assert ("digits-balancer" in policies(seen)) == both


def test_a_change_of_the_routing_mode_shuts_no_client_out() -> None:
    direct = after(scope_of(site=WALLED), DIRECT, balancers=2)
    assert let_in(direct) == ["halcyon", "balancer", "anybody"]
    assert AROUND_BALANCERS not in make(direct).delete, "they still drain"
    alone = after(direct, DIRECT, balancers=0)
    assert AROUND_BALANCERS in make(alone).delete
    assert let_in(alone) == ["halcyon", "anybody"]

    back = after(alone, None, balancers=0)
    assert let_in(back) == ["halcyon", "balancer", "anybody"], (
        "the Service leads to servers until a balancer is available"
    )
    available = after(back, None, balancers=2)
    deployment = available.children[kinds.DEPLOYMENT, "digits-balancer"]
    deployment["status"] = {"availableReplicas": 2}
    assert let_in(available) == ["halcyon", "balancer", "anybody"], "in the same moment the Service is led elsewhere"
    assert let_in(after(available, None, balancers=2)) == ["halcyon", "balancer"]


@pytest.mark.parametrize("argument", ["--url=https://store:port/m", "--identity=edited", "proxy=http://edge:3128"])
def test_an_edited_argument_of_the_fetcher_is_overwritten_by_the_plan(argument: str) -> None:
    edited = after(scope_of(site=WALLED), None, balancers=0)
    (fetcher, *_) = edited.children[kinds.DEPLOYMENT, "digits-a"]["spec"]["template"]["spec"]["initContainers"]
    arguments, fetcher["args"] = fetcher["args"], ["--url=https://store/m", argument]

    (deployment,) = (o for o in make(edited).then if o["metadata"]["name"] == "digits-a" and o["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["initContainers"][0]["args"] == arguments


def test_agents_are_let_out_to_the_operators_port() -> None:
    ports = {
        port["port"] for rule in policies(scope_of(site=WALLED))["digits-balancer"]["egress"] for port in rule["ports"]
    }
    assert WALLED.port in ports


def test_a_conflicting_network_policy_is_left_alone_and_named() -> None:
    planned = make(scope_of(site=WALLED, children={AROUND_BALANCERS: conflicting_object(*AROUND_BALANCERS)}))

    assert not planned.acceptance.accepted
    assert (
        "NetworkPolicy digits-balancer already exists and does not belong to this ModelDeployment"
        in planned.acceptance.message
    )
