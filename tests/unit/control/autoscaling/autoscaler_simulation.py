"""A scaler with simulated surroundings: API server and caches in memory, a hub, and a writer of the status.

Time is virtual. Pods are ready at once, because their start doesn't affect the scaler. Decisions are those of the real
code, except with `Dictated`, with which a test sets the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from typing_extensions import override

from halcyon.api.conditions import Reason
from halcyon.api.documents.observation_report import BatchStats
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.api.timestamps import rfc3339
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.served_metrics import ServedMetrics
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects import pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Scope
from halcyon.control.status import scaling as status_scaling
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key, Kind
from halcyon.kube.work_queue import Priority
from halcyon.render import names
from halcyon.scaling.observations import Value
from halcyon.scaling.policy.decision import Decision, Signal
from halcyon.signals.observation_store import ObservationStore
from tests.clocks import DrivenClock
from tests.unit.control.autoscalers import autoscaler, served_metrics
from tests.unit.control.leadership import FixedLeadership
from tests.unit.control.scope_builders import PVC
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run
from tests.unit.render.rendered import SITE
from tests.unit.signals.records import EPOCH, haproxy, record, triton

DIGITS = Key("team", "digits")
STARTED = "2025-11-20T00:00:00Z"
"""Creation time of pods, long before EPOCH, so that they don't count as new."""


def spec(**scaling: Any) -> Spec:
    """Return a spec with this `scaling`. The defaults are 1 to 10 replicas and no GPUs."""
    document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 0}}}
    return parse("digits", document | {"scaling": {"minReplicas": 1, "maxReplicas": 10} | scaling})


def plan_of(known: Spec | None, actuator: Actuator = Actuator.HPA) -> ReconcilePlan:
    """Return what a reconcile passes to the scaler."""
    return ReconcilePlan(Acceptance(accepted=True, reason=Reason.ACCEPTED, message=""), spec=known, actuator=actuator)


def pod(name: str, owner: str, component: str, *, ready_at: str | None = STARTED, created_at: str = STARTED) -> Object:
    """Return a pod of a model as in the caches. With `ready_at` None it isn't ready."""
    ready = {"type": "Ready", "status": str(ready_at is not None), "lastTransitionTime": ready_at or created_at}
    labels = {names.OWNER_LABEL: owner, names.COMPONENT_LABEL: component}
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    return pods.project(
        {
            "metadata": meta | {"creationTimestamp": created_at},
            "status": {"phase": "Running", "conditions": [ready]},
        }
    )


@dataclass
class Dictated(Decider):
    """A decider with decisions set by the test: replicas or an error by model. The default is the present replicas."""

    desired: dict[Key, int | Exception] = field(default_factory=dict)
    published: dict[Key, tuple[Signal, ...]] = field(default_factory=dict)
    unknown: dict[Key, str] = field(default_factory=dict)
    calls: list[tuple[float, Key]] = field(default_factory=list)
    """Time and model of each call."""
    thinks: Callable[[], None] = lambda: None
    """Function called by each decision."""

    @override
    def decide(self, key: Key, spec: Spec, actuator: Actuator, now: float) -> Decision:
        self.calls.append((now, key))
        self.thinks()
        current = self.signals.caches.replicas(key)
        desired = self.desired.get(key, current)
        if isinstance(desired, Exception):
            raise desired
        return Decision(
            self.signals.epoch.at(now),
            defaults.policy(spec),
            current,
            desired,
            text=f"{desired} replicas, since the test says so",
            signals=self.published.get(key, ()),
            unknown=self.unknown.get(key, ""),
        )


@dataclass(frozen=True)
class Write:
    """A write of the replicas."""

    at: float
    key: Key
    replicas: int
    published: int | None
    """Desired replicas in the status at that time, which a standby serves."""


class _Kube(MemoryKube):
    """A client that records writes to /scale, with fast watches."""

    def __init__(self, world: OperatorReplica) -> None:
        super().__init__()
        self._world = world
        self.errors: list[Exception] = []
        """Errors for the next writes to /scale."""
        self.attempts = 0
        """Number of writes to /scale, including failed ones."""

    @override
    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None) -> Object:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        resource = await super().scale(kind, obj, before=before, after=after, version=version)
        self._world.wrote(Key(obj["metadata"]["namespace"], obj["metadata"]["name"]), resource)
        return resource


