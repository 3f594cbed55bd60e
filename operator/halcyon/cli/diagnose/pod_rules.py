"""Rules of `diagnose` that look at pods. Pure. Each names what speaks for a cause, word for word where somebody has said it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from halcyon.api.conditions import Reason
from halcyon.cli.diagnose.facts import MAX_NAMED_PODS, Cause, ConditionIndex, Facts, Json, age_s, pod_evidence, pod_name
from halcyon.cli.kube import fields
from halcyon.cli.kube.free_capacity import insufficient_resources
from halcyon.cli.kube.pod_stage import Stage

SLOW_START_S = 300.0
"""A pod that has been on its way for longer has a reason."""
_SCHEDULER_MESSAGES = (
    (re.compile(r"nvidia\.com/(gpu|mig)\S*", re.IGNORECASE), "no node has a GPU left", "free GPUs, add a node with some, or ask for fewer (spec.runtime.gpu.count, spec.scaling.maxReplicas)"),
    (re.compile(r"unbound|persistentvolumeclaim|volume node affinity", re.IGNORECASE), "the volume of the model can't be used where the pod would run", "see kubectl get pvc: the claim has to be Bound, and readable from the nodes that the pods may run on"),
    (re.compile(r"Insufficient memory", re.IGNORECASE), "no node has enough memory left", "lower spec.runtime.resources.memory, or add a node"),
    (re.compile(r"Insufficient cpu", re.IGNORECASE), "no node has enough CPU left", "lower spec.runtime.resources.cpu, or add a node"),
    (re.compile(r"affinity/selector|node selector|didn't match Pod's node", re.IGNORECASE), "no node has the labels that are asked for", "correct spec.runtime.placement.nodeSelector, or label nodes"),
    (re.compile(r"untolerated taint", re.IGNORECASE), "the nodes have taints that the pods don't tolerate", "add spec.runtime.placement.tolerations, or take the taints away"),
)  # fmt: skip
"""What the scheduler says, what it means, and what to do. The first that fits is the cause: nodes are named for each other reason too."""


def image_not_pulled(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """An image can't be pulled."""
    next_step = "see that spec.runtime.image exists and that spec.runtime.imagePullSecrets names a Secret of this namespace with its credentials"
    yield from _failed_with(index, 92, "an image can't be pulled", next_step, Reason.IMAGE_PULL_FAILED)


def model_not_available(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """The model's files are not there, or its configuration is wrong."""
    yield from _failed_with(
        index,
        90,
        "the model is not where spec.model.source says",
        "put it there, or correct spec.model.source",
        Reason.MODEL_SOURCE_NOT_FOUND,
    )
    yield from _failed_with(
        index,
        90,
        "the model can't be downloaded",
        "see that the server of spec.model.source.uri answers, and that the Secret it names may read the model",
        Reason.MODEL_STORE_FAILED,
    )
    yield from _failed_with(
        index,
        90,
        "the model's configuration can't be used",
        "correct config.pbtxt, or the field of the spec that contradicts it",
        Reason.MODEL_CONFIG_INVALID,
    )


def containers_crashing(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Containers end."""
    for out_of_memory in (True, False):
        pods = [
            (pod, pod_stage) for pod, pod_stage in index.stages
            if pod_stage.state == "failed" and pod_stage.reason in {Reason.CONTAINER_FAILED, "Evicted", "OOMKilled", "Error"}
            and ("OOMKilled" in pod_stage.message) is out_of_memory and pod_stage.reason != "Evicted"
        ]  # fmt: skip
        if not pods:
            continue
        if out_of_memory:
            limit = fields.mapping(fields.mapping(index.spec.get("runtime")).get("resources")).get("memory")
            next_step = f"raise spec.runtime.resources.memory, which is {limit or 'not set'}; /dev/shm counts against it (spec.runtime.sharedMemory)"
            yield Cause(88, "the server runs out of memory", pod_evidence(pods), next_step)
        else:
            yield Cause(
                86,
                "a container ends again and again",
                pod_evidence(pods),
                "read its log, and the one before: kubectl logs POD -c triton --previous",
            )


def unschedulable(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """The scheduler finds no node."""
    unschedulable_pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.reason == "Unschedulable"]
    groups: dict[int, list[tuple[Json, Stage]]] = {}
    for pod, pod_stage in unschedulable_pods:
        matching = (n for n, (pattern, _, _) in enumerate(_SCHEDULER_MESSAGES) if pattern.search(pod_stage.message))
        groups.setdefault(next(matching, -1), []).append((pod, pod_stage))
    for n, pods in groups.items():
        summary, next_step = (
            _SCHEDULER_MESSAGES[n][1:]
            if n >= 0
            else ("the scheduler finds no node", "read what it says, and kubectl describe node")
        )
        resources = insufficient_resources(pod_stage.message for _, pod_stage in pods)
        capacities = (pod_stage.describe() for pod_stage in facts.free_capacity if pod_stage.resource in resources)
        yield Cause(84, summary, (*pod_evidence(pods), *capacities), next_step)


def pods_not_ready(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Pods that served, and don't now."""
    pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.state == "unready"]
    if pods:
        yield Cause(
            70,
            "pods that have served are not ready now",
            pod_evidence(pods),
            "read the log of the container triton; a dead backend or a full GPU are usual, and a balancer takes such pods out",
        )


def slow_start(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Pods are on their way for long."""
    for state, summary, next_step in (
        ("pulling", "images or volumes take long", "kubectl describe pod: its events tell whether an image is being pulled or a volume mounted; a smaller image, or one that nodes have already, is quicker"),
        ("fetching", "the model takes long to fetch", "read the log of the init container fetch; a volume nearer to the nodes is quicker"),
        ("loading", "Triton takes long to load the model", "read the log of the container triton; spec.runtime.startupTimeout is how long it may take, and spec.model.warmup is part of it"),
    ):  # fmt: skip
        pods = [
            (pod, pod_stage)
            for pod, pod_stage in index.stages
            if pod_stage.state == state and age_s(pod, facts.now) > SLOW_START_S
        ]
        if pods:
            evidence = tuple(
                f"pod {pod_name(pod)} was made {age_s(pod, facts.now):.0f} s ago" for pod, _ in pods[:MAX_NAMED_PODS]
            )
            yield Cause(60, summary, evidence, next_step)


def evicted(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """A node had too little of something, or a pod more than its own limit."""
    pods = [(pod, pod_stage) for pod, pod_stage in index.stages if pod_stage.reason == "Evicted"]
    if pods:
        caches = any('volume "home"' in pod_stage.message for _, pod_stage in pods)
        yield Cause(
            50,
            "nodes have thrown pods out",
            pod_evidence(pods),
            "let the caches below the model's home lie in /tmp, for example spec.runtime.env: [{name: HF_HOME, value: /tmp/huggingface}]"
            if caches
            else "set spec.runtime.resources to what the pods use, and spec.runtime.placement.priorityClassName",
        )


def restarted(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Ready pods that have fallen before."""
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
            "pods that are ready have fallen before",
            tuple(evidence[:MAX_NAMED_PODS]),
            "read the log before: kubectl logs POD -c triton --previous",
        )


def _failed_with(index: ConditionIndex, weight: int, summary: str, next_step: str, wanted: Reason) -> Iterator[Cause]:
    pods = [
        (pod, pod_stage)
        for pod, pod_stage in index.stages
        if pod_stage.state == "failed" and pod_stage.reason == wanted
    ]
    if pods:
        yield Cause(weight, summary, pod_evidence(pods), next_step)
