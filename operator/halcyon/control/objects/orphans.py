"""Orphans: objects that Halcyon wrote for a ModelDeployment, and that have no owner now. Pure.

A restore from a backup creates objects without their owner references, and a deletion with --cascade=orphan removes them. The
ModelDeployment of the same name then adopts its orphans (`control/reconcile/adoption.py`). An object with any owner isn't an orphan: the
owner exists, or Kubernetes deletes the object.
"""

# kind                     what an orphan must have, beside Halcyon's labels for this model and the digest of what was applied
# Deployment               the selector of its name, which can't be changed
# RoleBinding              the Role of its name, which can't be changed
# ControllerRevision       the name for the key in its data, which can't be changed
# ConfigMap, immutable     the name for its content: an overlay, or a copy of a model's files
# ConfigMap, else          the name of the balancers' ConfigMap
# else                     a name that the model needs (`child_names.every_child`)

from __future__ import annotations

from halcyon.kube import kinds
from halcyon.kube.apply_diff import DIGEST
from halcyon.kube.kinds import Kind, Object
from halcyon.render import names


def is_orphan(obj: Object, kind: Kind, model: str) -> bool:
    """Return whether Halcyon wrote this object for a model, and it has no owner and isn't being deleted.

    `obj` has a name that the model needs, or is a ControllerRevision or ConfigMap of any name.
    """
    meta = obj["metadata"]
    if meta.get("ownerReferences") or meta.get("deletionTimestamp"):
        return False
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    is_written = {names.OWNER_LABEL: model, names.MANAGER_LABEL: names.MANAGER}.items() <= labels.items()
    return is_written and DIGEST in annotations and _has_fixed_fields(obj, kind, model)


def _has_fixed_fields(obj: Object, kind: Kind, model: str) -> bool:
    """Return whether the fields that no write can change are those that Halcyon writes under this name."""
    name = obj["metadata"]["name"]
    if kind is kinds.DEPLOYMENT:
        selectors = {names.balancer(model): names.selector(model, names.BALANCER)}
        selectors |= {names.server(model, slot): names.selector(model, names.SERVER, slot) for slot in names.SLOTS}
        return bool(obj["spec"].get("selector") == {"matchLabels": selectors.get(name)})
    if kind is kinds.ROLE_BINDING:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.balancer(model)}
        return bool(obj.get("roleRef") == role)
    if kind is kinds.CONTROLLER_REVISION:
        data = obj.get("data")
        return isinstance(data, dict) and name == names.revision(model, str(data.get("key")))
    if kind is kinds.CONFIG_MAP:
        return _is_own_config_map(obj, model)
    return True


def _is_own_config_map(obj: Object, model: str) -> bool:
    name, data, binary = obj["metadata"]["name"], obj.get("data") or {}, obj.get("binaryData") or {}
    if not obj.get("immutable"):
        return bool(name == names.balancer(model))
    is_overlay = data.keys() == {"overlay.json"} and not binary and name == names.overlay(model, data["overlay.json"])
    return is_overlay or bool(name == names.snapshot(model, [data, binary]))
