"""The dashboard in the chart: who can reach it, by what is rendered."""

import pytest
import yaml

from tests.integration.charts import CHART, LOCAL, Values, find, helm, laid_over, pod, render

pytestmark = pytest.mark.more

SERVED: Values = {
    "dashboard": {"listen": "pod", "proxy": {"addresses": ["10.0.12.0/24", "fd00::/8"]}},
    "networkPolicies": {"operator": {"create": True}},
}


def options(values: Values) -> set[str]:
    """Of the dashboard."""
    return {argument for argument in pod(render(values))["containers"][0]["args"] if argument.startswith("--dashboard")}


def ports(values: Values) -> set[str]:
    """What a NetworkPolicy lets in."""
    policy = find(render(values), "NetworkPolicy")
    return {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def test_the_dashboard_is_on_localhost_by_default_and_reached_by_no_network() -> None:
    assert options({}) == {"--dashboard=localhost"}
    objects = render({"networkPolicies": {"operator": {"create": True}}})
    assert [port["name"] for port in pod(objects)["containers"][0]["ports"]] == ["https", "http"]
    assert [port["name"] for port in find(objects, "Service")["spec"]["ports"]] == ["https"]
    assert "dashboard" not in ports({"networkPolicies": {"operator": {"create": True}}})


def test_a_dashboard_for_users_has_a_port_service_and_policy() -> None:
    assert options(SERVED) == {
        "--dashboard=pod",
        "--dashboard-proxy=10.0.12.0/24",
        "--dashboard-proxy=fd00::/8",
        "--dashboard-user-header=X-Forwarded-User",
        "--dashboard-groups-header=X-Forwarded-Groups",
    }
    objects = render(SERVED)
    named = {port["name"]: port["containerPort"] for port in pod(objects)["containers"][0]["ports"]}
    assert named["dashboard"] == 8090
    service = {port["name"]: port for port in find(objects, "Service")["spec"]["ports"]}
    assert service["dashboard"] == {
        "name": "dashboard",
        "port": 8443,
        "targetPort": "dashboard",
        "appProtocol": "https",
    }
    assert "dashboard" in ports(SERVED)


def test_links_of_the_site_are_passed_on() -> None:
    links = {"grafana": "https://grafana.example.com", "runbooks": "https://docs.example.com/runbooks"}
    assert options({"dashboard": {"links": links}}) == {
        "--dashboard=localhost",
        "--dashboard-grafana=https://grafana.example.com",
        "--dashboard-runbooks=https://docs.example.com/runbooks",
    }


def test_queries_of_prometheus_know_the_cluster_without_a_dashboard() -> None:
    off = {"clusterName": "prod-eu-1", "dashboard": {"enabled": False}}
    assert "--dashboard-cluster=prod-eu-1" not in options(off)
    assert "--dashboard-cluster=prod-eu-1" in options(off | {"prometheus": {"url": "http://prometheus:9090"}})


def test_the_clusters_name_is_a_label_of_series_and_alerts() -> None:
    assert options({"clusterName": "prod-eu-1"}) == {"--dashboard=localhost", "--dashboard-cluster=prod-eu-1"}
    created = {"create": True}
    monitoring = {"serviceMonitor": created, "podMonitors": created, "prometheusRule": created}
    objects = render({"clusterName": "prod-eu-1", "monitoring": monitoring})
    label = {"action": "replace", "targetLabel": "cluster", "replacement": "prod-eu-1"}
    endpoints = [
        endpoint
        for obj in objects
        if obj["kind"] in {"ServiceMonitor", "PodMonitor"}
        for endpoint in obj["spec"].get("endpoints", []) + obj["spec"].get("podMetricsEndpoints", [])
    ]
    assert len(endpoints) == 4
    assert [endpoint["relabelings"][-1] for endpoint in endpoints] == [label] * 4
    rules = [rule for group in find(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert {rule["labels"]["cluster"] for rule in rules} == {'{{ or $labels.cluster "prod-eu-1" }}'}
    unnamed = yaml.safe_dump_all(render({"monitoring": monitoring}))
    assert "targetLabel: cluster" not in unnamed


@pytest.mark.parametrize(
    "values", [{"dashboard": {"enabled": False}}, {"hostNetwork": True, "ports": {"https": 10260}}], ids=["off", "host"]
)
def test_the_dashboard_is_not_served_if_disabled_or_on_the_nodes_localhost(values: Values) -> None:
    assert options(values) == set()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ports": {"dashboard": 8080}}, "ports.dashboard is 8080, which is also ports.https or ports.http"),
        ({"dashboard": {"proxy": {"addresses": ["10.0.0.0/8"]}}}, "set dashboard.listen=pod"),
        ({"dashboard": {"links": {"grafana": "javascript:alert(1)"}}}, "/dashboard/links/grafana"),
        ({"dashboard": {"listen": "everywhere"}}, "/dashboard/listen"),
        ({"dashboard": {"proxy": {"addresses": ["10.0.0.1"]}}}, "/dashboard/proxy/addresses/0"),
    ],
)
def test_values_that_cannot_work_are_refused(values: Values, message: str) -> None:
    done = helm("template", "halcyon", str(CHART), values=laid_over(LOCAL, values))
    assert done.returncode != 0
    assert message in done.stderr
