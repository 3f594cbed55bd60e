"""Values by which a site fits the chart to its own rules: mirrors, labels, security contexts, volumes, and routes to the dashboard."""

from typing import Any

import pytest

from tests.integration.charts import EVERYTHING, LOCAL, find, laid_over, refusal, render

pytestmark = pytest.mark.more

MIRROR = "mirror.example.com/all"
POD = {"dashboard": {"listen": "pod"}}


def operator(values: dict[str, Any]) -> dict[str, Any]:
    pod_spec: dict[str, Any] = find(render(values), "Deployment")["spec"]["template"]["spec"]
    return pod_spec


def test_one_registry_replaces_those_of_all_images() -> None:
    deployment = find(render({"global": {"imageRegistry": MIRROR}}), "Deployment")
    assert deployment["metadata"]["annotations"]["serving.halcyon.dev/bench-image"] == f"{MIRROR}/halcyon-bench:dev"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    named = [container["image"], *(arg.partition("=")[2] for arg in container["args"] if "-image=" in arg)]

    assert named == [
        f"{MIRROR}/halcyon-operator:dev",
        f"{MIRROR}/halcyon-operator:dev",
        f"{MIRROR}/halcyon-balancer:dev",
        f"{MIRROR}/tritonserver:26.07-py3",
        f"{MIRROR}/halcyon-bench:dev",
    ]


def test_common_labels_are_on_every_object_and_in_no_selector() -> None:
    common = {"team": "ml", "app.kubernetes.io/name": "other"}
    for obj in render(laid_over(EVERYTHING, {"commonLabels": common})):
        labels = obj["metadata"].get("labels", {})
        if labels:
            assert labels["team"] == "ml", obj["kind"]
            assert labels["app.kubernetes.io/name"] != "other", obj["kind"]
        assert "team" not in str(obj.get("spec", {}).get("selector")), obj["kind"]


def test_security_contexts_are_laid_over_those_of_the_chart() -> None:
    spec = operator(
        {"podSecurityContext": {"runAsUser": 7, "fsGroup": 9}, "securityContext": {"seLinuxOptions": {"level": "s0"}}}
    )

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 7,
        "runAsGroup": 65532,
        "fsGroup": 9,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seLinuxOptions": {"level": "s0"},
    }


def test_own_authorities_are_mounted() -> None:
    volume, mount = {"name": "ca", "configMap": {"name": "site"}}, {"name": "ca", "mountPath": "/etc/ssl/site"}
    spec = operator({"extraVolumes": [volume], "extraVolumeMounts": [mount]})

    assert volume in spec["volumes"]
    assert mount in spec["containers"][0]["volumeMounts"]
    assert "/extraVolumes/0" in refusal({"extraVolumes": [{"name": "ca", "configmap": {}}]})


def test_hosts_dns_hooks_and_history_are_those_of_the_site() -> None:
    values = {
        "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["prometheus.example.com"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    }
    usual, spec = operator({}), operator(values)
    assert {name for name in ("hostAliases", "dnsConfig") if name in usual} == set()
    assert "lifecycle" not in usual["containers"][0]
    assert (spec["hostAliases"], spec["dnsConfig"]) == (values["hostAliases"], values["dnsConfig"])
    assert spec["containers"][0]["lifecycle"] == values["lifecycle"]
    assert "/lifecycle" in refusal({"lifecycle": {"prestop": {}}})
    limits = [find(render({"revisionHistoryLimit": n}), "Deployment")["spec"]["revisionHistoryLimit"] for n in (0, 3)]
    assert limits == [0, 3]


def test_an_ingress_leads_to_the_dashboard() -> None:
    ingress_values = {
        "enabled": True,
        "host": "h.example.com",
        "className": "nginx",
        "tlsSecret": "h",
        "annotations": {"a/b": "c"},
    }
    objects = render(laid_over(POD, {"dashboard": {"ingress": ingress_values}}))
    ingress, service = find(objects, "Ingress", "halcyon-dashboard"), find(objects, "Service")

    assert ingress["metadata"]["annotations"] == {"a/b": "c"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["h.example.com"], "secretName": "h"}]
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}


def test_a_route_leads_to_the_dashboard() -> None:
    route = {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": ["h.example.com"]}
    objects = render(laid_over(POD, {"dashboard": {"httpRoute": route}}))
    http_route, service = find(objects, "HTTPRoute", "halcyon-dashboard"), find(objects, "Service")

    assert http_route["spec"]["hostnames"] == route["hostnames"]
    (parent,) = http_route["spec"]["parentRefs"]
    assert route["parentRefs"][0].items() <= parent.items()
    (backend,) = http_route["spec"]["rules"][0]["backendRefs"]
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dashboard": {"ingress": {"enabled": True, "host": "h"}}}, "set dashboard.listen=pod"),
        ({"dashboard": {"httpRoute": {"parentRefs": [{"name": "edge"}]}}}, "set dashboard.listen=pod"),
        ({"dashboard": {"listen": "pod", "ingress": {"enabled": True}}}, "dashboard.ingress.host is empty"),
    ],
)
def test_a_route_to_nothing_is_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(laid_over(LOCAL, values))


def test_the_operators_volume_keeps_no_autoscaler_from_removing_a_node() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    template = find(render(), "Deployment")["spec"]["template"]
    local = [v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v]
    assert template["metadata"]["annotations"][key].split(",") == local
    # The site's own annotations take precedence.
    chosen = find(render({"podAnnotations": {key: "none", "team": "ml"}}), "Deployment")["spec"]["template"]
    assert chosen["metadata"]["annotations"] == {key: "none", "team": "ml"}
