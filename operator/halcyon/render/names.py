"""Names, labels and owner references of all objects of a model."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NewType

from halcyon.api.types import API_VERSION, GROUP, KIND

Slot = NewType("Slot", str)
SLOTS = SLOT_A, SLOT_B = Slot("a"), Slot("b")
"""Slots of a model: the Deployments a and b. One serves requests; the other has servers only during a canary
rollout."""

OWNER_LABEL = f"{GROUP}/model-deployment"
BATCH_LABEL = f"{GROUP}/batch-inference"
"""Label of all objects that belong to a BatchInference. The value of the label is the name of the BatchInference."""
SLOT_LABEL = f"{GROUP}/slot"
REVISION_LABEL = f"{GROUP}/revision"
RESTART_ANNOTATION = f"{GROUP}/restart"
"""Annotation of a server pod. If its value changes, the Triton container restarts."""
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "halcyon"

SERVER, BALANCER, SCALING, ROUTE = "server", "balancer", "scaling", "route"

TRITON = "triton"
"""Name of the container in server pods that runs Triton."""
FETCHER = "fetch"
"""Name of the init container in server pods that fetches the model."""
CONTAINERS = frozenset({FETCHER, "triton", "agent", "haproxy"})
"""Names of the containers that Halcyon adds to pods. Admission webhooks may add other containers, in any position."""

HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
AGENT_PORT, HAPROXY_METRICS_PORT = 9100, 9101


def server(name: str, slot: Slot) -> str:
    """Return the name of the Deployment and the PodDisruptionBudget of a slot."""
    return f"{name}-{slot}"


def slot_service(name: str, slot: Slot) -> str:
    """Return the name of a slot's headless Service.

    It differs from that of the Deployment, which could be the name of another ModelDeployment and its Service.
    """
    return f"{name}-server-{slot}"


def headless(name: str) -> str:
    """Return the name of the headless Service of all servers, for clients that do their own load balancing."""
    return f"{name}-headless"


def route_service(name: str, slot: Slot) -> str:
    """Return the name of the Service of a slot that is the backend of Gateway routes."""
    return f"{name}-route-{slot}"


def balancer(name: str) -> str:
    """Return the name of the balancer's Deployment, PodDisruptionBudget, ConfigMap, ServiceAccount, Role and RoleBinding."""
    return f"{name}-balancer"


def measured_capacity(name: str) -> str:
    """Return the name of the ConfigMap with the measured capacity, which the command line writes."""
    return f"{name}-capacity"


def network_policy(name: str, component: str) -> str:
    """Return the name of the NetworkPolicy of a component: the servers or the balancers."""
    return f"{name}-{component}"


def overlay(name: str, content: str) -> str:
    """Return the name of the immutable ConfigMap with the overlay. The name contains a digest of the content."""
    return f"{name}-overlay-{digest(content)}"


def snapshot(name: str, content: Any) -> str:  # any JSON value
    """Return the name of the immutable copy of a model's ConfigMap. The name contains a digest of the content."""
    return f"{name}-model-{digest(content)}"


def revision(name: str, key: str) -> str:
    """Return the name of the ControllerRevision for the revision with this key."""
    return f"{name}-{key}"


def digest(value: Any) -> str:  # any JSON value
    """Return the digest of a JSON value, as ten hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of an object that belongs to a component of the model."""
    return {OWNER_LABEL: name, COMPONENT_LABEL: component, MANAGER_LABEL: MANAGER}


def selector(name: str, component: str, slot: Slot | None = None) -> dict[str, str]:
    """Return the labels that select the pods of a component.

    If a slot is given, they select only the pods in this slot.
    """
    picked = {OWNER_LABEL: name, COMPONENT_LABEL: component}
    return picked if slot is None else {**picked, SLOT_LABEL: slot}


def selector_text(name: str) -> str:
    """Return the label selector of all server pods of a model, as text for the scale subresource."""
    return ",".join(f"{k}={v}" for k, v in selector(name, SERVER).items())


def owner(name: str, uid: str, kind: str = KIND) -> dict[str, Any]:
    """Build the owner reference to a Halcyon resource, by default to a ModelDeployment.

    With it, Kubernetes garbage-collects the objects even while the operator is down.
    """
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}
