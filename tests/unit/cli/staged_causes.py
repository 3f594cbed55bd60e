"""Situations with different reasons for the number of replicas, created with the operator's own components.

A scaler with its planner decides on agents' reports. A reconcile builds plan and status from these decisions and from
pods and Deployments as the API server has them. The result is the ModelDeployment that `halcyon explain` reads. Time is
virtual. The tests set only the environment: load, GPUs, quotas, schedulers, other writers. Out of scope: the output of
`explain` (`test_causes`).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from halcyon.api.documents.observation_report import BatchStats
from halcyon.api.spec.parse import parse
from halcyon.api.timestamps import rfc3339
from halcyon.api.user_annotations import REASON
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.desired import plan
from halcyon.control.desired.plan import make
from halcyon.control.objects import resource_quotas
from halcyon.control.objects.actuator import Actuator
from halcyon.control.objects.pods import project
from halcyon.control.state.scope import Signals
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render import names
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, Running, live
from tests.unit.control.autoscaling.autoscaler_simulation import pod as ready_pod
from tests.unit.control.rollout.deployment_simulation import served
from tests.unit.control.scope_builders import PVC, resource, scope_of
from tests.unit.control.scope_builders import applied_children as children
from tests.unit.signals.records import EPOCH, haproxy, record, triton

THEIRS = ExternalMetricsApi(ours=False, why="external.metrics.k8s.io is served by keda/keda-operator-metrics-apiserver")
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available"
BROKEN = "failed to load 'digits' version 1: Internal: onnx runtime error 7: invalid protobuf"
GPU = "requests.nvidia.com/gpu"
Pods = Callable[[str, float], tuple[Object, ...]]
"""Function from the revision's key and the time in seconds since the epoch to the model pods in the API server."""


@dataclass(frozen=True)
class ExplainedResource:
    """A ModelDeployment, and the time at which it is read."""

    resource: Object
    now: datetime


@dataclass
class Stage:
    """A model with its spec and its environment."""

    scaling: dict[str, Any] | None = field(default_factory=dict)
    """Fields that override a spec.scaling with 1 to 8 replicas at 300 ms; None for no spec.scaling."""
    replicas: int = 1
    gpus: int = 0
    start_s: float = 0.0
    """Start time of pods in seconds."""
    annotations: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    """Further fields of the final spec, which may be one that was rejected."""
    pods: Pods | None = None
    """The model pods; by default, as many ready ones as desired."""
    seen: dict[str, Any] = field(default_factory=dict)
    """Fields of the scope that are not built here."""
    scene: Callable[[StagedCluster], Awaitable[None]] = lambda _: asyncio.sleep(30)

    @property
    def document(self) -> dict[str, Any]:
        """Return the spec that was accepted."""
        base = {"minReplicas": 1, "maxReplicas": 8, "actuator": "Direct", "targets": {"latency": "300ms"}}
        scaled = {} if self.scaling is None else {"scaling": base | copy.deepcopy(self.scaling)}
        # The queue limit is so high that only the test limits the queue.
        traffic = {"traffic": {"queueLimit": 5000}}
        return {"model": {"source": PVC}, "runtime": {"gpu": {"count": self.gpus}}, **traffic, **scaled}

    def run(self) -> ExplainedResource:
        """Return the resulting ModelDeployment."""
        results: list[ExplainedResource] = []

        async def play(world: OperatorReplica) -> None:
            theatre = StagedCluster(self, world)
            async with Running(world.scaler):
                await self.scene(theatre)
                results.append(self._read(theatre))

        live(play)
        return results[0]

    def _read(self, theatre: StagedCluster) -> ExplainedResource:
        count, now = theatre.world.replicas(), EPOCH + theatre.world.time()
        accepted = self.document | {"replicas": count}
        before = scope_of(accepted, metrics_api=THEIRS)
        planned = make(before)
        assert planned.target is not None
        objects = children(before)
        objects[kinds.DEPLOYMENT, "digits-balancer"]["status"] = {"availableReplicas": 2}
        key = planned.target.key
        pods = self.pods(key, now) if self.pods else tuple(server(key, f"digits-a-{n}", now) for n in range(count))
        model = resource(accepted | self.spec)
        model["metadata"]["annotations"] = dict(self.annotations)
        seen = replace(
            before,
            resource=model,
            children=objects,
            revisions=(planned.target,),
            pods=pods,
            scaling=theatre.world.scaler.published(DIGITS),
            now=now,
            **self.seen,
        )
        model_status = status.make(seen, make(seen), now=rfc3339(now))
        return ExplainedResource(copy.deepcopy(model | {"status": model_status}), datetime.fromtimestamp(now, UTC))


