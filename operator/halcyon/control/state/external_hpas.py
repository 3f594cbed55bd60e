"""Lookup of external HPAs by their scale target: a ModelDeployment or one of its server Deployments."""

from __future__ import annotations

from collections.abc import Iterable

from halcyon.api.types import GROUP
from halcyon.control.objects.orphans import is_orphan
from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key

_DEPLOYMENT = "deployment/"
"""Prefix of the index value of an HPA that scales a Deployment. The Deployment's name follows the prefix."""


def scale_targets(hpa: Object) -> Iterable[str]:
    """Yield the index value of an HPA.

    It is the name of the ModelDeployment that the HPA scales, or `deployment/NAME` for a Deployment. HPAs that scale
    other kinds have no index value.
    """
    target = hpa["spec"]["scaleTargetRef"]
    group = str(target.get("apiVersion") or "").partition("/")[0]
    if target.get("kind") == kinds.MODEL_DEPLOYMENT.kind and group in {"", GROUP}:
        yield target["name"]
    elif target.get("kind") == kinds.DEPLOYMENT.kind and group in {"", "apps", "extensions"}:
        yield f"{_DEPLOYMENT}{target['name']}"


def deployment_name(target: str) -> str | None:
    """Return the Deployment's name in an index value; None if the value is for another kind."""
    return target.removeprefix(_DEPLOYMENT) if target.startswith(_DEPLOYMENT) else None


def hpas_of_model(hpas: Informer, key: Key, uid: str) -> list[Object]:
    """Return the HPAs that scale a ModelDeployment, except its own, which it owns or adopts. `uid` is its uid."""
    return [
        hpa for hpa in hpas.find(key.namespace, key.name) if not belongs(hpa, uid) and not _is_orphan(hpa, key.name)
    ]


def _is_orphan(hpa: Object, name: str) -> bool:
    return hpa["metadata"]["name"] == name and is_orphan(hpa, kinds.HPA, name)


def hpas_of_deployment(hpas: Informer, namespace: str, name: str) -> list[Object]:
    """Return all HPAs that scale a Deployment."""
    return list(hpas.find(namespace, f"{_DEPLOYMENT}{name}"))


def hpa_name(hpa: Object) -> str:
    """Return an HPA's kind, name and controlling owner, such as a KEDA ScaledObject, for messages."""
    owners = hpa["metadata"].get("ownerReferences") or ()
    creator = next((f" of {o['kind']} {o['name']}" for o in owners if o.get("controller")), "")
    return f"HorizontalPodAutoscaler {hpa['metadata']['name']}{creator}"
