"""Common parts of the objects of a model: metadata, security context, pull Secrets and placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.spec.placement import Placement
from halcyon.render import names
from halcyon.render.site import Site, Subject

Object = dict[str, Any]

RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of containers that complies with the Pod Security Standard "restricted" and has a read-only root
file system."""

LINUX: Object = {"kubernetes.io/os": "linux"}
"""Node selector of all pods: the images of Triton and Halcyon are for Linux, and a cluster may have Windows nodes."""


def pod_security(uid: int, site: Site) -> Object:
    """Return a security context of a pod that complies with the Pod Security Standard "restricted".

    The user and the group are set to `uid`, unless the platform assigns them (`Site.fixed_user_ids`).
    """
    fixed = {"runAsUser": uid, "runAsGroup": uid} if site.fixed_user_ids else {}
    return {"runAsNonRoot": True, **fixed, "seccompProfile": {"type": "RuntimeDefault"}}


def pull_secrets(spec: Spec, site: Site) -> Object:
    """Return the field `imagePullSecrets` of a pod; empty if there are no such Secrets.

    The model's Secrets come before the site's.
    """
    model_secrets = (secret.name for secret in spec.runtime.image_pull_secrets or ())
    secrets = dict.fromkeys((*model_secrets, *site.pull_secrets))
    return {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}


def resources(site: Site, *, cpu: str, memory: str, memory_limit: str) -> Object:
    """Return the resources of one of Halcyon's own containers in a model's namespace.

    There is no CPU limit unless the site sets one, because the kernel throttles a container at its limit even while
    CPUs are idle.
    """
    limits = {"cpu": site.cpu_limit} if site.cpu_limit else {}
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {**limits, "memory": memory_limit}}


def placed(placement: Placement) -> Object:
    """Return the fields of a pod that determine its scheduling and priority."""
    fields = {
        "nodeSelector": LINUX | dict(placement.node_selector or {}),
        "tolerations": [toleration.to_dict() for toleration in placement.tolerations or ()],
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
    }
    return {field: value for field, value in fields.items() if value}


def spread(selector: Mapping[str, str], constraints: Iterable[Object] | None = None) -> Object:
    """Return the `topologySpreadConstraints` for pods with these labels.

    By default, they are a soft constraint that spreads the pods over nodes, without counting pods that a rollout replaces.
    """
    if constraints is None:
        node = {"topologyKey": "kubernetes.io/hostname", "matchLabelKeys": ["pod-template-hash"]}
        constraints = (node | {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},)
    selected = {"labelSelector": {"matchLabels": dict(selector)}}
    entries = [constraint | selected for constraint in constraints]
    return {"topologySpreadConstraints": entries} if entries else {}


def child(
    api_version: str, kind: str, subject: Subject, name: str, component: str, *, labels: Mapping[str, str] | None = None
) -> Object:
    """Build an object with only apiVersion, kind and metadata, owned by the ModelDeployment."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": subject.namespace,
            "name": name,
            "labels": names.labels(subject.name, component) | dict(labels or {}),
            "ownerReferences": [names.owner(subject.name, subject.uid)],
        },
    }