class StagedCluster:
    """The environment of a stage, and functions that change it."""

    def __init__(self, stage: Stage, world: OperatorReplica) -> None:
        self.stage, self.world = stage, world
        self._pods: dict[str, float] = {}
        world.have_pods = self._have  # type: ignore[method-assign]  # pods that take a while
        world.model(replicas=stage.replicas, actuator=None if stage.scaling is None else Actuator.DIRECT)
        world.specs[DIGITS] = parse("digits", stage.document)

    async def load(self, rps: int, seconds: int, *, gpu: float | None = None, **balancer: int) -> None:
        """Apply a steady load for `seconds`. `gpu` is the GPU utilization of each pod, 0 to 1."""
        for _ in range(seconds):
            self.speak(rps, gpu=gpu, **balancer)
            await asyncio.sleep(1.0)

    def speak(self, arrived: int, *, gpu: float | None = None, **balancer: int) -> None:
        """Send one report: `arrived` requests were served in batches of 8 at 80 ms by the ready pods."""
        world, now = self.world, self.world.time()
        ready = [name for name, at in self._pods.items() if at <= now]
        world._requests[DIGITS] = world._requests.get(DIGITS, 0) + arrived
        world._batches[DIGITS] = world._batches.get(DIGITS, 0) + arrived // 8
        each = world._batches[DIGITS] // len(ready) if ready else 0
        ran = BatchStats(EPOCH + now, ((8, each, each * 80_000),)) if each else None
        seen = [triton(name, at=now, batches=ran, gpu=gpu, succeeded=8 * each, rows=8 * each) for name in ready]
        reported = haproxy(requests=world._requests[DIGITS], **balancer)
        world.hub.receive(
            record(now, *seen, agent="digits-balancer-0", balancer=reported, namespace="team", name="digits"), now
        )

    def _have(self, key: Key, count: int) -> None:
        """Set the number of model pods. New ones are ready after their start time."""
        now = self.world.time()
        pod_names = [f"digits-a-{n}" for n in range(count)]
        for name in self._pods.keys() - {*pod_names}:
            del self._pods[name]
            self.world.caches.pods._store(Key("team", name), None)
        for name in [name for name in pod_names if name not in self._pods]:
            late = bool(self.stage.start_s and now)
            self._pods[name] = now + self.stage.start_s if now else 0.0
            created, up = (rfc3339(EPOCH + at) for at in ((now, now) if now else (-600, self.stage.start_s - 600)))
            pod = ready_pod(name, key.name, names.SERVER, created_at=created, ready_at=None if late else up)
            self.world.caches.pods._store(Key("team", name), pod)
            if late:
                asyncio.get_running_loop().call_later(self.stage.start_s, self._ready, name, created)

    def _ready(self, name: str, created_at: str) -> None:
        if name in self._pods:
            at = rfc3339(EPOCH + self.world.time())
            pod = ready_pod(name, "digits", names.SERVER, created_at=created_at, ready_at=at)
            self.world.caches.pods._store(Key("team", name), pod)

    def quota(self, *, hard: int, others: int) -> Callable[[], None]:
        """Set a ResourceQuota of `hard` GPUs, of which `others` are in use.

        Return a function that updates the usage as the quota controller does.
        """
        template = {"metadata": {}, "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
        name = names.server("digits", names.SLOT_A)
        meta = {"namespace": "team", "name": name, "resourceVersion": "1"}
        self.world.caches.children[kinds.DEPLOYMENT]._store(
            Key("team", name), {"metadata": meta, "spec": {"replicas": 1, "template": template}}
        )

        def count() -> None:
            quota = {
                "metadata": {
                    "namespace": "team",
                    "name": "gpus",
                    "uid": "q",
                    "resourceVersion": str(self.world.time()),
                },
                "status": {"hard": {GPU: str(hard)}, "used": {GPU: str(others + len(self._pods))}},
            }
            self.world.caches.quotas._store(Key("team", "gpus"), resource_quotas.project(quota))

        return count


def server(
    key: str,
    name: str,
    now: float,
    *,
    age_s: float = 600.0,
    ready: bool = True,
    init: Mapping[str, Any] | None = None,
    main: Mapping[str, Any] | None = None,
    unschedulable: str = "",
) -> Object:
    """Return a model pod as in the API server. By default its start took 41 s, in parts of 1, 9, 4 and 27 s."""
    created = now - age_s
    bound, fetching, fetched, up = created + 1, created + 10, created + 14, created + 41
    waits = {"waiting": {"reason": "PodInitializing"}}
    done = {"terminated": {"exitCode": 0, "startedAt": rfc3339(fetching), "finishedAt": rfc3339(fetched)}}
    runs = {"running": {"startedAt": rfc3339(fetched)}}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
    scheduled = unscheduled if unschedulable else {"type": "PodScheduled", "status": "True"}
    conditions = [
        {"type": "Ready", "status": str(ready), "lastTransitionTime": rfc3339(up if ready else created)},
        scheduled | {"lastTransitionTime": rfc3339(bound)},
    ]
    containers = {
        "initContainerStatuses": [{"name": "fetch", "restartCount": 0, "state": init or done}],
        "containerStatuses": [{"name": "triton", "restartCount": 0, "state": main or (waits if init else runs)}],
    }
    labels = {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER, names.REVISION_LABEL: key}
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    return project(
        {
            "metadata": meta | {"creationTimestamp": rfc3339(created)},
            "status": {"phase": "Running", "conditions": conditions} | ({} if unschedulable else containers),
        }
    )


def and_others(ready: int, **others: Any) -> Pods:
    """Return a function that yields `ready` ready pods, and others created with the given arguments."""
    number = others.pop("number", 1)

    def pods(key: str, now: float) -> tuple[Object, ...]:
        up = [server(key, f"digits-a-{n}", now) for n in range(ready)]
        return (*up, *(server(key, f"digits-a-x{n}", now, ready=False, **others) for n in range(number)))

    return pods


async def _silence(theatre: StagedCluster) -> None:
    await theatre.load(160, 40)
    await asyncio.sleep(25)


async def _idle(theatre: StagedCluster) -> None:
    await theatre.load(16, 30)
    await theatre.load(0, 80)


async def _woken(theatre: StagedCluster) -> None:
    await _idle(theatre)
    await theatre.load(8, 3, queued=8)


async def _rising(theatre: StagedCluster) -> None:
    await theatre.load(100, 60)
    for step in range(60):
        theatre.speak(100 + 2 * step)
        await asyncio.sleep(1.0)


async def _fallen(theatre: StagedCluster) -> None:
    await theatre.load(400, 120)
    await theatre.load(80, 25)


async def _flooded(theatre: StagedCluster) -> None:
    await theatre.load(160, 40)
    await theatre.load(240, 6, queued=4000)


async def _busy(theatre: StagedCluster) -> None:
    await theatre.load(400, 60, gpu=0.9)
    await theatre.load(5, 250, gpu=0.99)


async def _full(theatre: StagedCluster) -> None:
    count = theatre.quota(hard=8, others=5)
    for _ in range(40):
        count()
        await theatre.load(400, 1, gpu=0.9)


async def _shared(theatre: StagedCluster) -> None:
    theatre.world.scaler.limits.budget = GpuBudget(2)
    await theatre.load(400, 40, gpu=0.9)


async def _fought(theatre: StagedCluster) -> None:
    await theatre.load(400, 30)
    for _ in range(5):
        theatre.world.scale(DIGITS, 2, by="argocd-controller")
        theatre.world.have_pods(DIGITS, 2)
        await theatre.load(400, 8)


def _steady(rps: int, seconds: int = 40, **more: Any) -> Callable[[StagedCluster], Awaitable[None]]:
    return lambda theatre: theatre.load(rps, seconds, **more)


def _blocked() -> ExplainedResource:
    """Stage a new revision that finds no capacity next to the old one."""
    cluster = served(room=2, count=2, strategy="Surge")
    cluster.spec["batching"] = {"maxBatchSize": 2}
    for act in (cluster.operate, cluster.control, cluster.control, cluster.schedule, cluster.start):
        act()
    cluster.now += 90
    cluster.operate()
    seen = cluster.look()
    model_status = status.make(seen, plan.make(seen), now=rfc3339(cluster.now))
    return ExplainedResource(dict(seen.resource) | {"status": model_status}, datetime.fromtimestamp(cluster.now, UTC))


_OFFICE = {"name": "office-hours", "start": "* * * * *", "duration": "10h", "timeZone": "UTC", "minReplicas": 4}
_NIGHT = {"name": "night", "start": "* * * * *", "duration": "8h", "timeZone": "UTC", "maxReplicas": 2}
_ZERO = {"minReplicas": 0, "idleTimeout": "1m"}
_PULL = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "localhost/triton:25.01"'}}
_CREATED = {"waiting": {"reason": "ContainerCreating"}}
_LOADS = {"running": {"startedAt": "2026-11-22T00:00:00Z"}}
_KEDA = "HorizontalPodAutoscaler keda-hpa-digits of ScaledObject digits"

STAGES: dict[str, Callable[[], ExplainedResource]] = {
    "at-the-most": Stage({"maxReplicas": 3}, scene=_steady(400)).run,
    "at-the-least": Stage({"minReplicas": 3}, replicas=3, scene=_steady(16)).run,
    "schedule-raises": Stage({"schedules": [_OFFICE]}, scene=_steady(16)).run,
    "schedule-caps": Stage({"schedules": [_NIGHT]}, scene=_steady(400)).run,
    "metric-missing": Stage(replicas=2).run,
    "metric-stale": Stage(scene=_silence).run,
    "other-autoscaler": Stage(replicas=5, seen={"external_hpa": _KEDA}, scene=_steady(400)).run,
    "other-writer": Stage(scene=_fought).run,
    "no-gpu": Stage(gpus=1, pods=and_others(3, number=2, unschedulable=NO_NODE), scene=_steady(400, gpu=0.9)).run,
    "paused": Stage(
        {"mode": "Paused"}, replicas=2, annotations={REASON: "load test until noon"}, scene=_steady(400)
    ).run,
    "recommend": Stage({"mode": "Recommend"}, replicas=2, scene=_steady(400)).run,
    "idle-at-zero": Stage(_ZERO, scene=_idle).run,
    "waking": Stage(_ZERO, start_s=40, pods=and_others(0, age_s=3, init=_CREATED), scene=_woken).run,
    "backlog": Stage(start_s=40, scene=_flooded).run,
    "forecast": Stage(replicas=3, start_s=60, scene=_rising).run,
    "held-before-going-down": Stage(scene=_fallen).run,
    "gpu-veto": Stage(gpus=1, scene=_busy).run,
    "quota": Stage(gpus=1, scene=_full).run,
    "gpu-budget": Stage(gpus=1, scene=_shared).run,
    "rollout-blocked": _blocked,
    "load-failed": Stage(pods=and_others(0, main=_LOADS), seen={"signals": Signals(load_errors={"digits-a-x0": BROKEN})}).run,
    "image-not-pulled": Stage(pods=and_others(0, init=_PULL)).run,
    "starting": Stage(pods=and_others(2, number=3, age_s=20, main=_LOADS), scene=_steady(400)).run,
    "learning": Stage(replicas=2, scene=_steady(4, 3)).run,
    "fixed": Stage(None, replicas=3, annotations={REASON: "three nodes"}).run,
    "refused": Stage(replicas=2, spec={"batching": {"maxBatchSize": 0}}, scene=_steady(160)).run,
}  # fmt: skip
"""Stages by name. A stage is run when it is called."""
