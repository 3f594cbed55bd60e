"""charts/halcyon as Helm renders it: valid objects, restricted pods, and every value where it belongs.

Elsewhere: rights (test_rights), values that are refused (test_values), a real API server (test_installation).
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from generators.monitoring.alert import THRESHOLDS
from halcyon.api.types import quantity
from halcyon.control.runtime import settings
from tests.integration.charts import (
    API_SERVICE,
    BATCH_CRD_NAME,
    CHART,
    CRD_NAME,
    CRDS_CHART,
    DIGEST,
    EVERYTHING,
    LITTLE,
    LOCAL,
    MONITORING,
    ROOT,
    SETS,
    Values,
    arguments,
    find,
    helm,
    laid_over,
    names,
    pod,
    render,
    rules,
)

KUBERNETES = ("1.31", "1.36")
"""The oldest and the newest that are supported."""


@pytest.mark.parametrize("name", SETS)
def test_lint_has_no_complaint(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), values=laid_over(LOCAL, SETS[name]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_for_the_versions_we_support(name: str, version: str) -> None:
    objects = render(SETS[name], flags=("--kube-version", version))
    known = [o for o in objects if o["apiVersion"] not in {MONITORING, "serving.halcyon.dev/v1alpha1"}]
    assert len(known) > 3
    for obj in known:
        kubernetes_validate.validate(obj, version, strict=True)


@pytest.mark.parametrize("chart", [CHART, CRDS_CHART], ids=lambda chart: chart.name)
def test_an_older_kubernetes_is_refused_with_what_is_needed(chart: Path) -> None:
    done = helm("template", "halcyon", str(chart), "--kube-version", "1.30.9")
    assert done.returncode != 0
    assert "requires kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.30.9" in done.stderr


def test_defaults_render_exactly_these_objects() -> None:
    assert sorted((o["kind"], o["metadata"]["name"]) for o in render()) == [
        ("APIService", API_SERVICE),
        ("ClusterRole", "halcyon"),
        ("ClusterRole", "halcyon-edit"),
        ("ClusterRole", "halcyon-metrics-reader"),
        ("ClusterRole", "halcyon-view"),
        ("ClusterRoleBinding", "halcyon"),
        ("CustomResourceDefinition", BATCH_CRD_NAME),
        ("CustomResourceDefinition", CRD_NAME),
        ("Deployment", "halcyon"),
        ("PodDisruptionBudget", "halcyon"),
        ("PriorityClass", "halcyon-bench"),
        ("Role", "halcyon"),
        ("Role", "halcyon-lease"),
        ("RoleBinding", "halcyon"),
        ("RoleBinding", "halcyon-front-proxy"),
        ("RoleBinding", "halcyon-lease"),
        ("Secret", "halcyon-tls"),
        ("Service", "halcyon"),
        ("Service", "halcyon-agents"),
        ("ServiceAccount", "halcyon"),
    ]


def test_objects_of_disabled_parts_are_not_rendered() -> None:
    kinds = {o["kind"] for o in render(LITTLE)}
    assert kinds == {"Deployment", "Secret", "Service"}
    assert pod(render(LITTLE))["serviceAccountName"] == "given"


@pytest.mark.parametrize(
    ("release", "override", "name"),
    [
        ("halcyon", "", "halcyon"),
        ("my-halcyon", "", "my-halcyon"),
        ("prod", "", "prod-halcyon"),
        ("prod", "serving", "serving"),
        ("r" * 32, "", "r" * 32 + "-halcyon"),
        ("r" * 53, "", "r" * 31 + "-" + hashlib.sha256(b"r" * 53 + b"-halcyon").hexdigest()[:8]),
    ],
)
def test_names_follow_the_release(release: str, override: str, name: str) -> None:
    objects = render({"fullnameOverride": override}, release=release, namespace="ml")
    for obj in objects:
        assert len(obj["metadata"]["name"]) <= 63
        assert obj["metadata"]["name"].startswith(name) or obj["metadata"]["name"] in {
            BATCH_CRD_NAME,
            CRD_NAME,
            API_SERVICE,
        }
        assert obj["metadata"].get("namespace", "ml") in {"ml", "kube-system"}
    arguments = pod(objects, name)["containers"][0]["args"]
    assert {f"--service={name}", f"--agents-service={name}-agents", f"--tls-secret={name}-tls"} <= set(arguments)
    assert {f"--lease={name}", f"--memory-config-maps={name}-memory"} <= set(arguments)
    assert find(objects, "APIService", API_SERVICE)["spec"]["service"] == {"name": name, "namespace": "ml", "port": 443}
    assert {f"{name}", f"{name}-agents"} == names(objects, "Service")
    secret_rules = [r for _, r in rules(objects) if "secrets" in r["resources"]]
    assert [r["resourceNames"] for r in secret_rules] == [[f"{name}-tls"]]


@pytest.mark.parametrize("word", ["123", "12e4", "0x1f", "true"])
def test_names_that_yaml_takes_for_numbers_stay_texts(word: str) -> None:
    """Such as namespaces and releases that are named after a commit."""
    values = laid_over(EVERYTHING, {"fullnameOverride": "halcyon", "metricsAPI": {"register": False}})
    for watched in ({}, {"watchNamespaces": [word]}):
        for obj in render(laid_over(values, watched), release=word, namespace=word, flags=()):
            meta = obj["metadata"]
            assert meta.get("namespace", word) in {word, "kube-system"}, obj["kind"]
            assert meta.get("labels", {}).get("app.kubernetes.io/instance", word) == word, obj["kind"]
            assert [subject.get("namespace", word) for subject in obj.get("subjects", ())] in ([], [word]), obj["kind"]
    done = helm("template", word, str(CRDS_CHART))
    labels = [d["metadata"]["labels"] for d in yaml.safe_load_all(done.stdout) if d]
    assert {labels_of_crd["app.kubernetes.io/instance"] for labels_of_crd in labels} == {word}


@pytest.mark.parametrize(
    ("release", "name"), [("2026", "2026-halcyon"), ("my.halcyon", "my.halcyon"), ("a.b", "a.b-halcyon")]
)
def test_a_release_whose_name_no_service_can_have_is_refused(release: str, name: str) -> None:
    done = helm("template", release, str(CHART), values=LOCAL)
    assert f"the release is named {release}, so its objects would be named {name}, but" in done.stderr
    assert done.returncode != 0
    assert helm("template", release, str(CHART), values=laid_over(LOCAL, {"fullnameOverride": "ml"})).returncode == 0


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_two_releases_in_one_namespace_have_no_object_in_common(values: Values) -> None:
    """Each for models of other namespaces; what the operators make themselves is named by their arguments."""
    shared: Values = {"metricsAPI": {"register": False}, "serviceAccount": {"name": ""}, "extraObjects": []}
    beside = ("halcyon", {}), ("prod", {"crds": {"install": False}})
    releases = [
        render(
            laid_over(values, {**shared, **more, "watchNamespaces": [f"models-of-{release}"]}),
            release=release,
            flags=(),
        )
        for release, more in beside
    ]
    keys = [
        {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects} for objects in releases
    ]
    assert not keys[0] & keys[1]
    operators = [pod(releases[0]), pod(releases[1], "prod-halcyon")]
    named = ("--service=", "--agents-service=", "--tls-secret=", "--lease=", "--memory-config-maps=")
    exclusive = [
        {arg for arg in operator["containers"][0]["args"] if arg.startswith(named)} | {operator["serviceAccountName"]}
        for operator in operators
    ]
    assert [len(names) for names in exclusive] == [len(named) + 1] * 2
    assert not exclusive[0] & exclusive[1]
    pods = [find(releases[0], "Deployment"), find(releases[1], "Deployment", "prod-halcyon")]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in pods]
    for own, of_other in ((releases[0], labels[1]), (releases[1], labels[0])):
        selectors = [o["spec"]["selector"] for o in own if o["kind"] == "Service"]
        assert selectors
        assert not [selector for selector in selectors if selector.items() <= of_other.items()]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_services_select_the_pods_and_reach_their_ports(values: Values) -> None:
    objects = render(values)
    assert {"halcyon", "halcyon-agents"} <= names(objects, "Service")
    template = find(objects, "Deployment")["spec"]["template"]
    ports = {p["name"]: p["containerPort"] for p in template["spec"]["containers"][0]["ports"]}
    metrics_api, agents = find(objects, "Service")["spec"], find(objects, "Service", "halcyon-agents")["spec"]
    for spec in (metrics_api, agents):
        assert spec["selector"].items() <= template["metadata"]["labels"].items()
    assert [(p["port"], ports[p["targetPort"]]) for p in metrics_api["ports"]] == [(443, ports["https"])]
    # A headless Service maps no port.
    assert [p["port"] for p in agents["ports"]] == [ports["https"]]
    assert agents["clusterIP"] == "None"
    # A new replica is ready only once it has heard the agents, so they have to find it before that.
    assert agents["publishNotReadyAddresses"] is True


def test_selectors_hold_only_name_and_instance_so_that_upgrades_can_change_labels() -> None:
    objects = render(EVERYTHING)
    expected = {"app.kubernetes.io/name": "halcyon", "app.kubernetes.io/instance": "halcyon"}
    assert find(objects, "Deployment")["spec"]["selector"]["matchLabels"] == expected
    assert find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == expected


def test_every_object_has_the_recommended_labels() -> None:
    for obj in render():
        assert {
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/version",
            "app.kubernetes.io/managed-by",
            "helm.sh/chart",
        } <= obj["metadata"]["labels"].keys(), obj["kind"]


@pytest.mark.parametrize("values", [{}, LITTLE], ids=["defaults", "little"])
def test_pods_meet_the_restricted_standard_and_more(values: Values) -> None:
    spec = pod(render(values))
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all("hostPort" not in port for port in container["ports"])
        assert container["resources"]["limits"].keys() == {"memory"}
    assert all(volume.keys() <= {"name", "emptyDir"} for volume in spec["volumes"])
    assert spec["enableServiceLinks"] is False


MIB = 2**20


def memory(values: Values) -> tuple[int, int]:
    """Request and limit of the operator, in MiB."""
    (container,) = pod(render(values))["containers"]
    request, limit = (quantity(container["resources"][part]["memory"]) for part in ("requests", "limits"))
    return int(request / MIB), int(limit / MIB)


def measured() -> dict[int, float]:
    """MiB of the operator by the number of models, as the bench wrote it."""
    page = (
        (ROOT / "docs/benchmarks/reaction.md")
        .read_text()
        .partition("\n## Among many models\n")[2]
        .partition("\n## ")[0]
    )
    head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]
    return {int(row[1].partition(" models")[0]): float(row[head.index("MiB")]) for row in rows}


def test_memory_is_enough_for_as_many_models_as_are_expected() -> None:
    measurements = measured()
    assert len(measurements) > 1
    for models, mib in measurements.items():
        request, limit = memory({"expectedModels": models})
        # The bench has one stream a model; the second one's 280 KiB are in the request.
        assert request >= mib + models * 280 / 1024, models
        assert request < THRESHOLDS["memoryRatio"] * limit, "what is expected raises no alert"


def test_200_models_are_expected_and_cpu_is_not_limited() -> None:
    (container,) = pod(render())["containers"]
    assert memory({}) == memory({"expectedModels": 200})
    assert container["resources"].keys() == {"requests", "limits"}
    assert container["resources"]["requests"]["cpu"] == "100m"
    assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"memory": "1Gi"}},
        {"requests": {"memory": "64Mi"}},
        {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "cpu": 4}},
    ],
    ids=str,
)
def test_memory_that_is_given_replaces_what_would_be_calculated(resources: Values) -> None:
    (container,) = pod(render({"expectedModels": 1000, "resources": resources}))["containers"]
    assert container["resources"] == laid_over({"requests": {"cpu": "100m"}}, resources)


def test_the_page_on_memory_has_the_charts_own_figures() -> None:
    page = (ROOT / "docs/guides/install.md").read_text()
    rows = re.findall(r"^\| (\d+)(?: \(default\))? \| (\d+)Mi \| (\d+)Mi \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for models, request, limit in rows:
        assert memory({"expectedModels": int(models)}) == (int(request), int(limit))


def test_one_replica_can_be_lost_and_none_is_missing_in_an_upgrade() -> None:
    objects = render()
    spec = find(objects, "Deployment")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert find(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    soft = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert soft.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert [c["whenUnsatisfiable"] for c in spec["template"]["spec"]["topologySpreadConstraints"]] == ["ScheduleAnyway"]


def test_probes_ask_the_plain_port() -> None:
    (container,) = pod(render())["containers"]
    probes = {p: container[p]["httpGet"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {
        "startupProbe": {"path": "/healthz", "port": "http"},
        "livenessProbe": {"path": "/healthz", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }


def test_arguments_name_what_the_operator_makes_objects_from() -> None:
    (container,) = pod(render())["containers"]
    assert container["image"] == "localhost/halcyon-operator:dev"
    assert container["args"] == [
        "operator",
        "--namespace=$(POD_NAMESPACE)",
        "--pod-name=$(POD_NAME)",
        "--service=halcyon",
        "--agents-service=halcyon-agents",
        "--lease=halcyon",
        "--memory-config-maps=halcyon-memory",
        "--operator-image=localhost/halcyon-operator:dev",
        "--balancer-image=localhost/halcyon-balancer:dev",
        "--server-image=nvcr.io/nvidia/tritonserver:26.07-py3",
        "--bench-image=localhost/halcyon-bench:dev",
        "--bench-priority-class=halcyon-bench",
        "--tls-secret=halcyon-tls",
        "--log-level=info",
        "--dashboard=localhost",
    ]
    paths = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]}
    assert paths == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}


@pytest.mark.parametrize("values", [{}, EVERYTHING, LITTLE], ids=["defaults", "everything", "little"])
def test_the_operator_takes_the_arguments(values: Values) -> None:
    (container,) = pod(render(values))["containers"]
    command, *arguments = container["args"]
    assert command == "operator"
    parser = argparse.ArgumentParser(exit_on_error=False)
    settings.add_arguments(parser)
    chosen = parser.parse_args(arguments)
    assert chosen.port == container["ports"][0]["containerPort"]
    assert chosen.http_port == container["ports"][1]["containerPort"]


def test_a_gpu_budget_reaches_the_operator_and_0_is_one() -> None:
    for budget in (None, 0, 64):
        assert arguments(pod(render({"gpuBudget": budget}))).gpu_budget == budget


def test_the_placement_of_balancers_reaches_the_operator_and_is_empty_by_default() -> None:
    assert "--balancer-placement" not in str(pod(render())["containers"][0]["args"])
    assert arguments(pod(render(EVERYTHING))).balancers.to_dict() == EVERYTHING["balancers"]
    balancers = arguments(pod(render({"balancers": {"nodeSelector": {"pool": "edge"}}}))).balancers
    assert balancers.to_dict() == {"nodeSelector": {"pool": "edge"}}


def test_a_prometheus_reaches_the_operator_as_it_was_written() -> None:
    spec = pod(render(EVERYTHING))
    (container,) = spec["containers"]
    chosen = arguments(spec)
    prometheus = EVERYTHING["prometheus"]

    assert chosen.prometheus_url == prometheus["url"]
    assert chosen.prometheus_gpu_matchers == prometheus["gpuMatchers"]
    assert chosen.prometheus_arrivals == prometheus["arrivals"]
    files = {}
    volumes = {v.pop("name"): v for v in json.loads(json.dumps(spec["volumes"]))}
    for mount in container["volumeMounts"]:
        (source,) = volumes[mount["name"]].values()
        for item in source.get("items", ()):
            assert mount["readOnly"] is True
            # A mount of one file would never see the Secret change.
            assert "subPath" not in mount
            files[f"{mount['mountPath']}/{item['path']}"] = (source.get("secretName") or source["name"], item["key"])
    assert files == {
        chosen.prometheus_token_file: ("prometheus", "bearer"),
        chosen.prometheus_ca_file: ("corporate", "bundle.pem"),
    }


def test_the_ca_may_come_from_a_secret() -> None:
    spec = pod(render({"prometheus": {"url": "https://p:9090", "caSecret": {"name": "tls"}}}))
    (volume,) = [v for v in spec["volumes"] if v["name"] == "prometheus-ca"]
    assert volume["secret"] == {"secretName": "tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert "--prometheus-ca-file=/etc/halcyon/prometheus-ca/ca.crt" in spec["containers"][0]["args"]
    assert not [a for a in spec["containers"][0]["args"] if a.startswith("--prometheus-token-file")]


def test_a_prometheus_needs_no_other_rights() -> None:
    assert rules(render()) == rules(render({"prometheus": {"url": "http://p:9090", "tokenSecret": {"name": "t"}}}))


def test_a_digest_wins_over_the_tag() -> None:
    (container,) = pod(render(EVERYTHING))["containers"]
    assert container["image"] == f"registry.example.com:5000/ml/operator@{DIGEST}"
    # Its own registry wins over that of all.
    assert f"--server-image=mirror.example.com/ml/triton@{DIGEST}" in container["args"]


def test_every_value_reaches_the_pod() -> None:
    objects = render(EVERYTHING)
    template = find(objects, "Deployment")["spec"]["template"]
    spec = template["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "--image-pull-secret=registry" in spec["containers"][0]["args"]
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["nodeSelector"] == {"pool": "system", "kubernetes.io/os": "linux"}
    assert (spec["tolerations"], spec["affinity"]) == (EVERYTHING["tolerations"], EVERYTHING["affinity"])
    assert spec["topologySpreadConstraints"] == EVERYTHING["topologySpreadConstraints"]
    assert template["metadata"]["annotations"]["example.com/note"] == "1"
    assert template["metadata"]["labels"]["team"] == "ml"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "halcyon"
    (container,) = spec["containers"]
    assert {"--port=10260", "--http-port=8081", "--log-level=debug", "--workers=32"} <= set(container["args"])
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
    assert container["startupProbe"]["failureThreshold"] == 24
    for name in ("halcyon", "halcyon-agents", "halcyon-metrics"):
        service = find(objects, "Service", name)["metadata"]
        assert service["annotations"] == {"example.com/note": "2"}
        assert (service["labels"]["team"], service["labels"]["app.kubernetes.io/name"]) == ("ml", "halcyon")
    assert find(objects, "ConfigMap", "extra")["data"] == {"in": "halcyon-system"}
    assert find(objects, "ServiceAccount", "runner")["metadata"]["annotations"] == {"example.com/identity": "halcyon"}
    assert find(objects, "ClusterRoleBinding")["subjects"][0]["name"] == "runner"
    # In the node's network a new pod may have to wait for the old one's port.
    assert find(objects, "Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("register", ["auto", True, False])
def test_the_metrics_api_is_registered_as_configured(register: object) -> None:
    objects = render({"metricsAPI": {"register": register}})
    registers = register is not False
    assert (API_SERVICE in names(objects, "APIService")) == registers
    granted = [r for _, r in rules(objects) if "apiservices" in r["resources"]]
    expected = {
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "resourceNames": [API_SERVICE],
        "verbs": ["get", "patch"] if registers else ["get"],
    }
    assert granted == [expected]


def test_no_template_names_a_field_that_the_operator_writes() -> None:
    objects = render()
    assert find(objects, "APIService", API_SERVICE)["spec"] == {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": "halcyon", "namespace": "halcyon-system", "port": 443},
    }
    assert not {"data", "stringData", "immutable"} & find(objects, "Secret", "halcyon-tls").keys()
