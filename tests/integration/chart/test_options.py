"""Parts of the charts that are switched on and off: the CRD, notes, `helm test`, monitoring, NetworkPolicies."""

import json
import re
from pathlib import Path

import pytest
import yaml

from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.python_rules import PolicySubject
from halcyon.api.policy.rules import refusals
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec.parse import parse
from halcyon.monitoring import per_model_metrics
from halcyon.render import names as names_of
from halcyon_cli.bench.place import client_job, site
from tests.integration.charts import (
    BATCH_CRD,
    BATCH_CRD_NAME,
    CHART,
    CRD,
    CRD_NAME,
    CRDS_CHART,
    EVERYTHING,
    LITTLE,
    LOCAL,
    MONITORING,
    NAMESPACED,
    Values,
    find,
    helm,
    laid_over,
    names,
    pod,
    render,
)

pytestmark = pytest.mark.more

CRD_KIND = "CustomResourceDefinition"


@pytest.mark.parametrize(
    ("file", "crd", "name"), [("crd.yaml", CRD, CRD_NAME), ("batch-crd.yaml", BATCH_CRD, BATCH_CRD_NAME)]
)
@pytest.mark.parametrize("chart", [CHART, CRDS_CHART], ids=lambda chart: chart.name)
def test_both_charts_bring_the_generated_crds_unchanged_and_keep_them(
    chart: Path, file: str, crd: Path, name: str
) -> None:
    assert (chart / "files" / file).read_text() == crd.read_text(), "run make crds"
    done = helm("template", "halcyon", str(chart), values=LOCAL if chart is CHART else {})
    rendered = json.loads(json.dumps(find([d for d in yaml.safe_load_all(done.stdout) if d], CRD_KIND, name)))
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    rendered["metadata"].pop("labels")
    assert rendered == yaml.safe_load(crd.read_text())


def notes(values: Values) -> str:
    # Helm shows notes only for an install; a client-side one needs no cluster.
    args = ("install", "halcyon", str(CHART), "--dry-run=client", "--namespace", "ml")
    return helm(*args, values=laid_over(LOCAL, values)).stdout.partition("NOTES:")[2]


def test_notes_say_the_next_step_the_scaler_and_missing_parts() -> None:
    text = notes({})
    assert "kubectl -n ml rollout status deployment/halcyon" in text
    assert "helm -n ml test halcyon" in text
    assert "actuator HPA" in text
    assert "- the Prometheus Operator" in text
    assert "- the CRD" not in text

    text = notes(LITTLE)
    assert "metricsAPI.register is false. Halcyon scales models itself (actuator Direct)" in text
    assert "- the CRD modeldeployments.serving.halcyon.dev" in text
    assert "- roles for the ServiceAccount ml/given" in text
    assert "- a second operator pod" in text

    text = notes(NAMESPACED)
    assert "the namespaces team-a, team-b" in text
    assert "actuator Direct" in text


def test_without_a_registry_the_chart_says_how_to_get_one() -> None:
    done = helm("template", "halcyon", str(CHART), values={})
    assert done.returncode != 0
    assert "make images push REGISTRY=registry.example.com/halcyon" in done.stderr
    assert "--set images.registry=localhost" in done.stderr


