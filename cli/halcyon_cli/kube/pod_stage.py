"""A pod, as the API server has it -> what it is doing, in one word, and why. Pure.

Not here: what that is by (`control.stages`), what is drawn of it (`tree`), and what a model's conditions say (`control.status`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.control.objects import pod_stage, pods
from halcyon.control.objects.pod_stage import Stage, State
from halcyon_cli.kube import fields

__all__ = ["Stage", "State", "stage"]
Json = Mapping[str, Any]


def stage(pod: Json) -> Stage:
    """What this pod is doing."""
    return pod_stage.stage(pods.project(_complete(pod)))


def _complete(pod: Json) -> dict[str, Any]:
    """The pod with what every pod has, each part of the form that it has; one that another program has written may lack any of it."""
    meta, status = fields.mapping(pod.get("metadata")), fields.mapping(pod.get("status"))
    texts = ("namespace", "name", "uid", "resourceVersion")
    return {
        "metadata": {
            **{key: fields.text(meta.get(key)) or "" for key in texts},
            "labels": fields.mapping(meta.get("labels")),
            "deletionTimestamp": fields.text(meta.get("deletionTimestamp")),
        },
        "spec": fields.mapping(pod.get("spec")),
        "status": {
            **{key: fields.text(status.get(key)) for key in ("phase", "reason", "message")},
            "conditions": [_scalars(one) for one in fields.mappings(status.get("conditions"))],
            "initContainerStatuses": _containers(status.get("initContainerStatuses")),
            "containerStatuses": _containers(status.get("containerStatuses")),
        },
    }


def _containers(value: object) -> list[Json]:
    return [
        {
            "name": fields.text(one.get("name")) or "",
            "image": fields.text(one.get("image")),
            "started": one.get("started") is True,
            "restartCount": fields.count(one.get("restartCount")) or 0,
            "state": _state(one.get("state")),
            "lastState": _state(one.get("lastState")),
        }
        for one in fields.mappings(value)
    ]


def _state(value: object) -> Json:
    """What a container does: one word, and what belongs to it."""
    return {str(word): _scalars(told) for word, told in fields.mapping(value).items() if isinstance(told, Mapping)}


def _scalars(value: Json) -> dict[str, Any]:
    return {str(key): told for key, told in value.items() if isinstance(told, str | int)}
