"""Detection of scheduling gates and containers that others have added and that keep a pod from becoming ready. Pure.

Admission webhooks add service meshes, log collectors and secrets as containers or init containers, in any position.
Such a container isn't the model's: its failure is reported, but no revision fails because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halcyon.api.timestamps import epoch_seconds
from halcyon.kube.kinds import Object
from halcyon.kube.pod_times import scheduled_at

Json = Mapping[str, Any]
_CREATING = {"", "PodInitializing", "ContainerCreating"}
"""Reasons of waiting containers that only mean that other containers run first."""


def start_blocker(pod: Object) -> str:
    """Return a message about a scheduling gate or injected container that blocks the pod; empty if there is none.

    A scheduling gate takes precedence over containers. An injected container that fails takes precedence over one that
    isn't ready or hasn't ended.
    """
    # pod            our containers       injected containers                result
    # has a gate     -                    -                                  the gate
    # -              -                    one fails                          its failure
    # -              not created          an init container hasn't ended     the container
    # -              done or ready        one isn't ready                    the container
    # else                                                                   (empty)
    if gates := pod["status"].get("gates"):
        return f"scheduling gate {', '.join(gates)}"
    injected = pod["status"].get("injected") or ()
    if message := next(filter(None, map(_failure, injected)), ""):
        return message
    init, main = pod["status"]["initContainerStatuses"], pod["status"]["containerStatuses"]
    if not _any_begun((*init, *main)):
        blocker = next((c for c in injected if c["init"] and not _is_over(c)), None)
        return f"{_name(blocker)} has not ended" if blocker else ""
    unready = next((c for c in injected if not c["init"] and not c["ready"]), None)
    return f"{_name(unready)} is not ready" if unready and main and all(c["started"] for c in main) else ""


def released_at(pod: Object) -> float | None:
    """Return the time from which the pod's own containers could start, in seconds since the epoch.

    Return None if the pod has no node. The containers could start once the pod was scheduled and the injected init
    containers had ended.
    """
    scheduled = scheduled_at(pod)
    if scheduled is None:
        return None
    ends = (
        epoch_seconds((c["state"].get("terminated") or {}).get("finishedAt"))
        for c in pod["status"].get("injected") or ()
        if c["init"]
    )
    return max([scheduled, *(at for at in ends if at is not None)])


def _any_begun(containers: Iterable[Json]) -> bool:
    return any(
        "running" in c["state"]
        or "terminated" in c["state"]
        or c["restartCount"]
        or (c["state"].get("waiting") or {}).get("reason", "") not in _CREATING
        for c in containers
    )


def _is_over(container: Json) -> bool:
    """Return whether the next init container can start: this one has succeeded, or is a sidecar that has started."""
    ended = container["state"].get("terminated")
    return bool(container["started"]) if ended is None else not ended.get("exitCode")


def _failure(container: Json) -> str:
    if container["ready"]:
        return ""
    waiting = container["state"].get("waiting") or {}
    terminated = container["state"].get("terminated") or container["lastState"].get("terminated") or {}
    if (reason := waiting.get("reason") or "") not in _CREATING:
        return f"{_name(container)} is waiting: {reason}: {waiting.get('message') or container.get('image')}"
    if not terminated.get("exitCode"):
        return ""
    text = f"terminated: {terminated.get('reason') or 'Error'} (exit code {terminated['exitCode']})"
    return f"{_name(container)} {text}, {container['restartCount']} restarts"


def _name(container: Json) -> str:
    kind = "init container" if container["init"] else "container"
    return f"{kind} {container['name']}, which was added to the pod by an admission webhook and not by Halcyon,"
