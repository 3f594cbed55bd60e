"""A pod, as the API server has it -> what it is doing, in one word, and why. Pure.

Not here: what is drawn of it (`tree`), and what a model's conditions say (`control.status`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from halcyon.cli import lenient
from halcyon.control import pods

State = Literal[
    "pending", "pulling", "fetching", "loading", "warming", "ready", "unready", "draining", "failed", "ended"
]
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """What a pod is doing."""

    state: State
    reason: str = ""
    """One word; empty where the state says it all."""
    message: str = ""
    """The scheduler's, the kubelet's or the fetcher's own."""


# going   ended    trouble       scheduled   Ready   the fetcher    the server's container    state
# yes     -        -             -           -       -              -                         draining
# no      failed   -             -           -       -              -                         failed
# no      else     -             -           -       -              -                         ended
# no      no       no room       -           -       -              -                         pending  Unschedulable
# no      no       other         -           not     -              -                         failed, and why
# no      no       none          no          -       -              -                         pending
# no      no       none          yes         yes     -              -                         ready
# no      no       none          yes         no      runs           -                         fetching
# no      no       none          yes         no      waits          -                         pulling
# no      no       none          yes         no      done, none     waits                     pulling
# no      no       none          yes         no      done, none     has not started up        loading
# no      no       none          yes         no      done, none     has; was never ready      warming
# no      no       none          yes         no      done, none     has; was ready before     unready
def stage(pod: Json) -> Stage:
    """What this pod is doing; of a pod of a balancer too, which loads and warms nothing."""
    whole = _complete(pod)
    kept, status = pods.project(whole), whole["status"]
    phase = status.get("phase")
    if kept["metadata"]["deletionTimestamp"] is not None:
        return Stage("draining")
    if phase in {"Failed", "Succeeded"}:
        word, said = (lenient.text(status.get(name)) or "" for name in ("reason", "message"))
        return Stage("failed", word or "Failed", said) if phase == "Failed" else Stage("ended", word, said)
    if pods.is_unschedulable(kept):
        found = pods.trouble([kept])
        return Stage("pending", "Unschedulable", found.message if found else "")
    if pods.is_ready(kept):
        return Stage("ready")
    if (found := pods.trouble([kept])) is not None:
        return Stage("failed", str(found.reason), found.message)
    if _condition(whole, "PodScheduled").get("status") != "True":
        return Stage("pending")
    return _starting(whole)


def _starting(pod: Json) -> Stage:
    status = pod["status"]
    for container in status["initContainerStatuses"]:
        state = lenient.mapping(container.get("state"))
        if "running" in state:
            return Stage("fetching")
        if "terminated" not in state:
            return Stage("pulling", "", _waiting(state))
    server: Json = next(iter(status["containerStatuses"]), {})
    state = lenient.mapping(server.get("state"))
    if "running" not in state:
        return Stage("pulling", "", _waiting(state))
    began = lenient.time(lenient.mapping(state["running"]).get("startedAt"))
    changed = lenient.time(_condition(pod, "Ready").get("lastTransitionTime"))
    # A pod's Ready is False from its creation on: a change after the start is one from True.
    if began is not None and changed is not None and changed - began > timedelta(seconds=1):
        return Stage("unready", "", _message(pod, "Ready"))
    return Stage("warming" if server.get("started") else "loading")


def _waiting(state: Json) -> str:
    said = lenient.mapping(state.get("waiting"))
    reason = lenient.text(said.get("reason")) or ""
    # What every container says that waits its turn is no news.
    return "" if reason in {"ContainerCreating", "PodInitializing"} else reason


def _condition(pod: Json, wanted: str) -> Json:
    return next((c for c in pod["status"]["conditions"] if c.get("type") == wanted), {})


def _message(pod: Json, wanted: str) -> str:
    return lenient.text(_condition(pod, wanted).get("message")) or ""


def _complete(pod: Json) -> dict[str, Any]:
    """The pod with what every pod has, each part of the form that it has; one that another program has written may lack any of it."""
    meta, status = lenient.mapping(pod.get("metadata")), lenient.mapping(pod.get("status"))
    texts = ("namespace", "name", "uid", "resourceVersion")
    return {
        "metadata": {
            **{key: lenient.text(meta.get(key)) or "" for key in texts},
            "labels": lenient.mapping(meta.get("labels")),
            "deletionTimestamp": lenient.text(meta.get("deletionTimestamp")),
        },
        "spec": lenient.mapping(pod.get("spec")),
        "status": {
            **{key: lenient.text(status.get(key)) for key in ("phase", "reason", "message")},
            "conditions": [_scalars(one) for one in lenient.mappings(status.get("conditions"))],
            "initContainerStatuses": _containers(status.get("initContainerStatuses")),
            "containerStatuses": _containers(status.get("containerStatuses")),
        },
    }


def _containers(value: object) -> list[Json]:
    return [
        {
            "name": lenient.text(one.get("name")) or "",
            "image": lenient.text(one.get("image")),
            "started": one.get("started") is True,
            "restartCount": lenient.count(one.get("restartCount")) or 0,
            "state": _state(one.get("state")),
            "lastState": _state(one.get("lastState")),
        }
        for one in lenient.mappings(value)
    ]


def _state(value: object) -> Json:
    """What a container does: one word, and what belongs to it."""
    return {str(word): _scalars(told) for word, told in lenient.mapping(value).items() if isinstance(told, Mapping)}


def _scalars(value: Json) -> dict[str, Any]:
    return {str(key): told for key, told in value.items() if isinstance(told, str | int)}
