"""Rules of `diagnose` for pods.

All rules are pure functions, and quote the original message as evidence if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from halcyon.api.conditions import Reason
from halcyon.control.objects.pod_stage import NODE_LOST
from halcyon_cli.diagnose.facts import (
    MAX_NAMED_PODS,
    Cause,
    ConditionIndex,
    Facts,
    Json,
    pod_evidence,
    pod_name,
    stage_s,
)
from halcyon_cli.kube import fields
from halcyon_cli.kube.free_capacity import insufficient_resources
from halcyon_cli.kube.pod_stage import Stage, failure_cause

SLOW_START_S = 300.0
"""Duration of a stage of a pod's start, in seconds, above which the start is reported as slow."""
_SCHEDULER_MESSAGES = (
    (re.compile(r"nvidia\.com/(gpu|mig)\S*|Insufficient [\w.-]+/\S+", re.IGNORECASE), "no node has a free GPU", "free GPUs, add a GPU node, or lower the request (spec.runtime.gpu.count, spec.scaling.maxReplicas)"),
    (re.compile(r"allocate all claims", re.IGNORECASE), "no node has free devices for the pod's ResourceClaim", "free devices, add a node, or lower the request: kubectl get resourceslices shows the devices, kubectl get resourceclaims -A who holds them"),
    (re.compile(r"^scheduling gate "), "another controller keeps the pods from being scheduled", "check the queue of the controller that set the gate, for Kueue: kubectl get workloads -n NAMESPACE. Pods of the old revision may use its quota: set spec.rollout.strategy: Replace"),
    (re.compile(r"is not created yet"), "the pod's ResourceClaim is missing", "check the ResourceClaimTemplate of spec.runtime.gpu.resourceClaimTemplateName and the quotas; kubectl describe pod shows why. After the template is created, delete the pod: Kubernetes retries ever less often"),
    (re.compile(r"unbound|persistentvolumeclaim|volume node affinity", re.IGNORECASE), "the model's volume is not available on the pod's nodes", "check kubectl get pvc: the claim must be Bound, and readable from the nodes where the pods may run"),
    (re.compile(r"Insufficient memory", re.IGNORECASE), "no node has enough free memory", "lower spec.runtime.resources.requests.memory, or limits.memory if there is no request, or add a node"),
    (re.compile(r"Insufficient cpu", re.IGNORECASE), "no node has enough free CPU", "lower spec.runtime.resources.requests.cpu, or add a node"),
    (re.compile(r"affinity/selector|node selector|didn't match Pod's node", re.IGNORECASE), "no node has the requested labels", "correct spec.runtime.placement.nodeSelector, or label nodes"),
    (re.compile(r"untolerated taint", re.IGNORECASE), "the nodes have taints that the pods don't tolerate", "add spec.runtime.placement.tolerations, or remove the taints"),
)  # fmt: skip
"""Reasons in the scheduler's messages, as (text in the message, meaning, advice), in order of priority. A message lists
the reasons of all nodes, so several entries may match. Only the first match is reported."""


