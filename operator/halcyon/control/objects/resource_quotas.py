"""Number of pods of a model that the ResourceQuotas of its namespace allow. Pure.

Halcyon limits the replicas to this number, because a pod that a quota rejects is never created and appears in no pod
list. The number of free GPUs doesn't limit the replicas, because a pending pod makes a node autoscaler add nodes. The
rules for the usage of quotas and for their scopes are those in Kubernetes:
k8s.io/kubernetes/pkg/quota/v1/evaluator/core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from halcyon.api.resource_limit import ResourceLimit
from halcyon.api.types import quantity
from halcyon.kube.kinds import Object

_PLAIN = ("cpu", "memory", "ephemeral-storage")
"""Resources that a ResourceQuota may name with or without the prefix `requests.`"""
_NONE = Decimal(0)


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """Tightest limit of the ResourceQuotas: the maximum number of pods, with the quota that sets it and its amounts."""

    pods: int
    quota: str
    """Name of the ResourceQuota that sets the limit."""
    resource: str
    hard: str
    used: str
    granted: str = "0"
    """Amount of the resource for pods that were granted to other models, and that the quota doesn't count yet."""

    def describe(self) -> str:
        """Return a message about the limit.

        Example: `ResourceQuota team allows 5: requests.nvidia.com/gpu is 4 of 4 used`.
        """
        message = f"ResourceQuota {self.quota} allows {self.pods}: {self.resource} is {self.used} of {self.hard} used"
        return message if self.granted == "0" else f"{message}, and {self.granted} are granted to other models"


def project(quota: Object) -> Object:
    """Return the fields of a ResourceQuota that the caches keep."""
    meta, spec, status = quota["metadata"], quota.get("spec") or {}, quota.get("status") or {}
    return {
        "metadata": {key: meta.get(key) for key in ("namespace", "name", "uid", "resourceVersion")},
        "spec": {key: spec[key] for key in ("scopes", "scopeSelector") if spec.get(key)},
        "status": {key: status.get(key) or {} for key in ("hard", "used")},
    }


@dataclass(frozen=True, slots=True)
class Promised:
    """Pods that were granted to another model, and that the quota doesn't count yet."""

    template: Mapping[str, Any]
    """Spec of the pods that were granted to the other model."""
    pods: int


def tightest_limit(
    quotas: Iterable[Object], template: Mapping[str, Any], *, present: int, promised: Iterable[Promised] = ()
) -> QuotaLimit | None:
    """Return the tightest limit of the quotas for pods of a model with this template; None if no quota limits them.

    `present` is the number of the model's existing pods, which the quotas count already. The limit is at least
    this. `promised` are pods of other models that will be created before those of this model.
    """
    amounts = charges(template)
    grants = [(other, charges(other.template)) for other in promised]
    limits = [
        QuotaLimit(present + free, quota["metadata"]["name"], resource, str(hard), str(used), f"{other.normalize():f}")
        for quota in quotas
        if _is_for(quota.get("spec") or {}, template, amounts)
        for resource, hard in quota["status"]["hard"].items()
        for used in [quota["status"]["used"].get(resource, "0")]
        for other in [_granted_amount(quota.get("spec") or {}, resource, grants)]
        if (free := _free(hard, used, amounts.get(resource), other)) is not None
    ]
    return min(limits, key=lambda limit: (limit.pods, limit.quota, limit.resource), default=None)


def charges(template: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the amounts that one pod adds to a quota's usage, by the resource's name in the quota.

    An amount is the sum over the containers and sidecars, or the amount of the largest init container if that is more.
    """
    amounts = {"pods": Decimal(1), "count/pods": Decimal(1)}
    if claims := sum("resourceClaimTemplateName" in claim for claim in template.get("resourceClaims") or ()):
        # Quotas on the devices of a class count, too, but only the template names the class.
        amounts["count/resourceclaims.resource.k8s.io"] = Decimal(claims)
    init_containers = template.get("initContainers") or ()
    sidecars = [container for container in init_containers if container.get("restartPolicy") == "Always"]
    for kind in ("requests", "limits"):
        main = [_resources(container, kind) for container in (*(template.get("containers") or ()), *sidecars)]
        init = [_resources(container, kind) for container in init_containers]
        for name in {name for part in (*main, *init) for name in part}:
            sums = [sum((part.get(name, _NONE) for part in main), _NONE)]
            total = max([*sums, *(part.get(name, _NONE) for part in init)])
            amounts[f"{kind}.{name}"] = total
            if kind == "requests" and name in _PLAIN:
                amounts[name] = total
    return amounts


def _resources(container: Mapping[str, Any], kind: str) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    # A missing request defaults to the limit, as in the API server.
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})} if kind == "requests" else None
    return {name: quantity(text) for name, text in (requests or resources.get(kind) or {}).items()}


def _granted_amount(spec: Object, resource: str, grants: Iterable[tuple[Promised, dict[str, Decimal]]]) -> Decimal:
    """Return the amount of a resource that a quota must provide for pods granted to other models."""
    counted = ((pods, amounts) for pods, amounts in grants if _is_for(spec, pods.template, amounts))
    return sum((pods.pods * amounts.get(resource, _NONE) for pods, amounts in counted), _NONE)


def _free(hard: object, used: object, amount: Decimal | None, granted: Decimal) -> int | None:
    """Return how many more pods a quota allows.

    Return None if the pods don't use the resource, or if the quota's numbers are invalid.
    """
    if not amount:
        return None
    try:
        return ResourceLimit(quantity(str(hard)), quantity(str(used)) + granted).replicas(amount)
    except ValueError:
        return None


def _is_for(spec: Mapping[str, Any], template: Mapping[str, Any], amounts: Mapping[str, Decimal]) -> bool:
    """Return whether a quota counts a pod with this spec. It does if all scopes of the quota match."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_matches(scope, template, amounts) for scope in scopes)


def _matches(scope: Mapping[str, Any], template: Mapping[str, Any], amounts: Mapping[str, Decimal]) -> bool:
    best_effort = not any(name in amounts for name in ("requests.cpu", "requests.memory"))
    match scope.get("scopeName"):
        case "NotTerminating":
            return template.get("activeDeadlineSeconds") is None
        case "Terminating":
            return template.get("activeDeadlineSeconds") is not None
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return _has_priority(scope, template.get("priorityClassName"))
    # A scope of a later Kubernetes version: ignore the quota. A missed limit is visible, as pods can't be created. A wrong limit
    # would keep replicas low without need.
    return False


def _has_priority(scope: Mapping[str, Any], name: str | None) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return name is not None
        case "DoesNotExist":
            return name is None
    return False
