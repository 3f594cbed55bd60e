"""The charts as Helm renders them, and helpers to check the result, shared by the tests of the charts.

Tests that need an API server (lookup, upgrades, uninstall) call `helm` with a kubeconfig.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from halcyon.control.runtime import settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "halcyon"
CRDS_CHART = ROOT / "charts" / "halcyon-crds"
CRD = ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml"
HELM = os.environ.get("HALCYON_HELM") or shutil.which("helm")
DIGEST = "sha256:" + "a" * 64
CRD_NAME = "modeldeployments.serving.halcyon.dev"
BATCH_CRD = ROOT / "crds" / "batchinferences.serving.halcyon.dev.yaml"
BATCH_CRD_NAME = "batchinferences.serving.halcyon.dev"
API_SERVICE = "v1beta1.external.metrics.k8s.io"
MONITORING = "monitoring.coreos.com/v1"

Object = dict[str, Any]
Values = dict[str, Any]

LOCAL: Values = {"images": {"registry": "localhost"}}
"""Values for every installation: where the images are."""
EVERYTHING: Values = {
    "replicas": 3,
    "images": {
        "registry": "registry.example.com:5000/ml",
        **{name: {"repository": name, "digest": DIGEST} for name in ("operator", "balancer")},
        "triton": {"registry": "mirror.example.com", "repository": "ml/triton", "digest": DIGEST},
    },
    "imagePullSecrets": [{"name": "registry"}],
    "metricsAPI": {"register": True},
    "serviceAccount": {"name": "runner", "annotations": {"example.com/identity": "halcyon"}},
    "gpuBudget": 64,
    "tracing": {"endpoint": "http://collector.observability.svc:4318/v1/traces", "ratio": 0.5},
    "balancers": {
        "nodeSelector": {"pool": "edge"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "priorityClassName": "front",
    },
    "prometheus": {
        "url": "https://prometheus.example.com/base",
        "tokenSecret": {"name": "prometheus", "key": "bearer"},
        "caConfigMap": {"name": "corporate", "key": "bundle.pem"},
        "gpuMatchers": 'namespace="gpu-operator",node=~"gpu.*$"',
        "arrivals": 'sum(rate(requests_total{ns="$namespace",to="$name",x="$(POD_NAME)$$"}[5m]))',
    },
    "serviceAnnotations": ["example.com/"],
    "modelPodLabels": ["kueue.x-k8s.io/", "cost-center"],
    "modelPodAnnotations": ["karpenter.sh/do-not-disrupt"],
    "logLevel": "debug",
    "extraArgs": ["--workers=32"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "ports": {"https": 10260, "http": 8081},
    "hostNetwork": True,
    "resources": {"limits": {"memory": "1Gi"}},
    "probes": {"startup": {"periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 24}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "podAnnotations": {"example.com/note": "1"},
    "podLabels": {"team": "ml", "app.kubernetes.io/name": "theirs"},
    "service": {"annotations": {"example.com/note": "2"}, "labels": {"team": "ml", "app.kubernetes.io/name": "theirs"}},
    "networkPolicies": {
        "models": {
            "create": True,
            "operator": [{"ipBlock": {"cidr": "10.0.0.0/16"}}],
            "egress": [{"to": [{"podSelector": {}}]}],
            "sources": [{"ipBlock": {"cidr": "10.20.0.0/16"}}],
            "scrapers": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "clients": [{"podSelector": {}}],
        }
    },
    "monitoring": {
        "serviceMonitor": {"create": True},
        "podMonitors": {"create": True, "interval": "15s"},
        "prometheusRule": {"create": True},
        "labels": {"release": "prometheus"},
    },
    "dashboards": {
        "enabled": True,
        "labels": {"grafana_dashboard": "yes"},
        "annotations": {"grafana_folder": "Halcyon"},
    },
    "test": {"image": {"registry": "localhost", "repository": "tiny", "tag": "1"}, "timeoutSeconds": 60},
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "extra"},
            "data": {"in": "{{ .Release.Namespace }}"},
        }
    ],
}
LITTLE: Values = {
    "replicas": 1,
    "bench": {"priorityClass": {"create": False}},
    "crds": {"install": False},
    "metricsAPI": {"register": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "given"},
    "podDisruptionBudget": {"create": False},
}
NAMESPACED: Values = {
    "watchNamespaces": ["team-a", "team-b"],
    "crds": {"install": False},
    "networkPolicies": {
        "operator": {"create": True, "egress": [{"ports": [{"port": 9090}]}]},
        "models": {"create": True},
    },
    "monitoring": {"podMonitors": {"create": True}},
}
SETS: dict[str, Values] = {"defaults": {}, "everything": EVERYTHING, "little": LITTLE, "namespaced": NAMESPACED}
"""Sets of values, from the defaults to everything that can be configured."""


def laid_over(base: Values, values: Values) -> Values:
    """Return the values merged as Helm does it."""
    merged = dict(base)
    for name, value in values.items():
        below = merged.get(name)
        merged[name] = laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def helm(*args: str, values: Values | None = None, kubeconfig: str = os.devnull) -> subprocess.CompletedProcess[str]:
    """Run Helm. Without a kubeconfig it has no cluster."""
    if HELM is None:
        pytest.skip("helm is built by make cluster-up; HALCYON_HELM may name another")
    return subprocess.run(
        [HELM, *args, *(("--values", "-") if values is not None else ())],
        input=json.dumps(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "KUBECONFIG": kubeconfig},
    )


@cache
def _render(values: str, release: str, namespace: str, flags: tuple[str, ...]) -> tuple[Object, ...]:
    overrides = json.loads(values)
    done = helm("template", release, str(CHART), "--namespace", namespace, *flags, values=laid_over(LOCAL, overrides))
    assert done.returncode == 0, done.stderr
    return tuple(d for d in yaml.safe_load_all(done.stdout) if d)


def render(
    values: Values | None = None,
    *,
    release: str = "halcyon",
    namespace: str = "halcyon-system",
    flags: Iterable[str] = ("--skip-tests",),
) -> list[Object]:
    """Return the objects of an installation with images on the nodes, without those of `helm test`."""
    return list(_render(json.dumps(values or {}), release, namespace, tuple(flags)))


def find(objects: list[Object], kind: str, name: str = "halcyon") -> Object:
    """Return the only object of this kind and name."""
    (obj,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return obj


def names(objects: list[Object], kind: str) -> set[str]:
    """Return the names of all objects of a kind."""
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def pod(objects: list[Object], name: str = "halcyon") -> Object:
    """Return the operator's pod template."""
    spec: Object = find(objects, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def expanded(argument: str, known: dict[str, str]) -> str:
    """What Kubernetes makes of an argument: `$(NAME)` of a variable that it knows, and `$` of `$$`."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else known.get(m[1], m[0]), argument, flags=re.DOTALL
    )


def arguments(spec: Any) -> argparse.Namespace:
    """The operator's options, as it reads them."""
    (container,) = spec["containers"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    settings.add_arguments(parser)
    variables = {e["name"]: "from the environment" for e in container["env"]}
    return parser.parse_args([expanded(argument, variables) for argument in container["args"][1:]])


def rules(objects: list[Object]) -> list[tuple[str, Object]]:
    """Return every RBAC rule, with the object that contains it."""
    return [
        (f"{o['kind']} {o['metadata']['name']}", rule)
        for o in objects
        if o["kind"] in {"Role", "ClusterRole"}
        for rule in o["rules"]
    ]


def refusal(values: Values) -> str:
    """Return Helm's error message for values that it must reject."""
    done = helm("template", "halcyon", str(CHART), values=laid_over(LOCAL, values))
    assert done.returncode != 0, f"Helm accepts {values}"
    return done.stderr