def test_the_test_of_a_release_needs_no_rights_and_goes_on_success() -> None:
    # The operator's NetworkPolicy of NAMESPACED brings one for the asking pod.
    policy = ("NetworkPolicy", "halcyon-test-ask", "halcyon-system")
    for values, namespace, more in (({}, "halcyon-system", set()), (NAMESPACED, "team-a", {policy})):
        hooks = [o for o in render(values, flags=()) if "helm.sh/hook" in (o["metadata"].get("annotations") or {})]
        assert {(o["kind"], o["metadata"]["name"], o["metadata"]["namespace"]) for o in hooks} == more | {
            ("ConfigMap", "halcyon-test", namespace),
            ("ModelDeployment", "halcyon-test", namespace),
            # `helm test --logs` looks for pods in the release's namespace alone.
            ("ConfigMap", "halcyon-test-ask", "halcyon-system"),
            ("Pod", "halcyon-test-ask", "halcyon-system"),
        }
        for obj in hooks:
            annotations = obj["metadata"]["annotations"]
            assert annotations["helm.sh/hook"] == "test"
            assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        asking = find(hooks, "Pod", "halcyon-test-ask")["spec"]
        assert asking["automountServiceAccountToken"] is False
        assert (
            f"http://halcyon-test.{namespace}.svc:8000/v2/models/halcyon-test/infer" in asking["containers"][0]["args"]
        )
        # Helm waits for 5 minutes by default, counted from the creation of the pod.
        assert int(asking["containers"][0]["args"][1]) <= 290
        assert asking["containers"][0]["image"] == "localhost/halcyon-operator:dev"
        model = find(hooks, "ModelDeployment", "halcyon-test")["spec"]
        # The operator's own default is images.triton, which a site policy never rejects.
        assert parse("halcyon-test", model).runtime.image is None
        files = find(hooks, "ConfigMap", "halcyon-test")["data"]
        assert {item["key"] for item in model["model"]["source"]["configMap"]["items"]} == files.keys()
    model = find(render(EVERYTHING, flags=()), "ModelDeployment", "halcyon-test")["spec"]
    assert model["runtime"]["image"] == "localhost/tiny:1"


def test_the_tested_model_complies_with_limits_on_images() -> None:
    images = SitePolicy.from_json(
        '{"images": {"registries": ["registry.example.com/ml"], "pinned": "Digest"}, "triton": {"refuseBelow": "30.01"}}'
    )
    values = laid_over(NAMESPACED, {"sitePolicy": images.to_dict()})
    model = find(render(values, flags=()), "ModelDeployment", "halcyon-test")
    spec = parse("halcyon-test", model["spec"])
    assert refusals(PolicySubject(spec, model["metadata"]["namespace"], images)) == []


def test_the_priority_of_measurements_stays_an_integer() -> None:
    """Helm reads numbers of a million and more as floating-point numbers, and would write -1e+06."""
    for value in (-2147483648, -1000000, 1000000000):
        priority_class = find(render({"bench": {"priorityClass": {"value": value}}}), "PriorityClass", "halcyon-bench")
        assert priority_class["value"] == value


def test_notes_name_receivers_that_the_network_policy_excludes() -> None:
    url, endpoint = "http://prometheus.monitoring:9090", "http://collector.observability:4318/v1/traces"
    values: Values = {"prometheus": {"url": url}, "tracing": {"endpoint": endpoint}}
    assert "egress" not in notes(values)
    operator: Values = {"create": True}
    closed = notes(values | {"networkPolicies": {"operator": operator}})
    assert f"- an egress rule for {url}: " in closed
    assert f"- an egress rule for {endpoint}: " in closed
    operator["egress"] = [{"ports": [{"port": 9090}]}]
    assert "egress" not in notes(values | {"networkPolicies": {"operator": operator}})


def test_objects_of_the_prometheus_operator_come_with_its_api_or_when_forced() -> None:
    kinds = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert not kinds & {o["kind"] for o in render()}
    objects = render(flags=("--api-versions", MONITORING))
    assert kinds <= {o["kind"] for o in objects}
    off = {name: {"create": False} for name in ("serviceMonitor", "podMonitors", "prometheusRule")}
    assert not kinds & {o["kind"] for o in render({"monitoring": off}, flags=("--api-versions", MONITORING))}
    forced = render(EVERYTHING)
    assert kinds <= {o["kind"] for o in forced}
    assert find(forced, "ServiceMonitor")["metadata"]["labels"]["release"] == "prometheus"

    service = find(objects, "Service", "halcyon-metrics")
    monitor = find(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    # Neither of the two others: each pod would be read twice.
    for other in ("halcyon", "halcyon-agents"):
        assert (
            not monitor["selector"]["matchLabels"].items()
            <= find(objects, "Service", other)["metadata"]["labels"].items()
        )
    assert [e["port"] for e in monitor["endpoints"]] == [p["name"] for p in service["spec"]["ports"]]


def test_carbon_intensity_is_where_the_command_line_reads_it() -> None:
    annotations = find(render({"cost": {"carbonIntensity": 0.5}}), "Deployment")["metadata"]["annotations"]
    assert annotations[site.CARBON_ANNOTATION] == "0.5"
    assert site.CARBON_ANNOTATION not in find(render(), "Deployment")["metadata"].get("annotations", {})
    none = find(render({"cost": {"carbonIntensity": 0}}), "Deployment")["metadata"]["annotations"]
    assert none[site.CARBON_ANNOTATION] == "0"


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster", "namespaced"])
def test_pod_monitors_pick_the_pods_that_the_operator_makes(values: Values) -> None:
    objects = render(laid_over(values, {"monitoring": {"podMonitors": {"create": True}}}))
    for component in (names_of.BALANCER, names_of.SERVER):
        spec = find(objects, "PodMonitor", f"halcyon-{component}s")["spec"]
        labels = names_of.labels("m", component)
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        ports = ["metrics", "agent"] if component == names_of.BALANCER else ["metrics"]
        assert [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]] == ports
        for endpoint in spec["podMetricsEndpoints"]:
            [relabeling] = endpoint["relabelings"]
            [source] = relabeling["sourceLabels"]
            assert source.removeprefix("__meta_kubernetes_pod_label_") == re.sub(r"[./-]", "_", names_of.OWNER_LABEL)
            assert relabeling["targetLabel"] in per_model_metrics.OF
        assert spec["namespaceSelector"] == (
            {"matchNames": ["team-a", "team-b"]} if values is NAMESPACED else {"any": True}
        )


