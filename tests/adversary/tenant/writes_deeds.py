"""What a tenant does to the objects of its own model, again and again. Each deed is one round of it.

All of these objects are in the tenant's namespace, so it may write them, except for those of the operator's roles.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.integration.operator_space import Object, Space, deployment

SCALING = {"maxReplicas": 2, "actuator": "HPA"}
MANY = 900


def _take_place(space: Space, kind: Kind, name: str, obj: Object) -> None:
    """Delete a child and create an object of the tenant's with its name, as fast as possible."""
    with contextlib.suppress(AssertionError):
        space.delete(kind, name)
    space.api.call("POST", kind.path(space.namespace), {"metadata": {"name": name}, **obj})


def _merge(space: Space, kind: Kind, name: str, body: Object) -> None:
    with contextlib.suppress(AssertionError):
        space.merge(kind, name, body)


def edit_accepted_spec(space: Space, name: str) -> None:
    """Write a spec without GPUs and with many replicas where the operator keeps the accepted one."""
    config_map = space.get(kinds.CONFIG_MAP, f"{name}-balancer")
    if config_map is None or "accepted.json" not in (config_map.get("data") or {}):
        return
    accepted = json.loads(config_map["data"]["accepted.json"])
    accepted["scaling"] = {"minReplicas": MANY, "maxReplicas": MANY}
    _merge(space, kinds.CONFIG_MAP, f"{name}-balancer", {"data": {"accepted.json": json.dumps(accepted)}})


def break_accepted_spec(space: Space, name: str) -> None:
    """Write something there that is no spec."""
    _merge(space, kinds.CONFIG_MAP, f"{name}-balancer", {"data": {"accepted.json": "[" * 10_000}})


def delete_accepted_spec(space: Space, name: str) -> None:
    """Delete the ConfigMap with it."""
    with contextlib.suppress(AssertionError):
        space.delete(kinds.CONFIG_MAP, f"{name}-balancer")


def take_service(space: Space, name: str) -> None:
    """Put a Service of its own in the place of the model's."""
    _take_place(space, kinds.SERVICE, name, {"spec": {"selector": {"theirs": "1"}, "ports": [{"port": 80}]}})


def take_config_map(space: Space, name: str) -> None:
    """Put a ConfigMap of its own in the place of the balancer's."""
    _take_place(space, kinds.CONFIG_MAP, f"{name}-balancer", {"data": {"theirs": "1"}})


def take_service_account(space: Space, name: str) -> None:
    """Put a ServiceAccount of its own in the place of the balancer's."""
    _take_place(space, kinds.SERVICE_ACCOUNT, f"{name}-balancer", {})


def disown_children(space: Space, name: str) -> None:
    """Remove the owner from every child."""
    for kind, child in ((kinds.SERVICE, name), (kinds.CONFIG_MAP, f"{name}-balancer"), (kinds.DEPLOYMENT, f"{name}-a")):
        _merge(space, kind, child, {"metadata": {"ownerReferences": None}})


def relabel_children(space: Space, name: str) -> None:
    """Give the children to a model that does not exist."""
    for kind, child in ((kinds.SERVICE, name), (kinds.DEPLOYMENT, f"{name}-a")):
        _merge(space, kind, child, {"metadata": {"labels": {"serving.halcyon.dev/model-deployment": "none"}}})


def raise_hpa(space: Space, name: str) -> None:
    """Raise the bounds of the HPA."""
    _merge(space, kinds.HPA, name, {"spec": {"minReplicas": MANY, "maxReplicas": MANY}})


def recreate_model(space: Space, name: str) -> None:
    """Delete the model, and create it again at once."""
    with contextlib.suppress(AssertionError):
        space.delete(kinds.MODEL_DEPLOYMENT, name)
    space.try_apply(deployment(name, scaling=SCALING))


def break_and_mend_spec(space: Space, name: str) -> None:
    """Make the spec one that refers to nothing, and right again."""
    missing = {"source": {"configMap": {"name": "none", "items": [{"key": "a", "path": "config.pbtxt"}]}}}
    for model in (missing, deployment()["spec"]["model"]):
        space.try_apply(deployment(name, scaling=SCALING, model=model))


DEEDS: tuple[Callable[[Space, str], None], ...] = (
    edit_accepted_spec,
    break_accepted_spec,
    delete_accepted_spec,
    take_service,
    take_config_map,
    take_service_account,
    disown_children,
    relabel_children,
    raise_hpa,
    recreate_model,
    break_and_mend_spec,
)
"""Deeds that change what the operator writes."""
