"""What all child objects have in common: metadata and the restricted security context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.render import names
from halcyon.render.site import Subject

Object = dict[str, Any]

RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Container part of Pod Security "restricted", and a root file system that can't be written."""


def pod_security(uid: int) -> Object:
    """Pod part of Pod Security "restricted"."""
    return {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": uid, "seccompProfile": {"type": "RuntimeDefault"}}


def child(
    api_version: str, kind: str, subject: Subject, name: str, component: str, *, labels: Mapping[str, str] | None = None
) -> Object:
    """The head of a child object."""
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
