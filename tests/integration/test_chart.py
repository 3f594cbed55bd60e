"""charts/halcyon as Helm renders it: valid objects, restricted pods, least rights, clear refusals.

What needs an API server (lookup, upgrades, aggregation) is not here.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from halcyon.control import settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "halcyon"
CRD = ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml"
HELM = os.environ.get("HALCYON_HELM") or shutil.which("helm")
DIGEST = "sha256:" + "a" * 64
KUBERNETES = ("1.30", "1.35", "1.37")
CRD_NAME = "modeldeployments.serving.halcyon.dev"
API_SERVICE = "v1beta1.external.metrics.k8s.io"

Object = dict[str, Any]
Values = dict[str, Any]

EVERYTHING: Values = {
    "replicas": 3,
    "images": {
        name: {"repository": f"registry.example.com:5000/ml/{name}", "digest": DIGEST}
        for name in ("operator", "balancer", "triton")
    },
    "imagePullSecrets": [{"name": "registry"}],
    "metricsAPI": {"register": True},
    "serviceAccount": {"name": "runner", "annotations": {"example.com/identity": "halcyon"}},
    "logLevel": "debug",
    "ports": {"https": 10260, "http": 8081},
    "hostNetwork": True,
    "resources": {"limits": {"memory": "1Gi"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "podAnnotations": {"example.com/note": "1"},
    "podLabels": {"team": "ml", "app.kubernetes.io/name": "theirs"},
}
LITTLE: Values = {
    "replicas": 1,
    "crds": {"install": False},
    "metricsAPI": {"register": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "given"},
    "podDisruptionBudget": {"create": False},
}
SETS: dict[str, Values] = {"defaults": {}, "everything": EVERYTHING, "little": LITTLE}


def helm(*args: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    if HELM is None:
        pytest.skip("helm is built by make cluster-up; HALCYON_HELM may name another")
    return subprocess.run(
        [HELM, *args, *(("--values", "-") if values is not None else ())],
        input=json.dumps(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )


@cache
def _render(values: str, release: str, namespace: str) -> tuple[Object, ...]:
    done = helm("template", release, str(CHART), "--namespace", namespace, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return tuple(d for d in yaml.safe_load_all(done.stdout) if d)


def render(
    values: Values | None = None, *, release: str = "halcyon", namespace: str = "halcyon-system"
) -> list[Object]:
    return list(_render(json.dumps(values or {}), release, namespace))


def find(objects: list[Object], kind: str, name: str = "halcyon") -> Object:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def names(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def pod(objects: list[Object], name: str = "halcyon") -> Object:
    spec: Object = find(objects, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def rules(objects: list[Object]) -> list[tuple[str, Object]]:
    return [
        (f"{o['kind']} {o['metadata']['name']}", rule)
        for o in objects
        if o["kind"] in {"Role", "ClusterRole"}
        for rule in o["rules"]
    ]


def refusal(values: Values) -> str:
    done = helm("template", "halcyon", str(CHART), values=values)
    assert done.returncode != 0, f"Helm accepts {values}"
    return done.stderr


@pytest.mark.parametrize("name", SETS)
def test_lint_has_no_complaint(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), values=SETS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_for_the_versions_we_support(name: str, version: str) -> None:
    for obj in render(SETS[name]):
        kubernetes_validate.validate(obj, version, strict=True)


def test_defaults_render_exactly_these_objects() -> None:
    assert sorted((o["kind"], o["metadata"]["name"]) for o in render()) == [
        ("APIService", API_SERVICE),
        ("ClusterRole", "halcyon"),
        ("ClusterRole", "halcyon-edit"),
        ("ClusterRole", "halcyon-metrics-reader"),
        ("ClusterRole", "halcyon-view"),
        ("ClusterRoleBinding", "halcyon"),
        ("CustomResourceDefinition", CRD_NAME),
        ("Deployment", "halcyon"),
        ("PodDisruptionBudget", "halcyon"),
        ("Role", "halcyon"),
        ("RoleBinding", "halcyon"),
        ("RoleBinding", "halcyon-front-proxy"),
        ("Secret", "halcyon-tls"),
        ("Service", "halcyon"),
        ("Service", "halcyon-agents"),
        ("ServiceAccount", "halcyon"),
    ]


def test_what_is_switched_off_is_not_rendered() -> None:
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
        ("r" * 53, "", "r" * 32 + "-halcyon"),
    ],
)
def test_names_follow_the_release(release: str, override: str, name: str) -> None:
    objects = render({"fullnameOverride": override}, release=release, namespace="ml")
    for obj in objects:
        assert len(obj["metadata"]["name"]) <= 63
        assert obj["metadata"]["name"].startswith(name) or obj["metadata"]["name"] in {CRD_NAME, API_SERVICE}
        assert obj["metadata"].get("namespace", "ml") in {"ml", "kube-system"}
    arguments = pod(objects, name)["containers"][0]["args"]
    assert {f"--service={name}", f"--agents-service={name}-agents", f"--tls-secret={name}-tls"} <= set(arguments)
    assert find(objects, "APIService", API_SERVICE)["spec"]["service"] == {"name": name, "namespace": "ml", "port": 443}
    assert {f"{name}", f"{name}-agents"} == names(objects, "Service")
    secret_rules = [r for _, r in rules(objects) if "secrets" in r["resources"]]
    assert [r["resourceNames"] for r in secret_rules] == [[f"{name}-tls"]]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_services_select_the_pods_and_reach_their_ports(values: Values) -> None:
    objects = render(values)
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
    asked = {p: container[p]["httpGet"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
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
        "--operator-image=localhost/halcyon-operator:dev",
        "--balancer-image=localhost/halcyon-balancer:dev",
        "--server-image=localhost/tritonserver-cpu:24.10",
        "--tls-secret=halcyon-tls",
        "--log-level=info",
    ]
    paths = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]}
    assert paths == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}


@pytest.mark.parametrize("values", [{}, EVERYTHING, LITTLE], ids=["defaults", "everything", "little"])
def test_the_operator_takes_the_arguments(values: Values) -> None:
    (container,) = pod(render(values))["containers"]
    command, *arguments = container["args"]
    assert command == "operator"
    parser = argparse.ArgumentParser(exit_on_error=False)
    settings.add_arguments(parser)
    taken = parser.parse_args(arguments)
    assert taken.port == container["ports"][0]["containerPort"]
    assert taken.http_port == container["ports"][1]["containerPort"]


def test_a_digest_wins_over_the_tag() -> None:
    (container,) = pod(render(EVERYTHING))["containers"]
    assert container["image"] == f"registry.example.com:5000/ml/operator@{DIGEST}"
    assert f"--server-image=registry.example.com:5000/ml/triton@{DIGEST}" in container["args"]


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
    assert template["metadata"]["annotations"] == {"example.com/note": "1"}
    assert template["metadata"]["labels"]["team"] == "ml"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "halcyon"
    assert {"--port=10260", "--http-port=8081", "--log-level=debug"} <= set(spec["containers"][0]["args"])
    assert find(objects, "ServiceAccount", "runner")["metadata"]["annotations"] == {"example.com/identity": "halcyon"}
    assert find(objects, "ClusterRoleBinding")["subjects"][0]["name"] == "runner"
    # In the node's network a new pod may have to wait for the old one's port.
    assert find(objects, "Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("register", ["auto", True, False])
def test_the_metrics_api_is_registered_as_told(register: object) -> None:
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


def test_no_role_holds_a_wildcard_or_a_dangerous_right() -> None:
    for where, rule in rules(render()):
        held = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not any("*" in item for item in held), f"{where}: {rule}"
        assert not {"escalate", "bind", "impersonate", "nonResourceURLs"} & {*held, *rule}, f"{where}: {rule}"
        writes = {"create", "update", "patch", "delete", "deletecollection"} & set(rule["verbs"])
        if writes:
            assert not {"pods", "pods/exec", "pods/attach", "serviceaccounts/token", "nodes"} & set(rule["resources"])
            assert not any(r.endswith("webhookconfigurations") for r in rule["resources"])
            assert not {"clusterroles", "clusterrolebindings", "customresourcedefinitions"} & set(rule["resources"])


def test_the_operator_may_write_what_its_calls_write_and_nothing_else() -> None:
    """Server-side apply is `patch`, and `create` where there is nothing yet; `update` is a PUT, which it never sends."""
    child = {"create", "patch", "delete"}
    children = {
        ("apps", "deployments"),
        ("apps", "controllerrevisions"),
        ("", "configmaps"),
        ("", "services"),
        ("", "serviceaccounts"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    }
    objects = render()
    granted = {
        (group, resource): set(rule["verbs"]) - {"get", "list", "watch"}
        for rule in (*find(objects, "ClusterRole")["rules"], *find(objects, "Role")["rules"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {what: verbs for what, verbs in granted.items() if verbs} == dict.fromkeys(children, child) | {
        ("serving.halcyon.dev", "modeldeployments/status"): {"patch"},
        ("serving.halcyon.dev", "modeldeployments/scale"): {"patch"},
        ("", "pods/eviction"): {"create"},
        ("events.k8s.io", "events"): {"create"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
        ("apiregistration.k8s.io", "apiservices"): {"patch"},
        ("coordination.k8s.io", "leases"): {"create", "patch"},
        ("", "secrets"): {"patch"},
    }


def test_of_all_secrets_only_the_operators_own_can_be_read() -> None:
    granted = [(where, r) for where, r in rules(render()) if "secrets" in r["resources"]]
    assert granted == [
        (
            "Role halcyon",
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["halcyon-tls"],
                "verbs": ["get", "patch"],
            },
        )
    ]


def test_the_operator_holds_what_it_grants_to_the_agents() -> None:
    """Without it the API server refuses the Role of the balancer's agent, for there is no `escalate`."""
    held = {
        (group, resource, verb)
        for rule in find(render(), "ClusterRole")["rules"]
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    reads = ("get", "list", "watch")
    assert {("", "configmaps", v) for v in reads} | {("discovery.k8s.io", "endpointslices", v) for v in reads} <= held


def test_readers_of_metrics_are_granted_the_lower_case_names_that_clients_send() -> None:
    """client-go lower-cases a resource's name in the path: the HPA asks for `queuedepth` (seen in the audit log)."""
    (rule,) = find(render(), "ClusterRole", "halcyon-metrics-reader")["rules"]
    assert {"queueDepth", "gpuUtilization"} <= set(rule["resources"])
    assert {name.lower() for name in rule["resources"]} <= set(rule["resources"])


def test_users_can_do_what_their_role_says_but_never_write_status() -> None:
    objects = render()
    view, edit = find(objects, "ClusterRole", "halcyon-view"), find(objects, "ClusterRole", "halcyon-edit")
    assert {v for r in view["rules"] for v in r["verbs"]} == {"get", "list", "watch"}
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert all("modeldeployments/status" not in r["resources"] for r in edit["rules"])
    without = names(render({"rbac": {"aggregate": False}}), "ClusterRole")
    assert without == {"halcyon", "halcyon-metrics-reader"}


def test_the_charts_crd_is_the_generated_one() -> None:
    assert (CHART / "files" / "crd.yaml").read_text() == CRD.read_text(), "run make crds"


def test_the_crd_is_rendered_unchanged_and_kept_at_uninstall() -> None:
    rendered = json.loads(json.dumps(find(render(), "CustomResourceDefinition", CRD_NAME)))
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    rendered["metadata"].pop("labels")
    assert rendered == yaml.safe_load((CHART / "files" / "crd.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": 0}, "/replicas"),
        ({"replicas": 11}, "/replicas"),
        ({"replicas": "2"}, "/replicas"),
        ({"images": {"operator": {"tag": 24.10}}}, "/images/operator/tag"),
        ({"images": {"operator": {"tag": "a b"}}}, "/images/operator/tag"),
        ({"images": {"operator": {"digest": "sha256:abc"}}}, "/images/operator/digest"),
        ({"images": {"operator": {"repository": ""}}}, "/images/operator/repository"),
        ({"images": {"operator": {"repository": "example.com/x:tag"}}}, "/images/operator/repository"),
        ({"images": {"operator": {"pullPolicy": "always"}}}, "/images/operator/pullPolicy"),
        ({"images": {"balancer": {"pullPolicy": "Always"}}}, "/images/balancer"),
        ({"images": {"server": {}}}, "/images"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"imagePullSecrets": [{"name": "Registry_1"}]}, "/imagePullSecrets/0/name"),
        ({"fullnameOverride": "Halcyon"}, "/fullnameOverride"),
        ({"fullnameOverride": "h" * 41}, "/fullnameOverride"),
        ({"crds": {"install": "yes"}}, "/crds/install"),
        ({"crds": {"keep": False}}, "/crds"),
        ({"metricsAPI": {"register": "maybe"}}, "/metricsAPI/register"),
        ({"rbac": {"create": None, "scope": "cluster"}}, "/rbac"),
        ({"serviceAccount": {"name": "a/b"}}, "/serviceAccount/name"),
        ({"serviceAccount": {"annotations": {"a": 1}}}, "/serviceAccount/annotations/a"),
        ({"logLevel": "verbose"}, "/logLevel"),
        ({"ports": {"https": 443}}, "/ports/https"),
        ({"ports": {"http": 70000}}, "/ports/http"),
        ({"ports": {"http": 10250}}, "ports.https and ports.http are both 10250"),
        ({"hostNetwork": "on"}, "/hostNetwork"),
        ({"hostNetwork": True}, "for example ports.https=10260"),
        ({"resources": {"limits": {"memory": "256MB"}}}, "/resources/limits/memory"),
        ({"resources": {"claims": []}}, "/resources"),
        ({"podDisruptionBudget": {"minAvailable": 2}}, "/podDisruptionBudget"),
        ({"priorityClassName": "High Priority"}, "/priorityClassName"),
        ({"terminationGracePeriodSeconds": 1}, "/terminationGracePeriodSeconds"),
        ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu"),
        ({"tolerations": [{"effect": "Never"}]}, "/tolerations/0/effect"),
        ({"affinity": {"podAntiAffinty": {}}}, "/affinity"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0"),
        ({"podLabels": {"x": 1}}, "/podLabels/x"),
        ({"serviceAccount": {"create": False}}, "needs serviceAccount.name"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_name(values: Values, told: str) -> None:
    assert told in refusal(values)


def _leaves(schema: Object, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if "properties" not in schema:
        return {path}
    return {leaf for name, part in schema["properties"].items() for leaf in _leaves(part, (*path, name))}


def test_schema_values_and_readme_speak_of_the_same_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    readme = (CHART / "README.md").read_text()
    assert schema["properties"].keys() - {"global"} == defaults.keys()
    for name in defaults:
        assert f"`{name}" in readme, f"README.md says nothing of {name}"
    for section in ("images", "crds", "metricsAPI", "rbac", "serviceAccount", "ports", "podDisruptionBudget"):
        for leaf in _leaves(schema["properties"][section]):
            value = defaults[section]
            for part in leaf:
                value = value[part]
            assert re.search(rf"\.{leaf[-1]}\b", readme), f"README.md says nothing of {section}.{'.'.join(leaf)}"


def test_notes_tell_the_next_step_and_that_the_images_are_placeholders() -> None:
    # Helm shows notes only for an install; a client-side one needs no cluster.
    args = ("install", "halcyon", str(CHART), "--dry-run=client", "--namespace", "ml")
    notes = helm(*args, values={}).stdout.partition("NOTES:")[2]
    assert "kubectl -n ml rollout status deployment/halcyon" in notes
    assert "localhost/halcyon-operator:dev" in notes
    assert "ATTENTION" not in helm(*args, values=EVERYTHING).stdout.partition("NOTES:")[2]
