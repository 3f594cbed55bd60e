"""Conditions of a model's servers: ModelLoaded and ServersReady. Pure.

Each condition has one function. Its truth table is above the function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halcyon.api.conditions import Condition, Reason, Type
from halcyon.api.spec import Spec
from halcyon.control.desired.plan import ReconcilePlan, counts
from halcyon.control.objects import pod_preparation, pod_stage, pods, volume_attachment
from halcyon.control.state.ownership import child_condition
from halcyon.control.state.scope import Scope
from halcyon.control.status import backend
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.pod_times import created_at
from halcyon.render import names
from halcyon.render.names import SLOT_A, Slot

_FAILED_FOR_S = 600.0
"""Age in seconds up to which a pod that the kubelet rejected or evicted is shown as the reason for missing servers."""


def target_pods(scope: Scope, plan: ReconcilePlan) -> list[Object]:
    """Return the server pods that run the target revision."""
    return [p for p in scope.pods if plan.target is not None and pods.revision(p) == plan.target.key]


_NO_GPU = ("unsupported gpu id", "no GPUs are available", "No CUDA GPUs", "no NVIDIA driver", "CUDA driver version")
"""Errors of Triton, PyTorch and CUDA in a pod without a GPU."""
_UNAUTHORIZED = re.compile(
    r"(?i)(?<![\w.:/@-])(?:40[13]|unauthorized|(?<!permission )denied|authorization failed|no basic auth)(?![\w/@-]|[.:]\w)"
)
"""Errors of image registries that need other credentials. A part of an image's name or tag isn't one of them."""
_FETCHER_REASONS = {Reason.MODEL_CONFIG_INVALID, Reason.MODEL_SOURCE_NOT_FOUND, Reason.MODEL_DOWNLOAD_FAILED}


# pods of the revision     failure                           ModelLoaded
# one is ready             -                                 True
# none is ready            the fetcher failed                False    ModelConfigInvalid, ModelSourceNotFound, ModelDownloadFailed
# none is ready            Triton could not load the model   False    LoadFailed
# none is ready            none yet                          Unknown  Loading
# there are none           -                                 Unknown
def model_loaded(scope: Scope, plan: ReconcilePlan) -> Condition:
    """Return the ModelLoaded condition of a model."""
    own_pods = target_pods(scope, plan)
    if plan.target is not None and any(pods.is_ready(p) for p in own_pods):
        text = f"Triton has loaded model {plan.target.model}"
        return Condition(Type.MODEL_LOADED, status=True, reason=Reason.LOADED, message=text)
    failure = pods.failure(own_pods)
    if failure and failure.reason in _FETCHER_REASONS:
        return Condition(Type.MODEL_LOADED, status=False, reason=failure.reason, message=failure.message)
    if (error := load_error(scope, plan)) is not None:
        if plan.spec is not None and plan.spec.runtime.gpus == 0 and any(text in error for text in _NO_GPU):
            error = f"{error}. The spec requests no GPU; to request one, set spec.runtime.gpu, for example {{count: 1}}"
        return Condition(Type.MODEL_LOADED, status=False, reason=Reason.LOAD_FAILED, message=error)
    if own_pods:
        text = f"no pod of the revision has reported yet whether the model has loaded (pods created: {len(own_pods)})"
        return Condition(Type.MODEL_LOADED, status=None, reason=Reason.LOADING, message=text)
    text = "no pod has tried to load the model yet"
    return Condition(Type.MODEL_LOADED, status=None, reason=Reason.UNKNOWN, message=text)


def load_error(scope: Scope, plan: ReconcilePlan) -> str | None:
    """Return Triton's error in the first live pod that could not load the model; None if there is none."""
    errors = scope.signals.load_errors if scope.signals else {}
    pod_names = sorted(p["metadata"]["name"] for p in target_pods(scope, plan) if pods.is_live(p))
    return next((errors[name] for name in pod_names if name in errors), None)


