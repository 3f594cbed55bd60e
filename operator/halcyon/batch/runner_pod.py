"""Pod of a batch runner: its selection, the reason why it doesn't run, and the runner's progress.

Pure, except for `poll`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp

from halcyon.api.documents.batch_documents import MAX_BYTES, PATH, PORT, BatchDocumentError, BatchProgress
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.batch.job import CONTAINER, is_suspended_by_others
from halcyon.kube.kinds import Object

POLL_TIMEOUT_S = 3.0
POD_TIMEOUT_S = 30.0
"""Time after which a missing pod is reported, in seconds. It is also the interval of checks while no runner runs."""
_JOB_UID = "batch.kubernetes.io/controller-uid"
"""Label of a pod with the uid of its Job, which Kubernetes sets."""


def project(pod: Object) -> Object:
    """Return the fields of a runner's pod that the cache keeps."""
    meta, status = pod["metadata"], pod.get("status") or {}
    fields = ("namespace", "name", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp")
    return {
        "metadata": {name: meta.get(name) for name in fields},
        "status": {name: status.get(name) for name in ("phase", "podIP", "conditions", "containerStatuses", "message")},
    }


def current(pods: Iterable[Object]) -> Object | None:
    """Return the newest pod that isn't being deleted; None if there is none."""
    live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return max(live, key=lambda pod: (str(pod["metadata"]["creationTimestamp"]), pod["metadata"]["name"]), default=None)


def address(pod: Object | None) -> str | None:
    """Return the IP address of a running pod; None if there is no pod or it doesn't run."""
    status = pod["status"] if pod else {}
    return str(status["podIP"]) if status.get("phase") == "Running" and status["podIP"] else None


def pending(pod: Object | None) -> str:
    """Return the reason why the runner's pod doesn't run; empty if it runs or has succeeded."""
    if pod is None:
        return "the runner's pod is being created"
    phase = pod["status"]["phase"]
    if phase == "Running" and any("running" in state for state in _states(pod, own=True)):
        return ""  # whatever the containers of others do
    starting = "" if phase in {"Running", "Succeeded"} else "the runner's pod is starting"
    return _eviction(pod) or _container_failure(pod) or _scheduling_failure(pod) or starting


def _eviction(pod: Object) -> str:
    """Return the kubelet's message about a failed pod, for example about an eviction; empty if there is none."""
    status = pod["status"]
    if status["phase"] != "Failed" or not status.get("message"):
        return ""
    return f"{pod['metadata']['name']} has ended: {status['message'].strip()}"


def _container_failure(pod: Object) -> str:
    """Return what the first container that doesn't run waits for, or how it has ended; empty if there is none."""
    return next(filter(None, (_waiting(pod, state) or _exit(pod, state) for state in _states(pod))), "")


def _waiting(pod: Object, state: Mapping[str, Any]) -> str:
    name, waiting = pod["metadata"]["name"], state.get("waiting") or {}
    if waiting.get("reason") == "ContainerCreating":
        return f"{name}: ContainerCreating: if this lasts, a Secret or ConfigMap may be missing; kubectl describe pod {name}"
    return _with_message(name, waiting) if waiting.get("reason") else ""


def _exit(pod: Object, state: Mapping[str, Any]) -> str:
    ended = state.get("terminated") or {}
    if not ended.get("exitCode"):
        return ""
    progress = last_progress(pod)
    cause = f": {progress.message}" if progress is not None and progress.message else ""
    return f"{pod['metadata']['name']} has ended with {ended.get('reason')}, exit code {ended['exitCode']}{cause}"


def _scheduling_failure(pod: Object) -> str:
    """Return why no node takes the pod, from the condition of the scheduler; empty if it reports no failure."""
    failures = (
        condition
        for condition in pod["status"].get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    )
    return next((_with_message(pod["metadata"]["name"], failure) for failure in failures), "")


def _with_message(name: str, state: Mapping[str, Any]) -> str:
    return f"{name}: {state.get('reason')}: {state.get('message') or 'no message'}"


def pending_of_job(job: Object | None, pod: Object | None, now: float) -> str:
    """Return the reason why the runner of a Job doesn't run; empty if it runs or has succeeded.

    `now` is in seconds since the epoch. The reason why a Job has no pod is only in an Event that the operator may not
    read.
    """
    if pod is not None or job is None:
        return pending(pod)
    name, started = job["metadata"]["name"], epoch_seconds((job.get("status") or {}).get("startTime"))
    if is_suspended_by_others(job):
        return f"Job {name} is suspended by another controller, for example Kueue, or by a user"
    if started is None or now - started < POD_TIMEOUT_S:
        return pending(None)
    return (
        f"Job {name}, which started at {rfc3339(started)}, has no pod. If this lasts, its Events contain the reason, for example an "
        f"exhausted ResourceQuota or a missing ServiceAccount: kubectl describe job {name}"
    )


def held_end(pod: Object | None, job: Object | None) -> Mapping[str, Any] | None:
    """Return how the runner of a Job has ended, if its pod still runs because of containers that others have added.

    The result is the state `terminated` of the runner's container; otherwise None. The pod of an earlier Job doesn't
    count, because it is deleted shortly after its Job.
    """
    if pod is None or job is None or pod["status"]["phase"] != "Running":
        return None
    uid = job["metadata"]["uid"]
    is_of_job = (pod["metadata"].get("labels") or {}).get(_JOB_UID, uid) == uid
    return next((end for state in _states(pod, own=True) if is_of_job and (end := state.get("terminated"))), None)


def last_progress(pod: Object | None) -> BatchProgress | None:
    """Return the final progress from the termination message of the runner; None if it has left no valid one."""
    for state in _states(pod, own=True) if pod else ():
        ended = state.get("terminated") or {}
        try:
            return BatchProgress.from_json(str(ended.get("message") or ""))
        except BatchDocumentError:
            continue
    return None


def _states(pod: Object, *, own: bool = False) -> list[Mapping[str, Any]]:
    """Return the state of each container. If `own` is true, leave out containers that others have added to the pod."""
    statuses = pod["status"].get("containerStatuses") or ()
    return [status.get("state") or {} for status in statuses if not own or status.get("name", CONTAINER) == CONTAINER]


async def poll(session: aiohttp.ClientSession, host: str) -> BatchProgress | None:
    """Return the progress of the runner at the address `host`; None if the poll fails."""
    place = f"[{host}]" if ":" in host else host
    try:
        async with (
            asyncio.timeout(POLL_TIMEOUT_S),
            session.get(f"http://{place}:{PORT}{PATH}", allow_redirects=False) as response,
        ):
            body = b""
            # A read returns what has arrived so far, which may be a part of the document.
            while part := await response.content.read(MAX_BYTES + 1 - len(body)):
                body += part
            return BatchProgress.from_json(body.decode()) if len(body) <= MAX_BYTES else None
    except (aiohttp.ClientError, OSError, UnicodeDecodeError, BatchDocumentError, TimeoutError):
        return None
