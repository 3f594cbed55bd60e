"""Parts shared by all child objects: metadata and the restricted security context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.spec.runtime import Placement
from halcyon.render import names
from halcyon.render.site import Site, Subject

Object = dict[str, Any]

RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Container part of Pod Security "restricted", with a read-only root file system."""


def pod_security(uid: int) -> Object:
    """Return the pod part of Pod Security "restricted"."""
    return {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": uid, "seccompProfile": {"type": "RuntimeDefault"}}


def pull_secrets(spec: Spec, site: Site) -> Object:
    """Return the pod's `imagePullSecrets`, the model's own before the site's; empty if there are none."""
    own = (secret.name for secret in spec.runtime.image_pull_secrets or ())
    found = dict.fromkeys((*own, *site.pull_secrets))
    return {"imagePullSecrets": [{"name": name} for name in found]} if found else {}


def placed(placement: Placement) -> Object:
    """Return the pod fields for scheduling and priority; empty if none are set."""
    said: Object = {}
    if placement.node_selector:
        said["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        said["tolerations"] = [toleration.to_dict() for toleration in placement.tolerations]
    if placement.priority_class_name:
        said["priorityClassName"] = placement.priority_class_name
    if placement.runtime_class_name:
        said["runtimeClassName"] = placement.runtime_class_name
    return said


def child(
    api_version: str, kind: str, subject: Subject, name: str, component: str, *, labels: Mapping[str, str] | None = None
) -> Object:
    """Build the metadata of a child object."""
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
