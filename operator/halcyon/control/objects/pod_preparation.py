"""Detection of pods whose node takes too long to prepare their volumes, their network or their first image. Pure.

Kubelets without kubernetes/kubernetes#134660 pull an image before they set the condition. Kubelets report the reason
only in Events. The operator has no permission to read Events, so its message names the command that shows them.
"""

from __future__ import annotations

from collections.abc import Iterable

from halcyon.control.objects import pods
from halcyon.kube.kinds import Object
from halcyon.kube.pod_times import condition, scheduled_at

PREPARATION_LIMIT_S = 120.0
"""Seconds after its scheduling after which an unprepared pod is reported. A cloud volume can take a minute to attach."""


def first_unprepared(server_pods: Iterable[Object], now: float) -> str:
    """Return a message about the first pod that its node hasn't prepared in time; empty if there is none.

    `now` is in seconds since the epoch.
    """
    for pod in server_pods:
        since = _waits_since(pod)
        if since is not None and now - since >= PREPARATION_LIMIT_S:
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            return (
                f"node {node} has been preparing pod {meta['name']} (volumes, network, first image) for more than "
                f"{PREPARATION_LIMIT_S:.0f} s; the pod's events show the reason, for example a missing Secret or a slow "
                f"image pull: kubectl describe pod {meta['name']} -n {meta['namespace']}"
            )
    return ""


def due_s(server_pods: Iterable[Object], now: float) -> float | None:
    """Return the seconds until an unprepared pod is reported; None if no pod is about to be reported."""
    times = [since for pod in server_pods if (since := _waits_since(pod)) is not None]
    remaining = [since + PREPARATION_LIMIT_S - now for since in times]
    return min((delay for delay in remaining if delay > 0), default=None)


def _waits_since(pod: Object) -> float | None:
    """Return the time at which an unprepared pod was scheduled; None if its containers could start, or have started."""
    statuses = (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"])
    # After a restart of the node, a container waits, too, and the kubelet counts the restart only when the container runs.
    has_begun = any("waiting" not in c["state"] or c["lastState"] or c["restartCount"] for c in statuses)
    if has_begun or not pods.is_live(pod) or condition(pod, "PodReadyToStartContainers").get("status") != "False":
        return None
    return scheduled_at(pod)
