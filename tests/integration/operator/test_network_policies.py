"""NetworkPolicies of models on a real API server and real controllers: made where the site asks, kept, and gone with their model.

Nodes and pods are KWOK's stand-ins, and nothing here enforces a policy: who reaches whom by them is in tests/unit/render/test_network_policies.py.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, deployment
from tests.integration.waiting import until

pytestmark = pytest.mark.more

PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
PEERS = {
    "operator": [{"podSelector": {"matchLabels": {"app": "halcyon"}}}],
    "scrapers": [PROMETHEUS],
    "apiServerPorts": [6443],
}
SERVICE: dict[str, Any] = {"traffic": {"mode": "Direct"}}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One whose site asks for policies."""
    with running(
        cluster, tmp_path_factory.mktemp("operator"), more=(f"--network-policies={json.dumps(PEERS)}",)
    ) as started:
        yield started


def policies(space: Space) -> dict[str, Any]:
    return {obj["metadata"]["name"]: obj for obj in space.every(kinds.NETWORK_POLICY)}


def test_network_policies_follow_the_routing_mode_and_go_with_the_model(space: Space, operator: Operator) -> None:
    space.serve()
    by_name = policies(space)
    assert by_name.keys() == {"m-server", "m-balancer"}
    for obj in by_name.values():
        assert sorted(obj["spec"]["policyTypes"]) == ["Egress", "Ingress"]
        (owner,) = obj["metadata"]["ownerReferences"]
        assert owner["uid"] == space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    assert "egress" not in by_name["m-server"]["spec"], "servers have somewhere to go"
    assert {"port": operator.port, "protocol": "TCP"} in [
        port for rule in by_name["m-balancer"]["spec"]["egress"] for port in rule["ports"]
    ]

    space.apply(deployment(**SERVICE))
    until(lambda: policies(space).keys(), lambda names: names == {"m-server"}, goal="the policy of balancers is gone")
    space.apply(deployment())
    until(
        lambda: _let_in(space),
        lambda clients: clients == {"halcyon", "balancer", "monitoring"},
        goal="clients aren't let in",
    )

    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    until(lambda: policies(space), lambda left: not left, goal="the policies are gone")


def _let_in(space: Space) -> set[str]:
    """Who is let in to the servers."""
    clients = set()
    for rule in policies(space)["m-server"]["spec"]["ingress"]:
        for peer in rule.get("from", [{"podSelector": {"matchLabels": {"app": "anybody"}}}]):
            labels = (peer.get("podSelector") or peer["namespaceSelector"])["matchLabels"]
            clients.add(labels.get("app.kubernetes.io/component") or next(iter(labels.values())))
    return clients


def test_an_edit_is_set_right_and_nothing_is_written_without_one(space: Space) -> None:
    space.serve()
    before = {name: obj["metadata"]["resourceVersion"] for name, obj in policies(space).items()}
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"metadata": {"annotations": {"touched": "yes"}}})
    space.wait_settled()
    assert {name: obj["metadata"]["resourceVersion"] for name, obj in policies(space).items()} == before

    original = policies(space)["m-server"]["spec"]
    space.merge(kinds.NETWORK_POLICY, "m-server", {"spec": {"ingress": [{}]}})
    until(lambda: policies(space)["m-server"]["spec"], lambda spec: spec == original, goal="the edit is set right")
    space.delete(kinds.NETWORK_POLICY, "m-balancer")
    until(lambda: policies(space).keys(), lambda names: "m-balancer" in names, goal="what was deleted is made again")


def test_a_conflicting_network_policy_is_left_alone_and_named(space: Space) -> None:
    theirs = {
        "apiVersion": kinds.NETWORK_POLICY.api_version,
        "kind": kinds.NETWORK_POLICY.kind,
        "metadata": {"name": "m-server"},
        "spec": {"podSelector": {"matchLabels": {"app": "theirs"}}, "policyTypes": ["Ingress"]},
    }
    space.apply(theirs)
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"config.pbtxt": ""}})
    space.apply(deployment())

    message = space.wait_condition("Accepted", "False", "Conflict")
    assert "NetworkPolicy m-server already exists and does not belong to this ModelDeployment" in message
    assert policies(space)["m-server"]["spec"]["podSelector"] == theirs["spec"]["podSelector"]
