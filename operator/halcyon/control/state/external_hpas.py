"""Lookup of external HPAs by their scale target: a ModelDeployment or one of its server Deployments."""

from __future__ import annotations

from collections.abc import Iterable

from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.informers.informer import Informer
from halcyon.kube.kinds import Key

_DEPLOYMENT = "deployment/"
"""Prefix of the index value of an HPA that scales a Deployment. The rest of the value is the Deployment's name."""


def scale_targets(hpa: Object) -> Iterable[str]:
    """Yield the index value of an HPA: the name of a scaled ModelDeployment, or `deployment/NAME`."""
    target = hpa["spec"]["scaleTargetRef"]
    if target.get("kind") == kinds.MODEL_DEPLOYMENT.kind:
        yield target["name"]
    elif target.get("kind") == kinds.DEPLOYMENT.kind:
        yield f"{_DEPLOYMENT}{target['name']}"


def deployment_name(target: str) -> str | None:
    """Return the name of the Deployment in an index value; None if the value is not for a Deployment."""
    return target.removeprefix(_DEPLOYMENT) if target.startswith(_DEPLOYMENT) else None


def foreign_hpas(hpas: Informer, key: Key, uid: str) -> list[Object]:
    """Return the HPAs that scale a ModelDeployment but aren't owned by it. `uid` is the uid of the ModelDeployment."""
    return [hpa for hpa in hpas.find(key.namespace, key.name) if not belongs(hpa, uid)]


def hpas_of_deployment(hpas: Informer, namespace: str, name: str) -> list[Object]:
    """Return the HPAs that scale a Deployment."""
    return list(hpas.find(namespace, f"{_DEPLOYMENT}{name}"))


def hpa_name(hpa: Object) -> str:
    """Return an HPA's kind and name for messages, with its controlling owner, such as a KEDA ScaledObject."""
    owners = hpa["metadata"].get("ownerReferences") or ()
    creator = next((f" of {o['kind']} {o['name']}" for o in owners if o.get("controller")), "")
    return f"HorizontalPodAutoscaler {hpa['metadata']['name']}{creator}"
