"""Workloads: actions of users on one model, in steps that each wait for the one before.

Pods are KWOK's: they become Ready at once and load nothing. Stand-ins, by workload:

scale-hpa       the test writes /scale as the HPA does; no metrics are served
scale-planner   the test reports a load as an agent does, more than the maximum of replicas can answer
rotate          no process reads the Secrets; the references change
canary-*        there is no load, so there is nothing to analyse; an annotation promotes or aborts, as the commands set it
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.kube import kinds
from tests.faults.load import Load
from tests.integration.operator_process import IMAGES
from tests.integration.operator_space import Object, Space, deployment, files

TRAFFIC = {"balancerReplicas": 1, "drainTimeout": "1s"}
NEWER = tuple(option.replace(":dev", ":next").replace(":24.10", ":25.01") for option in IMAGES)
"""Images of the next version of the operator."""
_STEPS = [{"weight": 50}]
CANARY = {"strategy": "Canary", "canary": {"steps": _STEPS, "analysis": {"mode": "Enabled"}}}


@dataclass(frozen=True)
class Step:
    """Something that a user does, and how its end is recognised."""

    act: Callable[[Space], None]
    done: Callable[[Space], bool]


@dataclass(frozen=True)
class Workload:
    """A sequence of steps after undisturbed ones."""

    steps: tuple[Step, ...]
    before: tuple[Step, ...] = ()
    images: tuple[str, ...] = field(default=IMAGES)
    """Options for the images of the operator that runs during the steps."""


def _spec(**more: Any) -> Object:
    return {"traffic": TRAFFIC, **more}


def _apply(*objects: Object) -> Callable[[Space], None]:
    return lambda space: space.apply(*objects)


def _merge(body: Object) -> Callable[[Space], None]:
    def act(space: Space) -> None:
        space.merge(kinds.MODEL_DEPLOYMENT, "m", body)

    return act


def _annotate(word: str) -> Callable[[Space], None]:
    def act(space: Space) -> None:
        revision = space.status()["revision"]["target"]
        _merge({"metadata": {"annotations": {f"serving.halcyon.dev/{word}": revision}}})(space)

    return act


def _secret(name: str, data: Mapping[str, str]) -> Object:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"metadata": {"name": name}, "data": encoded}


def _secrets(space: Space) -> None:
    for number in (1, 2):
        for body in (
            _secret(f"tls-{number}", {"tls.crt": f"certificate {number}", "tls.key": f"key {number}"}),
            _secret(f"keys-{number}", {"client": f"key-of-a-client-{number}"}),
        ):
            space.api.create(kinds.SECRET.path(space.namespace), body)


def settled(space: Space) -> bool:
    """Return True if the model serves its current spec."""
    return space.settled()


def balanced(space: Space) -> bool:
    """Return True if the model serves its current spec, and all balancers are those of its Deployment's template.

    The Deployment controller may skip a template that is replaced at once, so the number of rollouts would depend on its speed.
    """
    deployment = space.must(kinds.DEPLOYMENT, "m-balancer")
    status, count = deployment.get("status") or {}, deployment["spec"]["replicas"]
    return (
        space.settled()
        and status.get("observedGeneration") == deployment["metadata"]["generation"]
        and [status.get(name) for name in ("replicas", "updatedReplicas", "readyReplicas")] == [count] * 3
    )


def served_by(count: int) -> Callable[[Space], bool]:
    """Return a function that is true when the model serves with this number of pods."""
    return lambda space: space.settled() and space.status()["pods"]["total"] == count


def is_deleted(space: Space) -> bool:
    """Return True if neither the model nor anything created for it exists."""
    return (
        space.get(kinds.MODEL_DEPLOYMENT, "m") is None
        and not space.children()
        and not any(pod["metadata"]["name"].startswith("m-") for pod in space.every(kinds.POD))
    )


def namespace_is_deleted(space: Space) -> bool:
    """Return True if the namespace doesn't exist."""
    return not space.api.exists(f"/api/v1/namespaces/{space.namespace}")