class OperatorReplica:
    """One operator replica, as far as scaling is concerned."""

    def __init__(
        self, time: VirtualTime, *, leads: bool = True, led: bool = True, publishes_in_s: float = 0.05
    ) -> None:
        self.time = time
        self.leadership = FixedLeadership(is_leader=leads, has_leader=led)
        self.publishes_in_s = publishes_in_s
        self.clock = DrivenClock(time, EPOCH)
        self.specs: dict[Key, Spec] = {}
        self.writes: list[Write] = []
        self.queued: list[tuple[float, Key]] = []
        self.urgent: list[Key] = []
        """Enqueued models whose replicas wait for a reconcile."""
        self.after_write: Callable[[Key], None] = lambda _: None
        self.watch_hangs = False
        """True if this replica's cache receives no changes of ModelDeployments."""
        self.kube = _Kube(self)
        self.caches = ClusterState(self.kube, enqueue=lambda _: None)
        self.hub = ObservationStore()
        self.sensing = ModelSignals(self.caches, self.hub, self.clock)
        self.scaler = self.another_scaler()
        self._requests: dict[Key, int] = {}
        self._batches: dict[Key, int] = {}

    def another_scaler(self) -> Autoscaler:
        """Return a scaler as in a new process. It replaces the current one only if the test assigns it."""
        return autoscaler(
            self.kube,
            self.caches,
            self.specs,
            self.sensing,
            clock=self.clock,
            leadership=self.leadership,
            enqueue=self._enqueue,
        )

    @property
    def served_metrics(self) -> ServedMetrics:
        """Return the decisions of the current scaler as the metrics API serves them."""
        return served_metrics(self.scaler)

    def dictate(self) -> Dictated:
        """Replace the decider by one that the test controls."""
        self.scaler.decider = dictated = Dictated(self.sensing)
        return dictated

    def model(
        self,
        name: str = "digits",
        *,
        replicas: int = 1,
        actuator: Actuator | None = Actuator.HPA,
        scaling_status: Mapping[str, Any] | None = None,
        **scaling: Any,
    ) -> Key:
        """Create a ModelDeployment with ready pods and a balancer. It is reconciled once, unless `actuator` is None."""
        key = Key("team", name)
        self.specs[key] = spec(**scaling)
        resource = {
            "metadata": {"namespace": "team", "name": name, "uid": name, "generation": 1},
            "spec": {"replicas": replicas, "scaling": dict(scaling)},
            "status": {"scaling": dict(scaling_status)} if scaling_status else {},
        }
        self.store(self.kube._put((kinds.MODEL_DEPLOYMENT, "team", name), resource))
        self.caches.pods._store(Key("team", f"{name}-balancer-0"), pod(f"{name}-balancer-0", name, names.BALANCER))
        self.have_pods(key, replicas)
        if actuator is not None:
            self.scaler.planned(key, plan_of(self.specs[key], actuator))
        return key

    def have_pods(self, key: Key, count: int) -> None:
        """Set the number of model pods, which are all ready."""
        present = [p["metadata"]["name"] for p in self.caches.pods.find("team", key.name)]
        desired = [f"{key.name}-a-{n}" for n in range(count)]
        for name in {*present} - {*desired}:
            self.caches.pods._store(Key("team", name), None)
        for name in [n for n in desired if n not in present]:
            self.caches.pods._store(Key("team", name), pod(name, key.name, names.SERVER))

    def store(self, obj: Object, *, writer: str = "halcyon") -> None:
        """Store an object, as the watch of ModelDeployments would."""
        if self.watch_hangs:
            return
        meta = obj["metadata"]
        written = {"replicasWriter": writer, "replicasWrittenAt": rfc3339(self.clock.wall())}
        self.caches.resources._store(Key(meta["namespace"], meta["name"]), obj | {"metadata": meta | written})

    def scale(self, key: Key, replicas: int, *, by: str = "kubectl", seen: bool = True) -> None:
        """Write the replicas as another writer. With `seen`, the cache already has the change."""
        current = self.kube.objects[kinds.MODEL_DEPLOYMENT, key.namespace, key.name]
        changed = self.kube._put(
            (kinds.MODEL_DEPLOYMENT, key.namespace, key.name),
            {
                **current,
                "metadata": current["metadata"] | {"generation": current["metadata"]["generation"] + 1},
                "spec": current["spec"] | {"replicas": replicas},
            },
        )
        if seen:
            self.store(changed, writer=by)

    def pause(self, key: Key, *, seen: bool) -> None:
        """Set the mode Paused as a user. The new spec is not accepted yet. With `seen`, the cache has the change."""
        address = (kinds.MODEL_DEPLOYMENT, key.namespace, key.name)
        current = self.kube.objects[address]
        changed = self.kube._put(
            address,
            {
                **current,
                "metadata": current["metadata"] | {"generation": current["metadata"]["generation"] + 1},
                "spec": current["spec"] | {"scaling": current["spec"]["scaling"] | {"mode": "Paused"}},
            },
        )
        if seen:
            self.store(changed, writer="kubectl")

    def catch_up(self, key: Key, *, writer: str = "halcyon") -> None:
        """Update the cache to the state of the API server."""
        self.store(self.kube.objects[kinds.MODEL_DEPLOYMENT, key.namespace, key.name], writer=writer)

    def delete(self, key: Key) -> None:
        """Delete the model."""
        del self.kube.objects[kinds.MODEL_DEPLOYMENT, key.namespace, key.name]
        self.caches.resources._store(key, None)
        del self.specs[key]

    def wrote(self, key: Key, resource: Object) -> None:
        """Process a successful write to /scale."""
        count = resource["spec"]["replicas"]
        self.writes.append(Write(self.time(), key, count, self.scaling_status(key).get("desired")))
        self.after_write(key)
        self.store(resource)
        self.have_pods(key, count)

    def replicas(self, key: Key = DIGITS) -> int:
        """Return the current replicas."""
        return int(self.kube.objects[kinds.MODEL_DEPLOYMENT, key.namespace, key.name]["spec"]["replicas"])

    def scaling_status(self, key: Key = DIGITS) -> dict[str, Any]:
        """Return status.scaling."""
        status = (self.caches.resources.get(key) or {}).get("status") or {}
        return dict(status.get("scaling") or {})

    def counts(self, key: Key = DIGITS) -> list[int]:
        """Return the replicas that were written, in order."""
        return [write.replicas for write in self.writes if write.key == key]

    def _enqueue(self, key: Key, priority: Priority) -> None:
        self.queued.append((self.time(), key))
        if priority is Priority.COUNT:
            self.urgent.append(key)
        asyncio.get_running_loop().call_later(0.01, self._reconcile, key)

    def _reconcile(self, key: Key) -> None:
        """Reconcile the scaling part of the status: read first, and write a while later."""
        resource = self.kube.objects.get((kinds.MODEL_DEPLOYMENT, key.namespace, key.name))
        if resource is None:
            return
        view = Scope(resource=resource, site=SITE, children={}, scaling=self.scaler.published(key))
        scaling_status = status_scaling.make(view, plan_of(self.specs[key]))
        asyncio.get_running_loop().call_later(self.publishes_in_s, self.publish, key, scaling_status)

    def publish(self, key: Key, scaling_status: Mapping[str, Any]) -> None:
        """Write the status."""
        address = (kinds.MODEL_DEPLOYMENT, key.namespace, key.name)
        resource = self.kube.objects.get(address)
        if resource is None:
            return
        writer = (self.caches.resources.get(key) or resource)["metadata"].get("replicasWriter", "halcyon")
        self.store(self.kube._put(address, resource | {"status": {"scaling": dict(scaling_status)}}), writer=writer)

    # The agents

    def add_balancer(self, number: int, key: Key = DIGITS) -> None:
        """Add a ready balancer pod, whose agent sends no report."""
        name = f"{key.name}-balancer-{number}"
        self.caches.pods._store(Key("team", name), pod(name, key.name, names.BALANCER))

    def speak(self, key: Key = DIGITS, *, arrived: int = 0, served: int | None = None, **balancer: int) -> None:
        """Send one report of the balancer's agent.

        It contains `arrived` more requests, and batches of 8 at 80 ms for `served` requests.
        """
        now, count = self.time(), len(self.caches.pods.find("team", key.name))
        self._requests[key] = self._requests.get(key, 0) + arrived
        self._batches[key] = self._batches.get(key, 0) + (arrived if served is None else served) // 8
        each = self._batches[key] // count if count else 0
        ran = BatchStats(EPOCH + now, ((8, each, each * 80_000),)) if each else None
        seen = [
            triton(f"{key.name}-a-{n}", at=now, batches=ran, gpu=None, succeeded=8 * each, rows=8 * each)
            for n in range(count)
        ]
        self.hub.receive(
            record(
                now,
                *seen,
                agent=f"{key.name}-balancer-0",
                balancer=haproxy(requests=self._requests[key], **balancer),
                namespace="team",
                name=key.name,
            ),
            now,
        )

    async def load(self, rate: int, seconds: int, key: Key = DIGITS, **balancer: int) -> None:
        """Apply a steady load for `seconds`. The agent sends a report every second."""
        for _ in range(seconds):
            self.speak(key, arrived=rate, **balancer)
            await asyncio.sleep(1.0)


