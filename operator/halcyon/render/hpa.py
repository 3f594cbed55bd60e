"""HorizontalPodAutoscaler of a model, which has the same name as the ModelDeployment."""

from __future__ import annotations

from halcyon.api.spec import Spec, defaults
from halcyon.api.types import API_VERSION, KIND
from halcyon.render import names
from halcyon.render.metadata import Object, child
from halcyon.render.site import Subject

QUEUE_DEPTH, GPU_UTILIZATION, DESIRED_REPLICAS = "queueDepth", "gpuUtilization", "desiredReplicas"
CONCURRENCY, METRIC = "concurrency", "metric"
_OPEN: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}],
}
"""Behaviour of an HPA that doesn't limit the pace of scaling. The planner limits it already, and a second limit would
only add delay."""
_EXACT: Object = {**_OPEN, "tolerance": "0"}
"""Behaviour of an HPA that doesn't limit the pace of scaling and has a tolerance of 0. Kubernetes supports this field
since release 1.33. With the default tolerance of 10 %, an HPA would keep 10 replicas when 11 are desired."""
_SHUT: Object = {"selectPolicy": "Disabled"}


def hpa(subject: Subject, spec: Spec, *, tolerance: bool, hold: bool = False) -> Object:
    """Build an autoscaling/v2 HPA that targets the ModelDeployment.

    With the Planner policy, the only metric is the desired replicas, with a target of 1 per replica. With the Rules
    policy, there is one metric per target. The target type is `AverageValue`, because the HPA multiplies a `Value` by
    the number of existing pods. Unless the mode is Active, the HPA can't scale.

    `tolerance` is true if HPAs of this cluster have the field `tolerance`, and `hold` if scaling down is disabled.
    """
    if spec.scaling is None:
        raise ValueError("no HPA can be rendered for a spec without scaling")
    result = child("autoscaling/v2", "HorizontalPodAutoscaler", subject, subject.name, names.SCALING)
    result["spec"] = {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": subject.name},
        # An HPA does not scale to 0, and is inactive while replicas are 0. The operator scales to and from 0.
        "minReplicas": max(defaults.least_replicas(spec, spec.scaling), 1),
        "maxReplicas": spec.scaling.max_replicas,
    }
    if defaults.policy(spec) == "Planner":
        result["spec"]["metrics"] = [_external(subject, DESIRED_REPLICAS, 1)]
        pace = _SHUT if spec.scaling.mode != "Active" else _EXACT if tolerance else _OPEN
        result["spec"]["behavior"] = {"scaleUp": pace, "scaleDown": _SHUT if hold else pace}
        return result
    targets = defaults.targets(spec)
    by_metric = {QUEUE_DEPTH: targets.queue_depth, GPU_UTILIZATION: targets.gpu_utilization}
    by_metric |= {CONCURRENCY: targets.concurrency, METRIC: targets.metric}
    metrics = [_external(subject, name, value) for name, value in by_metric.items() if value is not None]
    result["spec"]["metrics"] = metrics
    if spec.scaling.mode != "Active":
        result["spec"]["behavior"] = {"scaleUp": _SHUT, "scaleDown": _SHUT}
    elif spec.scaling.behavior is not None:
        result["spec"]["behavior"] = spec.scaling.behavior.to_dict()
    if hold:
        result["spec"]["behavior"] = {**result["spec"].get("behavior", {}), "scaleDown": _SHUT}
    return result


def is_shut(obj: Object) -> bool:
    """Return whether an HPA can't scale at all, because the model's scaling mode isn't Active."""
    behavior = (obj.get("spec") or {}).get("behavior") or {}
    return all((behavior.get(key) or {}).get("selectPolicy") == "Disabled" for key in ("scaleUp", "scaleDown"))


def _external(subject: Subject, metric: str, target: int) -> Object:
    return {
        "type": "External",
        "external": {
            "metric": {"name": metric, "selector": {"matchLabels": {names.OWNER_LABEL: subject.name}}},
            "target": {"type": "AverageValue", "averageValue": str(target)},
        },
    }