def at_zero(space: Space) -> bool:
    """Return True if no pod of the model is left, and the status has none."""
    model = space.get(kinds.MODEL_DEPLOYMENT, "m") or {"metadata": {}}
    status = model.get("status") or {}
    return (
        status.get("observedGeneration") == model["metadata"].get("generation")
        and status["pods"]["total"] == 0
        and not [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-")]
    )


def _canary_serves(space: Space) -> bool:
    plan = json.loads(space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["plan.json"])
    rollout = space.status().get("rollout") or {}
    pods = space.status()["pods"]
    return (
        {slot["weight"] for slot in plan["slots"]} == {50}
        and (rollout.get("canary") or {}).get("weight") == 50
        and pods["ready"] == pods["total"] == 2
        and pods["updated"] == 1
    )


def _complete(space: Space) -> bool:
    """Return True if all pods are of the new revision, in the canary's slot, and the other slot is deleted."""
    counts = {name: space.status()["pods"][name] for name in ("total", "ready", "updated")}
    return (
        (space.status().get("rollout") or {}).get("phase") == "Complete"
        and set(counts.values()) == {2}
        and space.condition("Ready")[0] == "True"
        and space.condition("Reconciling")[0] != "True"
        and space.get(kinds.DEPLOYMENT, "m-a") is None
    )


def _rolled_back(space: Space) -> bool:
    stalled = space.condition("Stalled")[:2] == ("True", "RolledBack")
    pods = [pod["metadata"]["name"] for pod in space.every(kinds.POD)]
    return (
        stalled
        and not any(name == "m-b" for kind, name in space.children() if kind == "Deployment")
        and not any(name.startswith("m-b-") for name in pods)
        and sum(name.startswith("m-a-") for name in pods) == 2
    )


def _recreate(space: Space) -> None:
    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    space.apply(deployment(**_spec(batching={"maxBatchSize": 4})))


def _mode(mode: str) -> Callable[[Space], bool]:
    return lambda space: (space.status().get("scaling") or {}).get("mode") == mode and space.settled()


def _created(**more: Any) -> tuple[Step, ...]:
    return (Step(_apply(files(), deployment(**_spec(**more))), settled),)


def _changed(done: Callable[[Space], bool] = settled, **more: Any) -> Step:
    return Step(_apply(deployment(**_spec(**more))), done)


_SCALED = {"scaling": {"maxReplicas": 4, "actuator": "HPA"}}
_SECURED = [
    {**TRAFFIC, "tls": {"secretName": f"tls-{number}"}, "apiKeys": {"secretName": f"keys-{number}"}}
    for number in (1, 2)
]

WORKLOADS: Mapping[str, Workload] = {
    "create": Workload(_created(**_SCALED)),
    "scale-hand": Workload(
        (Step(lambda space: space.scale(3), served_by(3)), Step(lambda space: space.scale(1), served_by(1))),
        before=_created(),
    ),
    "image": Workload((_changed(runtime={"gpu": {"count": 0}, "image": "localhost/other:1"}),), before=_created()),
    "delete": Workload(
        (Step(lambda space: space.delete(kinds.MODEL_DEPLOYMENT, "m"), is_deleted),), before=_created(**_SCALED)
    ),
    "recreate": Workload((Step(_recreate, settled),), before=_created(**_SCALED)),
    "scale-hpa": Workload((Step(lambda space: space.scale(3), served_by(3)),), before=_created(**_SCALED)),
    "scale-planner": Workload(
        (
            # One decision goes to the maximum. With more between, the number of writes depends on the machine's speed.
            Step(Load.start, served_by(2)),
            # The load in the status depends on which operator has had the last report, so autoscaling ends.
            Step(Load.stop, settled),
            _changed(served_by(2), replicas=2),
        ),
        before=_created(scaling={"maxReplicas": 2, "actuator": "Direct", "targets": {"latency": "500ms"}}),
    ),
    "batching": Workload(
        (_changed(batching={"maxBatchSize": 16, "maxQueueDelay": "5ms"}),),
        before=_created(batching={"maxBatchSize": 4}),
    ),
    "version": Workload(
        (_changed(model={**deployment()["spec"]["model"], "versions": {"latest": 2}}),), before=_created()
    ),
    "canary-promote": Workload(
        (
            _changed(_canary_serves, replicas=2, rollout=CANARY, batching={"maxBatchSize": 8}),
            Step(_annotate("promote"), _complete),
        ),
        before=_created(replicas=2, rollout=CANARY),
    ),
    "canary-abort": Workload(
        (
            _changed(_canary_serves, replicas=2, rollout=CANARY, batching={"maxBatchSize": 8}),
            Step(_annotate("abort"), _rolled_back),
        ),
        before=_created(replicas=2, rollout=CANARY),
    ),
    "pause": Workload(
        (
            Step(_merge({"spec": {"scaling": {"mode": "Paused"}}}), _mode("Paused")),
            Step(_merge({"spec": {"scaling": {"mode": "Active"}}}), _mode("Active")),
        ),
        before=_created(**_SCALED),
    ),
    "zero": Workload(
        (Step(lambda space: space.scale(0), at_zero), Step(lambda space: space.scale(2), served_by(2))),
        before=_created(),
    ),
    "rotate": Workload(
        (
            Step(_apply(deployment(traffic=_SECURED[0])), balanced),
            Step(_apply(deployment(traffic=_SECURED[1])), balanced),
        ),
        before=(*_created(), Step(_secrets, settled)),
    ),
    "refresh": Workload(
        (
            Step(lambda _: None, lambda space: space.condition("RuntimeOutdated")[0] == "True"),
            Step(
                _annotate("refresh"), lambda space: space.condition("RuntimeOutdated")[0] != "True" and space.settled()
            ),
        ),
        before=_created(),
        images=NEWER,
    ),
    "namespace": Workload((Step(lambda space: space.end(), namespace_is_deleted),), before=_created(**_SCALED)),
}
