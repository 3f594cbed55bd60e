"""Generator of the kustomize bases and overlays in manifests/ from the chart.

Usage: `python generators/chart_manifests.py HELM DIRECTORY`. It writes:

    bases/crd             the CRD; its file is generated together with the other files of the CRD
    bases/operator        objects that both modes have in common
    overlays/cluster      all namespaces: ClusterRole, APIService
    overlays/namespaced   listed namespaces: Roles, and the operator limited to them
    overlays/openshift    overlays/cluster without fixed user ids

The chart is the only source. An object that is the same in both modes belongs to the base, others to their overlay.
Helm's labels are omitted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
Key = tuple[str, str, str]

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "halcyon"
SYSTEM, MODELS = "halcyon-system", "models"
REGISTRY = "registry.example.com/halcyon"
VALUES: Object = {"images": {"registry": REGISTRY}, "crds": {"install": False}}
MODES: dict[str, Object] = {
    # Which Service serves the metrics API in a cluster is unknown here. docs/guides/install.md describes how to leave
    # it out.
    "cluster": {"metricsAPI": {"register": True}},
    "namespaced": {"watchNamespaces": [MODELS]},
    "openshift": {"metricsAPI": {"register": True}, "fixedUserIds": False},
}
HEAD = "# Written by scripts/generate from charts/halcyon; change that.\n"
NAMESPACE: Object = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": SYSTEM, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}


def rendered(helm: str, mode: str) -> dict[Key, Object]:
    """Return the chart's objects for a mode, without the parts that only Helm needs."""
    completed = subprocess.run(
        [helm, "template", "halcyon", str(CHART), "--namespace", SYSTEM, "--skip-tests", "--values", "-"],
        input=json.dumps(VALUES | MODES[mode]),
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise SystemExit(completed.stderr)
    objects = {}
    for obj in filter(None, yaml.safe_load_all(completed.stdout)):
        _without_helm(obj)
        objects[key(obj)] = obj
    return objects


def key(obj: Object) -> Key:
    """Return the key that identifies an object."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _without_helm(part: Any) -> None:
    if isinstance(part, list):
        for item in part:
            _without_helm(item)
    elif isinstance(part, dict):
        labels = part.get("labels")
        if isinstance(labels, dict):
            labels.pop("helm.sh/chart", None)
            if labels.get("app.kubernetes.io/managed-by") == "Helm":
                del labels["app.kubernetes.io/managed-by"]
        for item in part.values():
            _without_helm(item)


def files(helm: str) -> dict[str, list[Object]]:
    """Return the content of each file, by its path below manifests/."""
    cluster, namespaced, openshift = (rendered(helm, mode) for mode in MODES)
    operator = ("Deployment", SYSTEM, "halcyon")
    shared = {k: obj for k, obj in cluster.items() if namespaced.get(k) == obj or k == operator}
    container = namespaced[operator]["spec"]["template"]["spec"]["containers"][0]
    if _with_args(cluster[operator], container["args"]) != _annotated_as(namespaced[operator], cluster[operator]):
        raise SystemExit(
            "the operator's Deployments of both modes differ in more than args and annotations; the overlay can't say that"
        )
    args: Object = {
        "spec": {"template": {"spec": {"containers": [{"name": container["name"], "args": container["args"]}]}}}
    }
    head = {k: cluster[operator][k] for k in ("apiVersion", "kind")}
    # An annotation that only one mode has is removed by null.
    annotations, other = (objects[operator]["metadata"].get("annotations", {}) for objects in (cluster, namespaced))
    changed = {name: other.get(name) for name in {**annotations, **other} if annotations.get(name) != other.get(name)}
    meta = {"name": "halcyon", "namespace": SYSTEM} | ({"annotations": changed} if changed else {})
    args = head | {"metadata": meta} | args
    own = {
        mode: [obj for k, obj in objects.items() if k not in shared]
        for mode, objects in (("cluster", cluster), ("namespaced", namespaced))
    }
    return {
        "bases/crd/kustomization.yaml": [_kustomization("crd.yaml", "batch-crd.yaml")],
        "bases/operator/kustomization.yaml": [_kustomization("operator.yaml")],
        "bases/operator/operator.yaml": [NAMESPACE, *shared.values()],
        "overlays/cluster/kustomization.yaml": [
            _kustomization("../../bases/crd", "../../bases/operator", "rights.yaml")
        ],
        "overlays/cluster/rights.yaml": own["cluster"],
        "overlays/namespaced/kustomization.yaml": [
            _kustomization("../../bases/operator", "rights.yaml") | {"patches": [{"path": "arguments.yaml"}]}
        ],
        "overlays/namespaced/rights.yaml": own["namespaced"],
        "overlays/namespaced/arguments.yaml": [args],
        "overlays/openshift/kustomization.yaml": [
            _kustomization("../cluster") | {"patches": [_without_user_ids(openshift[operator])]}
        ],
    }


def _without_user_ids(deployment: Object) -> Object:
    """Return the patch that turns the operator's Deployment into this one."""
    pod = "/spec/template/spec"
    operations = [
        {"op": "remove", "path": f"{pod}/securityContext/runAsUser"},
        {"op": "remove", "path": f"{pod}/securityContext/runAsGroup"},
        {
            "op": "replace",
            "path": f"{pod}/containers/0/args",
            "value": deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        },
    ]
    target = {"kind": "Deployment", "name": deployment["metadata"]["name"]}
    return {"target": target, "patch": yaml.safe_dump(operations, sort_keys=False)}


def _annotated_as(obj: Object, other: Object) -> Object:
    return obj | {"metadata": obj["metadata"] | {"annotations": other["metadata"].get("annotations", {})}}


def _with_args(deployment: Object, args: list[str]) -> Object:
    copy: Object = json.loads(json.dumps(deployment))
    copy["spec"]["template"]["spec"]["containers"][0]["args"] = args
    return copy


def _kustomization(*resources: str) -> Object:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(resources)}


def main(helm: str, directory: Path) -> None:
    """Write the files to a directory."""
    for name, objects in files(helm).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + yaml.safe_dump_all(objects, sort_keys=False, width=120))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
