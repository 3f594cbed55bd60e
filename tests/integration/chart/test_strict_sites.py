"""The chart at sites with quotas, NetworkPolicies that deny by default, taints on all nodes, and audits of permissions."""

from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.render import names as names_of
from tests.integration.charts import LOCAL, NAMESPACED, Object, Values, arguments, find, laid_over, pod, render, rules

pytestmark = pytest.mark.more

DENIED = {"networkPolicies": {"operator": {"create": True}}}
MONITORING = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def containers(objects: list[Object]) -> dict[str, Object]:
    """Return the containers of all pods of the release, by the kind and name of their object."""
    specs = {f"{o['kind']} {o['metadata']['name']}": _pod_spec(o) for o in objects}
    return {name: spec["containers"][0] for name, spec in specs.items() if spec}


def _pod_spec(obj: Object) -> Any:
    if obj["kind"] == "Pod":
        return obj["spec"]
    return obj["spec"]["template"]["spec"] if obj["kind"] in {"Deployment", "DaemonSet"} else None


def model_of_the_test(values: Values) -> Object:
    """Return the spec of the model of `helm test`."""
    spec: Object = find(render(values, flags=()), "ModelDeployment", "halcyon-test")["spec"]
    return spec


def test_every_pod_of_a_release_fits_a_quota_on_requests_and_limits() -> None:
    values = {"cpuLimit": "2", "resources": {"limits": {"cpu": "4"}}, "prePull": {"enabled": True}}
    by_object = containers(render(values, flags=()))
    assert by_object.keys() == {"Deployment halcyon", "DaemonSet halcyon-prepull", "Pod halcyon-test-ask"}
    everything = by_object | {"the tested model": model_of_the_test(values)["runtime"]}
    for name, container in everything.items():
        for part in ("requests", "limits"):
            assert container["resources"][part].keys() == {"cpu", "memory"}, f"{name} {part}"

    usual = containers(render({"prePull": {"enabled": True}}, flags=()))
    assert all(container["resources"]["limits"].keys() == {"memory"} for container in usual.values())


def test_the_server_of_the_tested_model_runs_where_the_site_allows_it() -> None:
    assert parse("halcyon-test", model_of_the_test({})).runtime.placement.tolerations is None
    taint = {"key": "dedicated", "operator": "Equal", "value": "models", "effect": "NoSchedule"}
    values = {"test": {"nodeSelector": {"pool": "models"}, "tolerations": [taint], "resources": {"limits": {"cpu": 4}}}}
    runtime = parse("halcyon-test", model_of_the_test(values)).runtime
    assert runtime.placement.node_selector == {"pool": "models"}
    assert [toleration.to_dict() for toleration in runtime.placement.tolerations or ()] == [taint]
    assert model_of_the_test(values)["runtime"]["resources"]["limits"] == {"cpu": 4, "memory": "2Gi"}


@pytest.mark.parametrize(("values", "namespace"), [({}, "halcyon-system"), (NAMESPACED, "team-a")])
def test_a_policy_lets_the_pod_of_the_test_reach_its_model_alone(values: Values, namespace: str) -> None:
    objects = render(laid_over(values, DENIED), flags=())
    policy, asking = find(objects, "NetworkPolicy", "halcyon-test-ask"), find(objects, "Pod", "halcyon-test-ask")
    assert policy["metadata"]["namespace"] == asking["metadata"]["namespace"]
    hook = ("helm.sh/hook", "helm.sh/hook-delete-policy")
    assert [policy["metadata"]["annotations"][n] for n in hook] == [asking["metadata"]["annotations"][n] for n in hook]
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= asking["metadata"]["labels"].items()
    assert not spec["podSelector"]["matchLabels"].items() <= find(objects, "Deployment")["metadata"]["labels"].items()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    _, model = spec["egress"]
    (peer,) = model["to"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": namespace}
    labels = names_of.labels("halcyon-test", names_of.BALANCER)
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert model["ports"] == [{"port": names_of.HTTP_PORT}]

    without = render(laid_over(values, {"networkPolicies": {"operator": {"create": False}}}), flags=())
    assert not [o for o in without if o["metadata"]["name"] == "halcyon-test-ask" and o["kind"] == "NetworkPolicy"]


def test_only_the_sites_scrapers_read_the_operators_metrics() -> None:
    listed = laid_over(DENIED, {"networkPolicies": {"operator": {"scrapers": MONITORING}}})
    for values, peers in ((DENIED, None), (listed, MONITORING)):
        ingress = find(render(values), "NetworkPolicy")["spec"]["ingress"]
        sources = {port["port"]: rule.get("from") for rule in ingress for port in rule["ports"]}
        assert sources == {"https": None, "http": peers}


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_the_operator_may_read_and_change_no_lease_but_its_own(values: Values) -> None:
    for name, rule in rules(render(values)):
        if "leases" in rule["resources"]:
            assert rule.get("resourceNames") == ["halcyon"] or rule["verbs"] == ["create"], name


@pytest.mark.parametrize(
    ("values", "read"),
    [({}, True), ({"metricsAPI": {"register": False}}, False), (NAMESPACED, False)],
    ids=["registered", "not-registered", "namespaced"],
)
def test_kube_system_has_no_object_unless_the_metrics_api_is_registered(values: Values, *, read: bool) -> None:
    objects = render(laid_over(LOCAL, values))
    assert [o["kind"] for o in objects if o["metadata"].get("namespace") == "kube-system"] == ["RoleBinding"] * read
    # The operator of listed namespaces reads nothing there in any case.
    parsed = arguments(pod(objects))
    assert (parsed.front_proxy and not parsed.watch_namespaces) is read