# desired  ready          failure   ServersReady
# 0        -              -         True     ScaledToZero
# n        n              -         True
# n        1 .. n-1       any       False    PartiallyReady, with the failure
# n        0              dead      False    BackendDead
# n        0              known     False    Unschedulable, ImagePullFailed, ...
# n        0              none      False    NoServersReady, with the reason of a pod that has just ended
# no spec was accepted    -         Unknown
def servers_ready(scope: Scope, plan: ReconcilePlan) -> Condition:
    """Return the ServersReady condition of a model."""
    if plan.spec is None:
        text = "no spec has been accepted yet"
        return Condition(Type.SERVERS_READY, status=None, reason=Reason.UNKNOWN, message=text)
    desired, _, ready = counts(scope, plan)
    if desired == 0:
        text = "0 replicas are desired"
        return Condition(Type.SERVERS_READY, status=True, reason=Reason.SCALED_TO_ZERO, message=text)
    if ready >= desired:
        text = f"{ready} of {desired} servers are ready"
        if ready > desired:  # while a rollout adds a pod, or before pods are removed
            text = f"{desired} servers are desired, and {ready} are ready"
        return Condition(Type.SERVERS_READY, status=True, reason=Reason.SERVERS_READY, message=text)
    failure = pods.failure(scope.pods)
    dead = backend.dead_backend(scope)
    stuck = volume_attachment.first_conflict(scope.pods, scope.source.exclusive)
    stuck = stuck or pod_preparation.first_unprepared(scope.pods, scope.now)
    rejection = _replica_failure(scope, plan)
    if failure:
        stuck = f"pod {failure.pod}: {failure.message}{_pull_hint(scope, plan.spec, failure)}"
    detail = rejection or dead or stuck or _failed_pod(scope)
    text = f"{ready} of {desired} servers are ready" + (f": {detail}" if detail else "")
    if ready:
        reason = Reason.PARTIALLY_READY
    elif rejection:
        reason = Reason.POD_CREATION_FAILED
    elif dead:
        reason = Reason.BACKEND_DEAD
    else:
        reason = failure.reason if failure else Reason.NO_SERVERS_READY
    return Condition(Type.SERVERS_READY, status=False, reason=reason, message=text)


def _pull_hint(scope: Scope, spec: Spec, failure: pods.PodFailure) -> str:
    """Return advice if a registry has rejected the credentials for an image; otherwise an empty string.

    The kubelet reports a missing Secret only in an Event.
    """
    if failure.reason is not Reason.IMAGE_PULL_FAILED or not _UNAUTHORIZED.search(failure.message):
        return ""
    secrets = [secret.name for secret in spec.runtime.image_pull_secrets or ()]
    if not secrets:
        return ". If the registry is private, name a Secret with its credentials in spec.runtime.imagePullSecrets"
    listed = " ".join(secrets)
    return f". Check spec.runtime.imagePullSecrets: kubectl get secret {listed} -n {scope.key.namespace}"


def home_slot(plan: ReconcilePlan) -> Slot:
    """Return the home slot, which runs all servers except those of a canary."""
    return SLOT_A if plan.rollout is None else plan.rollout.home


def deployment_condition(scope: Scope, plan: ReconcilePlan, condition_type: str) -> Mapping[str, Any]:
    """Return a condition of the server Deployment in the home slot; empty if it is absent."""
    return child_condition(scope, kinds.DEPLOYMENT, names.server(scope.key.name, home_slot(plan)), condition_type)


def _replica_failure(scope: Scope, plan: ReconcilePlan) -> str:
    condition = deployment_condition(scope, plan, "ReplicaFailure")
    return str(condition.get("message")) if condition.get("status") == "True" else ""


def _failed_pod(scope: Scope) -> str:
    """Return a message about the newest failed pod, or the first on a lost node; empty if no pod has failed lately.

    If a node lacks a device for a pod, its kubelet rejects the pod, and the ReplicaSet keeps creating new ones. Each is
    pending only for a moment, so no live pod shows the reason.
    """
    failed = [
        (at, pod["metadata"]["name"], stage)
        for pod in scope.pods
        if not pods.is_live(pod)
        and (stage := pod_stage.stage(pod)).state == "failed"
        and (at := created_at(pod)) is not None
        and scope.now - at <= _FAILED_FOR_S
    ]
    if not failed:
        return next((s.message for s in map(pod_stage.stage, scope.pods) if s.reason == pod_stage.NODE_LOST), "")
    _, name, stage = max(failed, key=lambda entry: entry[:2])
    text = f"pod {name} has failed: {stage.reason}" + (f": {stage.message}" if stage.message else "")
    count = len(failed)
    return text if count == 1 else f"{text}; {count} pods have failed in the last {_FAILED_FOR_S / 60:.0f} minutes"