def image_not_pulled(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect images that can't be pulled."""
    next_step = "check that spec.runtime.image exists and that spec.runtime.imagePullSecrets names a Secret in this namespace with its credentials"
    yield from _failed_with(index, 92, "an image can't be pulled", next_step, Reason.IMAGE_PULL_FAILED)


def model_not_available(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect model files that are missing, can't be downloaded, or have an invalid configuration."""
    yield from _failed_with(
        index,
        90,
        "the model is not at spec.model.source",
        "add the files, or correct spec.model.source",
        Reason.MODEL_SOURCE_NOT_FOUND,
    )
    yield from _failed_with(
        index,
        90,
        "the model can't be downloaded",
        "check that the server of spec.model.source.uri responds, and that the credentials in its Secret can read the model",
        Reason.MODEL_DOWNLOAD_FAILED,
    )
    yield from _failed_with(
        index,
        90,
        "the model's configuration is invalid",
        "correct config.pbtxt, or the field of the spec that contradicts it",
        Reason.MODEL_CONFIG_INVALID,
    )


def containers_crashing(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect containers that run out of memory or crash repeatedly."""
    for out_of_memory in (True, False):
        pods = [
            (pod, pod_stage) for pod, pod_stage in index.stages
            if pod_stage.state == "failed" and pod_stage.reason in {Reason.CONTAINER_FAILED, "Evicted", "OOMKilled", "Error"}
            and (failure_cause(pod_stage) == "OOMKilled") is out_of_memory and pod_stage.reason != "Evicted"
        ]  # fmt: skip
        if not pods:
            continue
        if out_of_memory:
            limit = fields.mapping(
                fields.mapping(fields.mapping(index.spec.get("runtime")).get("resources")).get("limits")
            ).get("memory")
            next_step = f"raise spec.runtime.resources.limits.memory, which is {limit or 'not set'}; /dev/shm counts against it (spec.runtime.sharedMemory)"
            yield Cause(88, "Triton runs out of memory", pod_evidence(pods), next_step)
        else:
            yield Cause(
                86,
                "a container crashes repeatedly",
                pod_evidence(pods),
                "read its log and that of the previous run: kubectl logs POD -c triton --previous",
            )


def start_blocked(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect pods that wait for a container that an admission webhook has added."""
    pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.reason == Reason.START_BLOCKED]
    if pods:
        next_step = "read the log of that container, and ask the owner of the webhook; spec.runtime.podLabels and podAnnotations may disable it"
        yield Cause(85, "a container that is not Halcyon's keeps pods from starting", pod_evidence(pods), next_step)


def unschedulable(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect unschedulable pods."""
    unschedulable_pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.reason == "Unschedulable"]
    groups: dict[int, list[tuple[Json, Stage]]] = {}
    for pod, pod_stage in unschedulable_pods:
        matching = (n for n, (pattern, _, _) in enumerate(_SCHEDULER_MESSAGES) if pattern.search(pod_stage.message))
        groups.setdefault(next(matching, -1), []).append((pod, pod_stage))
    for n, pods in groups.items():
        summary, next_step = (
            _SCHEDULER_MESSAGES[n][1:]
            if n >= 0
            else ("no node fits the pod", "read the scheduler's message, and run kubectl describe node")
        )
        resources = insufficient_resources(pod_stage.message for _, pod_stage in pods)
        capacities = (capacity.describe() for capacity in facts.free_capacity if capacity.resource in resources)
        yield Cause(84, summary, (*pod_evidence(pods), *capacities), next_step)


def pods_not_ready(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect pods that were ready before but are not ready now."""
    unready = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.state == "unready"]
    lost = [(pod, pod_stage) for pod, pod_stage in unready if pod_stage.reason == NODE_LOST]
    if lost:
        yield Cause(
            76,
            "the node of pods does not respond",
            pod_evidence(lost),
            "kubectl describe node NODE. Kubernetes replaces such pods 5 minutes after the node was lost, unless their tolerations "
            "differ; to replace them now: kubectl delete pod POD --wait=false",
        )
    if pods := [entry for entry in unready if entry not in lost]:
        yield Cause(
            70,
            "pods that were ready no longer are",
            pod_evidence(pods),
            "read the log of the container triton; usual reasons are a crashed backend or a full GPU. Balancers send no requests to such pods",
        )


def slow_start(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect pods that take long in one stage of their start."""
    for state, summary, next_step in (
        ("pulling", "images or volumes take long", "run kubectl describe pod: its events show whether an image is pulled or a volume mounted; use a smaller image, or one that is on the nodes already"),
        ("fetching", "the model takes long to fetch", "read the log of the init container fetch; use a volume nearer to the nodes"),
        ("loading", "Triton takes long to load the model", "read the log of the container triton; the limit is spec.runtime.startupTimeout, and spec.model.warmup is part of it"),
    ):  # fmt: skip
        pods = [
            (pod, pod_stage)
            for pod, pod_stage in index.stages
            if pod_stage.state == state and stage_s(pod, facts.now) > SLOW_START_S
        ]
        if pods:
            evidence = tuple(
                f"pod {pod_name(pod)} has been {state} for {stage_s(pod, facts.now):.0f} s"
                for pod, _ in pods[:MAX_NAMED_PODS]
            )
            yield Cause(60, summary, evidence, next_step)


def evicted(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect evicted pods: a node ran short of a resource, or a pod exceeded a limit."""
    pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.reason == "Evicted"]
    if pods:
        caches = any('volume "home"' in pod_stage.message for _, pod_stage in pods)
        yield Cause(
            50,
            "pods were evicted",
            pod_evidence(pods),
            "move the caches from the model's home to /tmp, for example spec.runtime.env: [{name: HF_HOME, value: /tmp/huggingface}]"
            if caches
            else "set spec.runtime.resources to the real use of the pods, and spec.runtime.placement.priorityClassName",
        )


def restarted(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect ready pods that have restarted."""
    evidence = []
    for pod, pod_stage in index.stages:
        for container in fields.mappings(fields.mapping(pod.get("status")).get("containerStatuses")):
            times = fields.count(container.get("restartCount")) or 0
            last = fields.mapping(fields.mapping(container.get("lastState")).get("terminated"))
            if pod_stage.state == "ready" and times:
                why = f", last with {last.get('reason')} (exit code {last.get('exitCode')})" if last else ""
                evidence.append(
                    f"pod {pod_name(pod)}: container {container.get('name')} has restarted {times} times{why}"
                )
    if evidence:
        yield Cause(
            30,
            "pods that are ready now have crashed before",
            tuple(evidence[:MAX_NAMED_PODS]),
            "read the log of the previous run: kubectl logs POD -c triton --previous",
        )


def _failed_with(index: ConditionIndex, weight: int, summary: str, next_step: str, reason: Reason) -> Iterator[Cause]:
    pods = [
        (pod, pod_stage)
        for pod, pod_stage in index.stages
        if pod_stage.state == "failed" and pod_stage.reason == reason
    ]
    if pods:
        yield Cause(weight, summary, pod_evidence(pods), next_step)
