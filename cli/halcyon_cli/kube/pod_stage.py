"""Stage of a pod read from the API server, in one word, with the reason. Pure.

Out of scope: the definition of the stages (`control.objects.pod_stage`), the tree (`output.tree`), and conditions
(`control.status`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.control.objects import pod_stage, pods
from halcyon.control.objects.pod_stage import Stage, State, failure_cause
from halcyon_cli.kube import fields

__all__ = ["Stage", "State", "failure_cause", "stage"]
Json = Mapping[str, Any]


def stage(pod: Json) -> Stage:
    """Return the stage of a pod."""
    return pod_stage.stage(pods.project(_complete(pod)))


def _complete(pod: Json) -> dict[str, Any]:
    """Return the pod with every field that the operator's code expects, and with values of the right type.

    Writers other than the API server may omit some of these fields.
    """
    meta, spec, status = (fields.mapping(pod.get(part)) for part in ("metadata", "spec", "status"))
    texts = ("namespace", "name", "uid", "resourceVersion")
    return {
        "metadata": {
            **{key: fields.text(meta.get(key)) or "" for key in texts},
            "labels": fields.mapping(meta.get("labels")),
            "deletionTimestamp": fields.text(meta.get("deletionTimestamp")),
        },
        "spec": {
            **{key: fields.mappings(spec.get(key)) for key in ("resourceClaims", "schedulingGates", "volumes")},
            "nodeName": fields.text(spec.get("nodeName")),
        },
        "status": {
            **{key: fields.text(status.get(key)) for key in ("phase", "reason", "message", "startTime")},
            "conditions": [_scalars(entry) for entry in fields.mappings(status.get("conditions"))],
            "resourceClaimStatuses": fields.mappings(status.get("resourceClaimStatuses")),
            "initContainerStatuses": _containers(status.get("initContainerStatuses")),
            "containerStatuses": _containers(status.get("containerStatuses")),
        },
    }


def _containers(value: object) -> list[Json]:
    return [
        {
            "name": fields.text(entry.get("name")) or "",
            "image": fields.text(entry.get("image")),
            "started": entry.get("started") is True,
            "ready": entry.get("ready") is True,
            "restartCount": fields.count(entry.get("restartCount")) or 0,
            "state": _state(entry.get("state")),
            "lastState": _state(entry.get("lastState")),
        }
        for entry in fields.mappings(value)
    ]


def _state(value: object) -> Json:
    """Return a container's state in the API's form: one key, such as `running`, with its fields."""
    return {str(key): _scalars(item) for key, item in fields.mapping(value).items() if isinstance(item, Mapping)}


def _scalars(value: Json) -> dict[str, Any]:
    return {str(key): item for key, item in value.items() if isinstance(item, str | int)}
