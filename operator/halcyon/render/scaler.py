"""The HorizontalPodAutoscaler of a model, which bears the ModelDeployment's name."""

from __future__ import annotations

from halcyon.api import defaults
from halcyon.api.spec import Spec
from halcyon.api.types import API_VERSION, KIND
from halcyon.render import names
from halcyon.render.objects import Object, child
from halcyon.render.site import Subject

QUEUE_DEPTH, GPU_UTILIZATION = "queueDepth", "gpuUtilization"


def hpa(subject: Subject, spec: Spec) -> Object:
    """An autoscaling/v2 HPA on the ModelDeployment itself, with each target as an AverageValue.

    Never `Value`: that multiplies by the pods that are there already.
    """
    if spec.scaling is None:
        raise ValueError("a spec without scaling has no HPA")
    targets = defaults.targets(spec)
    metrics = [_external(subject, QUEUE_DEPTH, targets.queue_depth)]
    if targets.gpu_utilization is not None:
        metrics.append(_external(subject, GPU_UTILIZATION, targets.gpu_utilization))
    result = child("autoscaling/v2", "HorizontalPodAutoscaler", subject, subject.name, names.SCALING)
    result["spec"] = {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": subject.name},
        "minReplicas": spec.scaling.min_replicas,
        "maxReplicas": spec.scaling.max_replicas,
        "metrics": metrics,
    }
    if spec.scaling.behavior is not None:
        result["spec"]["behavior"] = spec.scaling.behavior.to_dict()
    return result


def _external(subject: Subject, metric: str, target: int) -> Object:
    return {
        "type": "External",
        "external": {
            "metric": {"name": metric, "selector": {"matchLabels": {names.OWNER_LABEL: subject.name}}},
            "target": {"type": "AverageValue", "averageValue": str(target)},
        },
    }
