"""Rules of `diagnose` that look at pods. Pure. Each names what speaks for a cause, word for word where somebody has said it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from halcyon.api.conditions import Reason
from halcyon_cli.diagnose.facts import MANY, Cause, ConditionIndex, Facts, Json, age_s, name_of, named
from halcyon_cli.kube import fields
from halcyon_cli.kube.free_capacity import lacking
from halcyon_cli.kube.pod_stage import Stage

_LONG_S = 300.0
"""A pod that has been on its way for longer has a reason."""
_ROOM = (
    (re.compile(r"nvidia\.com/(gpu|mig)\S*", re.IGNORECASE), "no node has a GPU left", "free GPUs, add a node with some, or ask for fewer (spec.runtime.gpu.count, spec.scaling.maxReplicas)"),
    (re.compile(r"unbound|persistentvolumeclaim|volume node affinity", re.IGNORECASE), "the volume of the model can't be used where the pod would run", "see kubectl get pvc: the claim has to be Bound, and readable from the nodes that the pods may run on"),
    (re.compile(r"Insufficient memory", re.IGNORECASE), "no node has enough memory left", "lower spec.runtime.resources.memory, or add a node"),
    (re.compile(r"Insufficient cpu", re.IGNORECASE), "no node has enough CPU left", "lower spec.runtime.resources.cpu, or add a node"),
    (re.compile(r"affinity/selector|node selector|didn't match Pod's node", re.IGNORECASE), "no node has the labels that are asked for", "correct spec.runtime.placement.nodeSelector, or label nodes"),
    (re.compile(r"untolerated taint", re.IGNORECASE), "the nodes have taints that the pods don't tolerate", "add spec.runtime.placement.tolerations, or take the taints away"),
)  # fmt: skip
"""What the scheduler says, what it means, and what to do. The first that fits is the cause: nodes are named for each other reason too."""


def no_image(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """An image can't be pulled."""
    then = "see that spec.runtime.image exists and that spec.runtime.imagePullSecrets names a Secret of this namespace with its credentials"
    yield from _failing(told, 92, "an image can't be pulled", then, Reason.IMAGE_PULL_FAILED)


def no_model(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """The model's files are not there, or its configuration is wrong."""
    yield from _failing(
        told,
        90,
        "the model is not where spec.model.source says",
        "put it there, or correct spec.model.source",
        Reason.MODEL_SOURCE_NOT_FOUND,
    )
    yield from _failing(
        told,
        90,
        "the model can't be downloaded",
        "see that the server of spec.model.source.uri answers, and that the Secret it names may read the model",
        Reason.MODEL_STORE_FAILED,
    )
    yield from _failing(
        told,
        90,
        "the model's configuration can't be used",
        "correct config.pbtxt, or the field of the spec that contradicts it",
        Reason.MODEL_CONFIG_INVALID,
    )


def falling(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Containers end."""
    for out_of_memory in (True, False):
        found = [
            (pod, one) for pod, one in told.stages
            if one.state == "failed" and one.reason in {Reason.CONTAINER_FAILED, "Evicted", "OOMKilled", "Error"}
            and ("OOMKilled" in one.message) is out_of_memory and one.reason != "Evicted"
        ]  # fmt: skip
        if not found:
            continue
        if out_of_memory:
            limit = fields.mapping(fields.mapping(told.spec.get("runtime")).get("resources")).get("memory")
            then = f"raise spec.runtime.resources.memory, which is {limit or 'not set'}; /dev/shm counts against it (spec.runtime.sharedMemory)"
            yield Cause(88, "the server runs out of memory", named(found), then)
        else:
            yield Cause(
                86,
                "a container ends again and again",
                named(found),
                "read its log, and the one before: kubectl logs POD -c triton --previous",
            )


def no_room(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """The scheduler finds no node."""
    stuck = [(pod, one) for pod, one in told.stages if one.reason == "Unschedulable"]
    groups: dict[int, list[tuple[Json, Stage]]] = {}
    for pod, one in stuck:
        fits = (n for n, (pattern, _, _) in enumerate(_ROOM) if pattern.search(one.message))
        groups.setdefault(next(fits, -1), []).append((pod, one))
    for n, found in groups.items():
        what, then = (
            _ROOM[n][1:] if n >= 0 else ("the scheduler finds no node", "read what it says, and kubectl describe node")
        )
        lacks = lacking(one.message for _, one in found)
        counted = (one.say() for one in facts.room if one.resource in lacks)
        yield Cause(84, what, (*named(found), *counted), then)


def unready(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Pods that served, and don't now."""
    found = [(pod, one) for pod, one in told.stages if one.state == "unready"]
    if found:
        yield Cause(
            70,
            "pods that have served are not ready now",
            named(found),
            "read the log of the container triton; a dead backend or a full GPU are usual, and a balancer takes such pods out",
        )


def slow(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Pods are on their way for long."""
    for state, what, then in (
        ("pulling", "images or volumes take long", "kubectl describe pod: its events tell whether an image is being pulled or a volume mounted; a smaller image, or one that nodes have already, is quicker"),
        ("fetching", "the model takes long to fetch", "read the log of the init container fetch; a volume nearer to the nodes is quicker"),
        ("loading", "Triton takes long to load the model", "read the log of the container triton; spec.runtime.startupTimeout is how long it may take, and spec.model.warmup is part of it"),
    ):  # fmt: skip
        found = [(pod, one) for pod, one in told.stages if one.state == state and age_s(pod, facts.now) > _LONG_S]
        if found:
            evidence = tuple(
                f"pod {name_of(pod)} was made {age_s(pod, facts.now):.0f} s ago" for pod, _ in found[:MANY]
            )
            yield Cause(60, what, evidence, then)


def evicted(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """A node had too little of something, or a pod more than its own limit."""
    found = [(pod, one) for pod, one in told.stages if one.reason == "Evicted"]
    if found:
        caches = any('volume "home"' in one.message for _, one in found)
        yield Cause(
            50,
            "nodes have thrown pods out",
            named(found),
            "let the caches below the model's home lie in /tmp, for example spec.runtime.env: [{name: HF_HOME, value: /tmp/huggingface}]"
            if caches
            else "set spec.runtime.resources to what the pods use, and spec.runtime.placement.priorityClassName",
        )


def restarts(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Ready pods that have fallen before."""
    found = []
    for pod, one in told.stages:
        for container in fields.mappings(fields.mapping(pod.get("status")).get("containerStatuses")):
            times = fields.count(container.get("restartCount")) or 0
            last = fields.mapping(fields.mapping(container.get("lastState")).get("terminated"))
            if one.state == "ready" and times:
                why = f", last with {last.get('reason')} (exit code {last.get('exitCode')})" if last else ""
                found.append(f"pod {name_of(pod)}: container {container.get('name')} has restarted {times} times{why}")
    if found:
        yield Cause(
            30,
            "pods that are ready have fallen before",
            tuple(found[:MANY]),
            "read the log before: kubectl logs POD -c triton --previous",
        )


def _failing(told: ConditionIndex, weight: int, what: str, then: str, wanted: Reason) -> Iterator[Cause]:
    found = [(pod, one) for pod, one in told.stages if one.state == "failed" and one.reason == wanted]
    if found:
        yield Cause(weight, what, named(found), then)
