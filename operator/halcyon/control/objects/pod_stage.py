"""The stage of a pod, such as `fetching` or `ready`, computed from the cached pod. Pure.

Out of scope: a model's conditions (`control/status/status.py`), and the duration of each part of a start
(`control/status/cold_start.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from halcyon.api.conditions import Reason
from halcyon.api.status import FailureCause
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects import pods
from halcyon.kube.kinds import Object
from halcyon.kube.pod_times import condition
from halcyon.render import names

State = Literal[
    "pending", "pulling", "fetching", "loading", "warming", "ready", "unready", "draining", "failed", "ended"
]
_CAUSES: Final[Mapping[str, FailureCause]] = {cause: cause for cause in get_args(FailureCause)}
_WORD = re.compile(r"\bOOMKilled\b")
"""Pattern of `OOMKilled` in a failed pod's message, the kubelet's reason for a container above its memory limit."""
NODE_LOST: Final = "NodeNotReady"
_QUIET = {"ContainerCreating", "PodInitializing"}
"""Reasons, not shown to users, of containers that wait for other containers or for their own creation."""


@dataclass(frozen=True)
class Stage:
    """Stage of a pod's start, with the reason for it."""

    state: State
    reason: str = ""
    """Reason for the stage in one CamelCase word, for example `Unschedulable`; empty if the stage needs no
    explanation."""
    message: str = ""
    """Message of the scheduler, the kubelet or the fetcher, unchanged."""


def failure_cause(stage: Stage) -> FailureCause | None:
    """Return the failure cause to count for a pod in this stage; None if the pod hasn't failed."""
    if stage.state != "failed":
        return None
    if "OOMKilled" in (stage.reason, *_WORD.findall(stage.message)):
        return "OOMKilled"
    return _CAUSES.get(stage.reason, "Other")


# being   ended    failure       scheduled   Ready   the fetcher    the server's container    state
# deleted
# yes     -        -             -           -       -              -                         draining
# no      failed   -             -           -       -              -                         failed; ended if others ended it
# no      else     -             -           -       -              -                         ended
# no      no       no node       -           -       -              -                         pending  Unschedulable
# no      no       no claim      -           -       -              -                         pending  Unschedulable
# no      no       others' doing -           not     -              -                         pending  StartBlocked
# no      no       other         -           not     -              -                         failed, and why
# no      no       none          no          -       -              -                         pending
# no      no       none          yes         yes     -              -                         ready
# no      no       none          yes         no      runs           -                         fetching
# no      no       none          yes         no      waits          -                         pulling
# no      no       none          yes         no      done, or none  waits                     pulling
# no      no       none          yes         no      done, or none  not `started`             loading
# no      no       none          yes         no      done, or none  `started`, never ready    warming
# no      no       none          yes         no      done, or none  `started`, was ready      unready; so is a balancer that runs
def stage(pod: Object) -> Stage:
    """Return the stage of a server pod or a balancer pod. A balancer pod that runs is either ready or unready."""
    status = pod["status"]
    phase = status.get("phase")
    if pod["metadata"]["deletionTimestamp"] is not None:
        return Stage("draining")
    if phase in {"Failed", "Succeeded"}:
        reason, message = status.get("reason") or "", status.get("message") or ""
        # Others ended it: a drain, preemption, a lack of resources on the node, or the node's shutdown. It is no failure of the pod.
        disrupted = condition(pod, "DisruptionTarget").get("status") == "True"
        is_failure = phase == "Failed" and (not disrupted or reason == "Evicted")
        return Stage("failed", reason or "Failed", message) if is_failure else Stage("ended", reason, message)
    if pods.is_unplaced(pod) or pods.missing_claim(pod):
        failure = pods.failure([pod])
        return Stage("pending", "Unschedulable", failure.message if failure else "")
    if pods.is_ready(pod):
        return Stage("ready")
    if (failure := pods.failure([pod])) is not None:
        state: State = "pending" if failure.reason is Reason.START_BLOCKED else "failed"
        return Stage(state, str(failure.reason), failure.message)
    if condition(pod, "PodScheduled").get("status") != "True":
        return Stage("pending")
    return _starting(pod)


def _starting(pod: Object) -> Stage:
    status = pod["status"]
    for container in status["initContainerStatuses"]:
        state = container["state"]
        if "running" in state and container["name"] == names.FETCHER:
            return Stage("fetching")
        if not state.keys() & {"running", "terminated"}:
            return Stage("pulling", "", _waiting(state))
    server: Object = next(iter(status["containerStatuses"]), {"state": {}})
    state = server["state"]
    if "running" not in state:
        return Stage("pulling", "", _waiting(state))
    ready = condition(pod, "Ready")
    started, changed = epoch_seconds(state["running"].get("startedAt")), epoch_seconds(ready.get("lastTransitionTime"))
    # Ready is False from a pod's creation on. If it changed after the container's start, it was True in between.
    was_ready = started is not None and changed is not None and changed - started > 1
    if was_ready or pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.BALANCER:
        # For a node that no longer responds, Kubernetes changes only this condition, without a reason.
        if server["ready"] and not ready.get("reason"):
            return Stage("unready", NODE_LOST, f"node {pod['spec'].get('nodeName')} does not respond")
        return Stage("unready", "", str(ready.get("message") or ""))
    return Stage("warming" if server.get("started") else "loading")


def _waiting(state: Object) -> str:
    reason = str((state.get("waiting") or {}).get("reason") or "")
    return "" if reason in _QUIET else reason