def test_network_policies_are_off_by_default_and_cover_the_operators_needs() -> None:
    assert names(render(), "NetworkPolicy") == set()
    assert "--network-policies" not in str(pod(render())["containers"][0]["args"])
    objects = render(NAMESPACED)
    (operator,) = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]
    template = find(objects, "Deployment")["spec"]["template"]
    assert operator["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert {port["port"] for rule in operator["ingress"] for port in rule["ports"]} == {"https", "http"}
    assert {"ports": [{"port": 9090}]} in operator["egress"]


def peers_of_models(values: Values) -> SiteNetwork:
    """As the operator reads them."""
    (option,) = [a for a in pod(render(values))["containers"][0]["args"] if a.startswith("--network-policies=")]
    return SiteNetwork.model_validate_json(option.partition("=")[2].replace("$$", "$"))


def test_the_operator_receives_the_peers_of_models_network_policies() -> None:
    alone = peers_of_models({"networkPolicies": {"models": {"create": True}}})
    (operator,) = alone.operator
    labels = find(render(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert operator["podSelector"]["matchLabels"].items() <= labels.items()
    assert operator["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "halcyon-system"}
    assert (alone.clients, alone.scrapers, alone.egress, alone.api_server_ports) == ((), (), (), (443, 6443))

    everything = peers_of_models(EVERYTHING)
    peers = EVERYTHING["networkPolicies"]["models"]
    assert list(everything.operator) == peers["operator"]
    assert list(everything.scrapers) == peers["scrapers"]
    assert list(everything.egress) == peers["egress"]
    # Where clients are named, the pod of `helm test` is one of them, and so are those of `halcyon bench` in a model's namespace.
    *clients, asks, bench = everything.clients
    assert bench["podSelector"]["matchLabels"].items() <= client_job.labels("digits").items()
    assert "namespaceSelector" not in bench
    assert clients == peers["clients"]
    asking = next(o for o in render(EVERYTHING, flags=()) if o["kind"] == "Pod")
    assert asks["podSelector"]["matchLabels"].items() <= asking["metadata"]["labels"].items()
    assert asks["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": asking["metadata"]["namespace"]}


def test_images_are_pulled_early_only_if_asked_for() -> None:
    assert not [o for o in render() if o["kind"] == "DaemonSet"]
    values = {"prePull": {"enabled": True, "nodeSelector": {"nvidia.com/gpu.present": "true"}}}
    daemons = find(render(values), "DaemonSet", "halcyon-prepull")
    spec = daemons["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "nvcr.io/nvidia/tritonserver:26.07-py3"
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    labels = daemons["spec"]["template"]["metadata"]["labels"]
    assert daemons["spec"]["selector"]["matchLabels"].items() <= labels.items()
    deployment = find(render(values), "Deployment")["spec"]["selector"]["matchLabels"]
    assert not deployment.items() <= labels.items(), "the operator's Deployment must not adopt them"
