"""Names and labels of all child objects."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NewType

from halcyon.api.types import API_VERSION, GROUP, KIND

Slot = NewType("Slot", str)
SLOTS = SLOT_A, SLOT_B = Slot("a"), Slot("b")
"""Slots: one has servers, the other only while a canary needs it."""

OWNER_LABEL = f"{GROUP}/model-deployment"
SLOT_LABEL = f"{GROUP}/slot"
REVISION_LABEL = f"{GROUP}/revision"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "halcyon"

SERVER, BALANCER, SCALING, ROUTE = "server", "balancer", "scaling", "route"

FETCHER = "fetch"
"""Init container of a server pod that fetches the model."""

HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
AGENT_PORT, HAPROXY_METRICS_PORT = 9100, 9101


def server(name: str, slot: Slot) -> str:
    """Return the name of a slot's Deployment and PodDisruptionBudget."""
    return f"{name}-{slot}"


def slot_service(name: str, slot: Slot) -> str:
    """Return the name of a slot's headless Service.

    It isn't the Deployment's name, because another ModelDeployment, and thus its Service, may have that name.
    """
    return f"{name}-server-{slot}"


def headless(name: str) -> str:
    """Return the name of the headless Service of all servers, for clients that balance by themselves."""
    return f"{name}-headless"


def route_service(name: str, slot: Slot) -> str:
    """Return the name of a slot's Service for a Gateway's routes."""
    return f"{name}-route-{slot}"


def balancer(name: str) -> str:
    """Return the name of the balancer's Deployment, PodDisruptionBudget, ConfigMap, ServiceAccount, Role and RoleBinding."""
    return f"{name}-balancer"


def network_policy(name: str, component: str) -> str:
    """Return the name of the NetworkPolicy of the servers or of the balancers."""
    return f"{name}-{component}"


def overlay(name: str, content: str) -> str:
    """Return the name of the immutable ConfigMap with the additions to the model's configuration."""
    return f"{name}-overlay-{digest(content)}"


def snapshot(name: str, content: Any) -> str:  # any JSON value
    """Return the name of the immutable copy of the ConfigMap that holds the model."""
    return f"{name}-model-{digest(content)}"


def revision(name: str, key: str) -> str:
    """Return the name of a ControllerRevision."""
    return f"{name}-{key}"


def digest(value: Any) -> str:  # any JSON value
    """Return ten hexadecimal digits that identify a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of every child."""
    return {OWNER_LABEL: name, COMPONENT_LABEL: component, MANAGER_LABEL: MANAGER}


def selector(name: str, component: str, slot: Slot | None = None) -> dict[str, str]:
    """Return the labels that select the pods of a component, of one slot or of all."""
    picked = {OWNER_LABEL: name, COMPONENT_LABEL: component}
    return picked if slot is None else {**picked, SLOT_LABEL: slot}


def selector_text(name: str) -> str:
    """Return the selector of all server pods, as the scale subresource shows it."""
    return ",".join(f"{k}={v}" for k, v in selector(name, SERVER).items())


def owner(name: str, uid: str) -> dict[str, Any]:
    """Build the owner reference. The garbage collector removes children, even while the operator is down."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, "controller": True}
