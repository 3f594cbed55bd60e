"""Values of the chart: what is generated from values.yaml, and what is refused, with which words."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from generators import chart_values
from halcyon_cli.kube.operator_pods import SELECTOR
from tests.integration.charts import (
    CHART,
    EVERYTHING,
    LOCAL,
    NAMESPACED,
    ROOT,
    Object,
    Values,
    arguments,
    helm,
    laid_over,
    pod,
    refusal,
    render,
)
from tests.yaml_text import all_loaded, loaded

pytestmark = pytest.mark.more

SCHEMA: list[tuple[Values, str, str]] = [
    ({"replica": 2}, "", "additional properties 'replica'"),
    ({"replicas": 0}, "/replicas", ""),
    ({"replicas": 11}, "/replicas", ""),
    ({"replicas": "2"}, "/replicas", ""),
    ({"images": {"operator": {"tag": 24.10}}}, "/images/operator/tag", ""),
    ({"images": {"operator": {"tag": "a b"}}}, "/images/operator/tag", ""),
    ({"images": {"operator": {"digest": "sha256:abc"}}}, "/images/operator/digest", ""),
    ({"images": {"operator": {"repository": ""}}}, "/images/operator/repository", ""),
    ({"images": {"operator": {"repository": "halcyon/x:tag"}}}, "/images/operator/repository", ""),
    ({"images": {"operator": {"registry": "https://registry.example.com"}}}, "/images/operator/registry", ""),
    ({"images": {"registry": "registry.example.com/"}}, "/images/registry", ""),
    ({"images": {"operator": {"pullPolicy": "always"}}}, "/images/operator/pullPolicy", ""),
    ({"images": {"balancer": {"pullPolicy": "Always"}}}, "/images/balancer", "additional properties 'pullPolicy'"),
    ({"images": {"server": {}}}, "/images", "additional properties 'server'"),
    ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0", ""),
    ({"imagePullSecrets": [{"name": "Registry_1"}]}, "/imagePullSecrets/0/name", ""),
    ({"fullnameOverride": "Halcyon"}, "/fullnameOverride", ""),
    ({"fullnameOverride": "h" * 41}, "/fullnameOverride", ""),
    ({"watchNamespaces": "team-a"}, "/watchNamespaces", ""),
    ({"watchNamespaces": ["Team-A"]}, "/watchNamespaces/0", ""),
    ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces", ""),
    ({"crds": {"install": "yes"}}, "/crds/install", ""),
    ({"crds": None}, "", "missing property 'crds'"),
    ({"crds": {"keep": False}}, "/crds", "additional properties 'keep'"),
    ({"metricsAPI": {"register": "maybe"}}, "/metricsAPI/register", ""),
    ({"rbac": {"create": None, "scope": "cluster"}}, "/rbac", "additional properties 'scope'"),
    ({"serviceAccount": {"name": "a/b"}}, "/serviceAccount/name", ""),
    ({"serviceAccount": {"annotations": {"a": 1}}}, "/serviceAccount/annotations/a", ""),
    ({"prometheus": {"url": "prometheus:9090"}}, "/prometheus/url", ""),
    ({"prometheus": {"url": "https://ml:hunter2@prometheus"}}, "/prometheus/url", ""),
    ({"prometheus": {"url": "http://p", "gpuMatchers": "{a=1}"}}, "/prometheus/gpuMatchers", ""),
    ({"prometheus": {"url": "http://p", "tokenSecret": "t"}}, "/prometheus/tokenSecret", ""),
    ({"prometheus": {"url": "http://p", "caSecret": {"name": "t", "key": "a/b"}}}, "/prometheus/caSecret/key", ""),
    ({"prometheus": {"token": "t"}}, "/prometheus", "additional properties 'token'"),
    ({"logLevel": "verbose"}, "/logLevel", ""),
    ({"gpuBudget": -1}, "/gpuBudget", ""),
    ({"tracing": {"endpoint": "collector:4318"}}, "/tracing/endpoint", ""),
    ({"tracing": {"ratio": 2}}, "/tracing/ratio", ""),
    ({"balancers": {"tolerations": [{"operator": "Exists"}]}}, "/balancers/tolerations/0", "missing property 'key'"),
    ({"balancers": {"affinity": {}}}, "/balancers", "additional properties 'affinity'"),
    ({"cost": {"pricePerGpuHour": {"NVIDIA-L4": -0.8}}}, "/cost/pricePerGpuHour/NVIDIA-L4", ""),
    ({"cost": {"carbonIntensity": -1}}, "/cost/carbonIntensity", ""),
    ({"cost": {"carbonIntensity": 2001}}, "/cost/carbonIntensity", ""),
    ({"cost": {"carbonIntensity": "380"}}, "/cost/carbonIntensity", ""),
    ({"cost": {"currency": "US dollars"}}, "/cost/currency", ""),
    ({"serviceAnnotations": ["*"]}, "/serviceAnnotations/0", ""),
    ({"extraArgs": ["workers=32"]}, "/extraArgs/0", ""),
    ({"extraEnv": [{"value": "x"}]}, "/extraEnv/0", ""),
    ({"extraEnv": [{"name": "X", "valueFrom": {"secretRef": {"name": "x"}}}]}, "/extraEnv/0/valueFrom", ""),
    ({"extraObjects": [{"kind": "ConfigMap"}]}, "/extraObjects/0", ""),
    ({"ports": {"https": 443}}, "/ports/https", ""),
    ({"ports": {"http": 70000}}, "/ports/http", ""),
    ({"hostNetwork": "on"}, "/hostNetwork", ""),
    ({"expectedModels": 0}, "/expectedModels", ""),
    ({"expectedModels": "many"}, "/expectedModels", ""),
    ({"resources": {"limits": {"memory": "256MB"}}}, "/resources/limits/memory", ""),
    ({"resources": {"claims": []}}, "/resources", "additional properties 'claims'"),
    ({"resources": {"requests": {"cpu": -1}}}, "/resources/requests/cpu", ""),
    ({"probes": {"liveness": {"periodSeconds": 0}}}, "/probes/liveness/periodSeconds", ""),
    ({"probes": {"liveness": {"httpGet": {}}}}, "/probes/liveness", "additional properties 'httpGet'"),
    ({"podDisruptionBudget": {"minAvailable": 2}}, "/podDisruptionBudget", "additional properties 'minAvailable'"),
    ({"priorityClassName": "High Priority"}, "/priorityClassName", ""),
    ({"terminationGracePeriodSeconds": 1}, "/terminationGracePeriodSeconds", ""),
    ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu", ""),
    ({"tolerations": [{"effect": "Never"}]}, "/tolerations/0/effect", ""),
    ({"affinity": {"podAntiAffinty": {}}}, "/affinity", "additional properties 'podAntiAffinty'"),
    ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0", ""),
    ({"affinity": {"nodeAffinity": {"required": {}}}}, "/affinity/nodeAffinity", "additional properties 'required'"),
    ({"podLabels": {"x": 1}}, "/podLabels/x", ""),
    ({"service": {"type": "LoadBalancer"}}, "/service", "additional properties 'type'"),
    ({"networkPolicies": {"operator": {"egress": [{"port": 9090}]}}}, "/networkPolicies/operator/egress/0", ""),
    ({"monitoring": {"serviceMonitor": {"create": "yes"}}}, "/monitoring/serviceMonitor/create", ""),
    ({"monitoring": {"podMonitors": {"interval": "30"}}}, "/monitoring/podMonitors/interval", ""),
    ({"monitoring": {"podMonitors": {"interval": "5m"}}}, "/monitoring/podMonitors/interval", ""),
    ({"monitoring": {"prometheusRule": {"without": ["Watchdog"]}}}, "/monitoring/prometheusRule/without/0", ""),
    *(
        ({"monitoring": {"prometheusRule": {"runbooks": address}}}, "/monitoring/prometheusRule/runbooks", "")
        for address in (
            "",
            "docs/runbooks",
            "/docs/runbooks",
            "//wiki.example.com",
            "https://",
            "https://wiki.example.com/?page=",
        )
    ),
    ({"dashboards": {"enabled": "auto"}}, "/dashboards/enabled", ""),
    ({"test": {"timeoutSeconds": 0}}, "/test/timeoutSeconds", ""),
    # The operator would not start with these.
    *(({"cpuLimit": limit}, "/cpuLimit", "") for limit in ("0", "0.01", "49m", "0.049")),
    *(
        ({"dashboard": {"proxy": {"addresses": [network]}}}, "/dashboard/proxy/addresses/0", "")
        for network in ("10.0.0.0/99", "10.0.0.256/32", "::/129")
    ),
    *(
        ({"prometheus": {"url": url}}, "/prometheus/url", "")
        for url in ("http://p:99999", "http://p:web", "http://[fd00::1", "http://p:0")
    ),
    *(
        ({"tracing": {"endpoint": url}}, "/tracing/endpoint", "")
        for url in ("http://c:65536/v1/traces", "http://c:4318//", "http://c:4318/?x=1", "http://[::1/v1")
    ),
    *(({"downloads": {"proxy": url}}, "/downloads/proxy", "") for url in ("http://p:0", "http://p:70000")),
    (
        {"balancers": {"nodeSelector": {"a b": "c"}}},
        "/balancers/nodeSelector",
        "additional properties 'a b' not allowed",
    ),
    ({"balancers": {"nodeSelector": {"pool": "a b"}}}, "/balancers/nodeSelector/pool", ""),
    ({"balancers": {"tolerations": [{"key": "a b", "operator": "Exists"}]}}, "/balancers/tolerations/0/key", ""),
    ({"balancers": {"tolerations": [{"key": "pool", "value": "a b"}]}}, "/balancers/tolerations/0/value", ""),
    # The API server would reject the NetworkPolicies of each model.
    *(
        (
            {"networkPolicies": {"models": {"sources": [{"ipBlock": {"cidr": network}}]}}},
            "/networkPolicies/models/sources/0/ipBlock/cidr",
            "",
        )
        for network in ("10.0.0.7", "10.0.0.0/33", "example.com")
    ),
    *(
        ({"dashboard": {"links": {"grafana": url}}}, "/dashboard/links/grafana", "")
        for url in ("https://grafana.example.com/d'x", "https://:80")
    ),
    ({"prometheus": {"arrivals": " "}}, "/prometheus/arrivals", ""),
    ({"prometheus": {"queries": {"jobs": " "}}}, "/prometheus/queries/jobs", ""),
    (
        {"networkPolicies": {"models": {"clients": [{}] * 63}}},
        "/networkPolicies/models/clients",
        "maxItems: got 63, want 62",
    ),
]
"""What the schema refuses; the path that Helm names, and where the path is not enough, the reason."""

CHECKED: list[tuple[Values, str]] = [
    ({"images": {"registry": ""}}, "images.registry is empty"),
    (
        {"watchNamespaces": ["a"], "metricsAPI": {"register": True}},
        "metricsAPI.register is true and watchNamespaces is set",
    ),
    ({"prometheus": {"tokenSecret": {"name": "t"}}}, "prometheus.url is empty"),
    (
        {"prometheus": {"url": "http://p", "caSecret": {"name": "s"}, "caConfigMap": {"name": "c"}}},
        "set only one of them, for example prometheus.caConfigMap.name=ca",
    ),
    ({"extraArgs": ["--service=mine"]}, "extraArgs has --service=mine, but the chart itself sets --service"),
    ({"extraArgs": ["--gpu-b=9"]}, "the chart itself sets --gpu-budget"),
    ({"extraEnv": [{"name": "POD_NAME", "value": "mine"}]}, "extraEnv has POD_NAME"),
    ({"ports": {"http": 10250}}, "ports.https and ports.http are both 10250"),
    ({"hostNetwork": True}, "for example ports.https=10260"),
    (
        {"networkPolicies": {"models": {"create": True}}, "hostNetwork": True, "ports": {"https": 10260}},
        "set them, for example networkPolicies.models.operator[0].ipBlock.cidr=10.0.0.0/16",
    ),
    (
        {"networkPolicies": {"operator": {"create": True}}, "hostNetwork": True, "ports": {"https": 10260}},
        "networkPolicies.operator.create and hostNetwork are true",
    ),
    ({"test": {"image": {"repository": "tiny"}}}, "without a tag or digest; set one"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
    (
        {"serviceAccount": {"create": False, "name": "given", "annotations": {"iam.example.com/role": "halcyon"}}},
        "serviceAccount.annotations has iam.example.com/role, but serviceAccount.create is false",
    ),
    (
        {"dashboard": {"listen": "pod", "proxy": {"addresses": ["10.0.12.0/24", "10.0.12.5/24"]}}},
        "which is an address in a network; set the network, for example 10.0.12.0/24, or one address, for example 10.0.12.5/32",
    ),
    *(
        (
            {"dashboard": {"listen": "pod", "proxy": {"addresses": [network]}}},
            f"{network}, which is an address in a network; set the network, for example fd00:12::/64, or one address",
        )
        for network in (
            "fd00::5/64",
            "fd00::fd00/64",
            "fd00:12:0:8000::/48",
            "1:2:3:4:5:6:7:9/127",
            "fd00:1/64",
            "::1/0",
        )
    ),
    (
        {"balancers": {"tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]}},
        "balancers.tolerations has the key gpu with the operator Exists and the value",
    ),
    (
        {"test": {"tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]}},
        "test.tolerations has the key gpu with the operator Exists and the value",
    ),
    ({"enabled": False}, "enabled is false, but only a larger chart"),
]
"""What only the templates can tell."""


def _overlap(first: Values, other: Values) -> bool:
    """Whether one of the two is lost where they are merged."""
    shared = first.keys() & other.keys()
    return any(
        not (isinstance(first[k], dict) and isinstance(other[k], dict)) or _overlap(first[k], other[k]) for k in shared
    )


@cache
def _complaints() -> dict[int, str]:
    """What Helm says to each of SCHEMA, by its place.

    It names every value that a schema refuses, so many are asked at once: a call of Helm costs more than all other tests here.
    """
    batches: list[dict[int, tuple[Values, str]]] = []
    for place, (values, path, _) in enumerate(SCHEMA):
        for batch in batches:
            if not any(_overlap(values, other) or path == named for other, named in batch.values()):
                batch[place] = (values, path)
                break
        else:
            batches.append({place: (values, path)})
    complaints = {}
    for batch in batches:
        together: Values = {}
        for values, _ in batch.values():
            together = laid_over(together, values)
        complaints |= dict.fromkeys(batch, refusal(together))
    return complaints


@pytest.mark.parametrize("place", range(len(SCHEMA)), ids=[str(values) for values, *_ in SCHEMA])
def test_a_value_that_the_schema_refuses_is_named(place: int) -> None:
    _, path, reason = SCHEMA[place]
    assert f"at '{path}': {reason}" in _complaints()[place]


@pytest.mark.parametrize(("values", "message"), CHECKED, ids=str)
def test_values_that_dont_go_together_are_refused_with_what_to_do(values: Values, message: str) -> None:
    assert message in refusal(values)


def closed(schema: Object, path: str = "") -> Iterator[str]:
    """Paths of objects that take any name."""
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield path
    for name, part in (schema.get("properties") or {}).items():
        yield from closed(part, f"{path}/{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(part := schema.get(word), dict):
            yield from closed(part, f"{path}/{word}")


def test_only_maps_of_the_users_own_names_are_open() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(closed(schema)) == {"/global", "/extraObjects/items", "/cost/pricePerGpuHour", "/prometheus/queries"}
    assert {f"{name}{path}" for name, part in schema["$defs"].items() for path in closed(part)} == {
        "CSIVolumeSource/volumeAttributes",
        "LabelSelector/matchLabels",
        "resources/limits",
        "resources/requests",
        "texts",
    }


def test_values_at_the_bounds_of_the_schema_are_read_by_the_operator() -> None:
    models: Values = {name: [{"ipBlock": {"cidr": "10.0.0.0/8"}}] * 64 for name in ("scrapers", "sources", "operator")}
    models |= {"create": True, "clients": [{"podSelector": {}}] * 62, "egress": [{"ports": [{"port": 53}]}] * 64}
    addresses = ["0.0.0.0/0", "10.0.12.5/32", "10.0.12.4/30", "::/0", "fd00::/64", "::1/128", "fd00:0:0:8000::/49"]
    addresses += ["1:2:3:4:5:6:7:8/128", "8000::/1", "::ffff:a00:0/104"]
    values: Values = {
        "networkPolicies": {"models": models},
        "prometheus": {"url": "http://[fd00::1]:65535/prometheus"},
        "tracing": {"endpoint": "http://user:word@collector.tracing:1/v1/traces?tenant=a"},
        "dashboard": {"listen": "pod", "proxy": {"addresses": addresses}, "links": {"grafana": "http://[::1]:3000/g"}},
        "balancers": {
            "nodeSelector": {"topology.kubernetes.io/zone": "eu-1a", "edge": ""},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "pool", "value": "edge"}],
        },
    }
    for limit in ("0.05", "50m", "0.125", "2", "1500m", "9999999m"):
        read = arguments(pod(render(values | {"cpuLimit": limit})))
        assert read.cpu_limit == limit
        assert [str(proxy) for proxy in read.dashboard_proxies] == addresses
        assert len(read.network.clients) == 64


def test_a_larger_chart_may_have_a_condition_for_this_one(tmp_path: Path) -> None:
    """`condition: halcyon.enabled` puts a value into this chart that its own values.yaml lacks."""
    dependency = {"name": "halcyon", "version": "0.1.0", "repository": "", "condition": "halcyon.enabled"}
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    shutil.copytree(CHART, tmp_path / "charts" / "halcyon")
    for enabled in (True, False):
        done = helm("template", "halcyon", str(tmp_path), values={"halcyon": laid_over(LOCAL, {"enabled": enabled})})
        assert done.returncode == 0, done.stderr
        assert ("kind: Deployment" in done.stdout) is enabled


def test_aliases_in_a_larger_chart_are_separate_operators_that_commands_find(tmp_path: Path) -> None:
    """Helm replaces the chart's name by the alias, but the command line searches for the name."""
    aliases = ("serving", "batch-serving-of-the-research-department")
    every = [{"name": "halcyon", "version": "0.1.0", "repository": "", "alias": alias} for alias in aliases]
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": every}
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    shutil.copytree(CHART, tmp_path / "charts" / "halcyon")
    values = {alias: laid_over(LOCAL, {"watchNamespaces": [f"team-{i}"]}) for i, alias in enumerate(aliases)}
    done = helm("template", "prod", str(tmp_path), "--skip-tests", values=values)
    assert done.returncode == 0, done.stderr
    deployments = [obj for obj in all_loaded(done.stdout) if obj and obj["kind"] == "Deployment"]
    labels = dict(label.split("=") for label in SELECTOR.split(","))
    selectors = [deployment["spec"]["selector"]["matchLabels"] for deployment in deployments]

    assert len(deployments) == len(aliases)
    for deployment, selector in zip(deployments, selectors, strict=True):
        assert labels.items() <= deployment["metadata"]["labels"].items()
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert len(f"{deployment['metadata']['name']}-site-policy-warnings") <= 63
    assert selectors[0] != selectors[1]