def live(scenario: Callable[[OperatorReplica], Awaitable[None]], **world: Any) -> OperatorReplica:
    """Run a scenario, and return its simulated operator."""

    async def main(time: VirtualTime) -> OperatorReplica:
        operator = OperatorReplica(time, **world)
        await scenario(operator)
        return operator

    return run(main)


async def served(world: OperatorReplica, key: Key = DIGITS) -> float | str:
    """Return the response of the metrics API for policy Planner: the replicas, or the reason for an error."""
    response = await world.served_metrics.desired(*key)
    return response.value if isinstance(response, Value) else response.reason


class Running:
    """The scaler's loop, which runs while the context is open."""

    def __init__(self, scaler: Autoscaler) -> None:
        self._scaler = scaler

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._scaler.run())

    async def __aexit__(self, *_: object) -> None:
        assert not self._task.done(), self._task
        self._task.cancel()
        await asyncio.wait({self._task})


def holds(state: object, key: Key, path: str = "") -> list[str]:
    """Yield the paths at which a dataclass of scaling, or one nested in it, has an entry for a model."""
    paths = []
    for part in fields(state):  # type: ignore[arg-type]  # only dataclasses are given
        value = getattr(state, part.name)
        if part.name != "specs" and isinstance(value, (dict, set)) and key in value:
            paths.append(f"{path}{part.name}")
        elif part.name in {"decider", "external_writers", "updates"} or (part.name == "signals" and not path):
            paths += holds(value, key, f"{path}{part.name}.")
    return sorted(paths)


CONFLICT = errors.Conflicted(409, "the object has been modified")
