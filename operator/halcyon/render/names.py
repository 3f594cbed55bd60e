"""Every name and label of a child object."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NewType

from halcyon.api.types import API_VERSION, GROUP, KIND

Slot = NewType("Slot", str)
SLOTS = SLOT_A, SLOT_B = Slot("a"), Slot("b")
"""Of which one has servers, and the other only while a canary needs it."""

OWNER_LABEL = f"{GROUP}/model-deployment"
SLOT_LABEL = f"{GROUP}/slot"
REVISION_LABEL = f"{GROUP}/revision"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "halcyon"

SERVER, BALANCER, SCALING, ROUTE = "server", "balancer", "scaling", "route"

HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
AGENT_PORT, HAPROXY_METRICS_PORT = 9100, 9101


def server(name: str, slot: Slot) -> str:
    """Deployment and PodDisruptionBudget of a slot's servers."""
    return f"{name}-{slot}"


def slot_service(name: str, slot: Slot) -> str:
    """Headless Service of a slot; not the Deployment's name, which a ModelDeployment may bear, and its Service with it."""
    return f"{name}-server-{slot}"


def headless(name: str) -> str:
    """Headless Service of all servers, for clients that balance by themselves."""
    return f"{name}-headless"


def route_service(name: str, slot: Slot) -> str:
    """Service of a slot that a Gateway's routes lead to."""
    return f"{name}-route-{slot}"


def balancer(name: str) -> str:
    """Deployment, PodDisruptionBudget, ConfigMap, ServiceAccount, Role and RoleBinding of the balancer."""
    return f"{name}-balancer"


def network_policy(name: str, component: str) -> str:
    """NetworkPolicy of the servers or of the balancers."""
    return f"{name}-{component}"


def overlay(name: str, content: str) -> str:
    """Immutable ConfigMap with what the spec adds to the model's configuration."""
    return f"{name}-overlay-{digest(content)}"


def snapshot(name: str, content: Any) -> str:  # any JSON value
    """Immutable copy of the ConfigMap that holds the model."""
    return f"{name}-model-{digest(content)}"


def revision(name: str, key: str) -> str:
    """ControllerRevision."""
    return f"{name}-{key}"


def digest(value: Any) -> str:  # any JSON value
    """Ten hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def labels(name: str, component: str) -> dict[str, str]:
    """Labels of every child."""
    return {OWNER_LABEL: name, COMPONENT_LABEL: component, MANAGER_LABEL: MANAGER}


def selector(name: str, component: str, slot: Slot | None = None) -> dict[str, str]:
    """What picks the pods of a component, of one slot or of all."""
    picked = {OWNER_LABEL: name, COMPONENT_LABEL: component}
    return picked if slot is None else {**picked, SLOT_LABEL: slot}


def selector_text(name: str) -> str:
    """The selector of all server pods, as the scale subresource shows it."""
    return ",".join(f"{k}={v}" for k, v in selector(name, SERVER).items())


def owner(name: str, uid: str) -> dict[str, Any]:
    """Owner reference: the garbage collector removes children, also while the operator is down."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, "controller": True}