def test_values_of_an_earlier_chart_are_refused_by_their_missing_names() -> None:
    """As `helm upgrade --reuse-values` passes them: without the defaults of values that are new."""
    message = refusal({"cpuLimit": None, "dashboard": {"links": None}, "prometheus": {"queries": None}})
    assert "at '': missing property 'cpuLimit'" in message
    assert "at '/dashboard': missing property 'links'" in message
    assert "at '/prometheus': missing property 'queries'" in message
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = loaded((CHART / "values.yaml").read_text())
    assert set(schema["required"]) == {name for name, value in defaults.items() if value is not None}
    assert "--reset-then-reuse-values" in (ROOT / "docs/guides/install.md").read_text()


def test_generated_output_equals_values_yaml_as_written_by_hand() -> None:
    subprocess.run(["scripts/generate", "--check", "chart"], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# -- A number.\nreplicas: 2\n", "replicas needs a line that says what it may be"),
        ("# @schema port\nport: 8080\n", "port needs a comment that begins with `# --`"),
        ("# -- A thing.\n# @schema Thing\nthing: {}\n", "Thing is neither in TYPES nor a type of Kubernetes"),
    ],
)
def test_a_value_without_meaning_or_limits_is_not_generated(text: str, message: str) -> None:
    with pytest.raises(chart_values.ValuesError, match=message):
        chart_values.table(root := chart_values.read(text)), chart_values.json_schema(root, title="")


def test_every_option_that_the_chart_gives_is_refused_among_extra_ones() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    refused = set(helpers.partition('define "halcyon.ownOptions" -}}')[2].partition("{{- end")[0].split())
    for values in (EVERYTHING, NAMESPACED):
        _, *arguments = pod(render(laid_over(values, {"extraArgs": []})))["containers"][0]["args"]
        assert {argument.removeprefix("--").partition("=")[0] for argument in arguments} <= refused
