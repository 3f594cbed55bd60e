"""Part `loop`: the decision loop alone with 10,000 models in one process, without an API server.

Real: the loop (`control.autoscaling.loop`), the hub, readings and planner, with reports arriving as often as agents send them.
Simulated: objects in caches that are filled once and never change, and reports passed within the process (no TLS, no
JSON).
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from prometheus_client import CollectorRegistry
from typing_extensions import override

from benchmarks.cost import rss_mib
from benchmarks.rows import Row, quantile
from benchmarks.stand_in import StandIn
from e2e.cluster.progress import say
from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.balancer.telemetry.report_stream import SendInterval
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.autoscaling.scale_writer import ScaleWriter
from halcyon.control.autoscaling.status_updates import StatusUpdates
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects.actuator import Actuator
from halcyon.control.runtime.gc_freeze import GcFreeze
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import kinds
from halcyon.kube.client import Kube
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import Key, Kind
from halcyon.kube.tracing import OFF
from halcyon.render import names
from halcyon.scaling.policy.decision import Decision
from halcyon.signals.observation_store import ObservationStore

Object = dict[str, Any]
MODELS = 10_000
BUSY_SHARE = 0.10
BUSY_RPS = 30.0
STAND_INS = (
    "the objects of all models are loaded once from memory, without an API server and without reconciliation",
    "agents' reports are passed to the decision loop within the same process, without TLS or JSON",
)
_WARM_S, _FOR_S = 12.0, 40.0
_SAMPLE_S = 0.5
_CPU_EVERY = 16
_NAMESPACE = "bench"
_ACCEPTED = Acceptance(accepted=True, reason=Reason.ACCEPTED, message="")


class _Stored:
    """The methods of the Kubernetes client that informers and the loop use, with objects that never change."""

    def __init__(self, objects: Mapping[Kind, list[Object]]) -> None:
        self._objects = objects
        self.writes = 0

    async def list(self, kind: Kind, **_: object) -> tuple[list[Object], str]:
        return self._objects.get(kind, []), "1"

    async def watch(self, _kind: Kind, **_: object) -> AsyncGenerator[tuple[str, Object], None]:
        await asyncio.Event().wait()
        yield "BOOKMARK", {}

    async def patch(self, kind: Kind, namespace: str, name: str, _body: object, **_: object) -> Object:
        self.writes += 1
        return next(o for o in self._objects[kind] if o["metadata"]["name"] == name and namespace)


@dataclass(frozen=True)
class _FixedSpec:
    """A spec source with the same spec for every model."""

    spec: Spec

    def get(self, _: Key, /) -> Spec:
        return self.spec


class _Leader:
    """The leadership of the only replica."""

    is_leader = has_leader = True


class _Times(DecisionMetrics):
    """The operator's own metrics of its decisions, which also keeps each value."""

    def __init__(self, ages: Callable[[], Iterable[float]]) -> None:
        super().__init__(ages, CollectorRegistry())
        self.took_s: list[float] = []
        """Duration from the start of one model's turn to the next, by the wall clock: reading, planning, and subsequent
        work."""

    @override
    def add_duration(self, seconds: float) -> None:
        super().add_duration(seconds)
        self.took_s.append(seconds)


@dataclass
class _Timed(Decider):
    """A wrapper that measures the CPU time of one decision in `_CPU_EVERY`."""

    worked_s: list[float] = field(default_factory=list)
    """CPU time of this thread per measured decision, from the reading to the decision. Reading this clock takes two
    system calls. So most decisions are not measured, in order not to distort their wall-clock times."""
    _decisions: int = 0

    @override
    def decide(self, key: Key, spec: Spec, actuator: Actuator, now: float) -> Decision:
        self._decisions += 1
        if self._decisions % _CPU_EVERY:
            return super().decide(key, spec, actuator, now)
        worked_s = time.thread_time()
        decision = super().decide(key, spec, actuator, now)
        self.worked_s.append(time.thread_time() - worked_s)
        return decision


def run(models: int = MODELS, for_s: float = _FOR_S) -> list[Row]:
    """Measure, and return one row."""
    return [asyncio.run(_run(models, for_s))]


async def _run(models: int, for_s: float) -> Row:
    keys = [Key(_NAMESPACE, f"m{number:05}") for number in range(models)]
    spec = parse("m", _spec())
    client = _Stored(_objects(keys))
    caches = ClusterState(cast("Kube", client), enqueue=lambda _: None)
    hub = ObservationStore()
    signals = ModelSignals(caches, hub, SYSTEM_CLOCK)
    leadership, specs = _Leader(), _FixedSpec(spec)
    states: dict[Key, ModelState] = {}
    writer = ScaleWriter(cast("Kube", client), caches, specs, leadership, SYSTEM_CLOCK)
    timed, times = _Timed(signals), _Times(lambda: ())
    scaler = Autoscaler(
        caches=caches,
        specs=specs,
        signals=signals,
        decider=timed,
        limits=ReplicaLimits(caches, specs, SYSTEM_CLOCK),
        writer=writer,
        updates=StatusUpdates(caches, signals, writer, lambda *_: None, leadership, SYSTEM_CLOCK, OFF),
        decision_metrics=times,
        models=states,
        leadership=leadership,
        clock=SYSTEM_CLOCK,
    )
    feed = _Feed(hub, keys)
    filling = asyncio.create_task(caches.run())
    await caches.wait_synced()
    for key in keys:
        scaler.planned(key, ReconcilePlan(_ACCEPTED, actuator=Actuator.HPA))
    # The operator excludes its caches from the cyclic garbage collector, so this benchmark does the same.
    heap = GcFreeze(caches.size, caches.changes)
    working = [asyncio.create_task(work) for work in (feed.run(), scaler.run(), heap.run())]
    ages: list[float] = []
    loop_began_s = time.monotonic()
    try:
        await asyncio.sleep(_WARM_S)
        times.took_s.clear()
        timed.worked_s.clear()
        began_s, cpu_before_s, built_before_s = time.monotonic(), time.process_time(), feed.building_s
        while time.monotonic() < began_s + for_s:
            await asyncio.sleep(_SAMPLE_S)
            now = time.monotonic()
            ages += [now - max(model.decided, loop_began_s) for key in keys if (model := scaler.state(key))]
            for task in working:
                if task.done():
                    task.result()
        seconds = time.monotonic() - began_s
        cores = (time.process_time() - cpu_before_s - (feed.building_s - built_before_s)) / seconds
    finally:
        for task in (*working, filling):
            task.cancel()
        await asyncio.gather(*working, filling, return_exceptions=True)
    p50_s, p99_s = quantile(times.took_s, 0.5), quantile(times.took_s, 0.99)
    worked_s, age_s = quantile(timed.worked_s, 0.5), quantile(ages, 0.99)
    say(f"loop: {len(times.took_s) / seconds:.0f} decisions/s, p50 {1e6 * (p50_s or 0):.0f} us, age p99 {age_s} s")
    return Row(
        part="loop",
        what=f"the loop alone with {models} models, {BUSY_SHARE:.0%} of them busy",
        models=models,
        actuator="HPA",
        cpu_cores=round(cores, 3),
        rss_mib=round(rss_mib(os.getpid()), 1),
        decision_us_p50=None if p50_s is None else round(p50_s * 1e6, 1),
        decision_us_p99=None if p99_s is None else round(p99_s * 1e6, 1),
        decision_age_p99_s=None if age_s is None else round(age_s, 2),
        stand_ins=STAND_INS,
        figures={
            "decision_cpu_us_p50": None if worked_s is None else round(worked_s * 1e6, 1),
            "decisions_per_s": round(len(times.took_s) / seconds, 1),
            "decisions": len(times.took_s),
            "record_late_p99_s": round(quantile(feed.late_s, 0.99) or 0.0, 3),
            "writes": client.writes,
        },
    )


class _Feed:
    """Generator of the reports of one agent per model: once a second if busy, else at the uplink's interval."""

    def __init__(self, hub: ObservationStore, keys: list[Key]) -> None:
        self.building_s = 0.0
        """CPU time spent on creating the reports, which belongs to the load generator and not to the loop."""
        self.late_s: list[float] = []
        """Delay of each report behind its due time, in seconds."""
        self._hub = hub
        busy = int(BUSY_SHARE * len(keys))
        models = [
            (key, StandIn(key.namespace, key.name, rate_rps=BUSY_RPS if n < busy else 0.0))
            for n, key in enumerate(keys)
        ]
        now = time.monotonic()
        self._turns = [
            _Turns(models[:busy], every_s=1.0, began_s=now),
            _Turns(models[busy:], every_s=SendInterval().max_s, began_s=now),
        ]

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            for turns in self._turns:
                for due_s, key, model in turns.due(time.monotonic()):
                    began_s = time.process_time()
                    report = model.report(time.time(), (f"{key.name}-a-0",), f"{key.name}-balancer-0")
                    self.building_s += time.process_time() - began_s
                    now = time.monotonic()
                    self.late_s.append(now - due_s)
                    self._hub.receive(report, now)
            await asyncio.sleep(0.005)


class _Turns:
    """A schedule that gives each model one turn per period."""

    def __init__(self, models: list[tuple[Key, StandIn]], *, every_s: float, began_s: float) -> None:
        self._models, self._every_s, self._began_s = models, every_s, began_s
        self._done = 0

    def due(self, now: float) -> list[tuple[float, Key, StandIn]]:
        """Return (time, key, model) of those whose turn has come since the last call."""
        if not self._models:
            return []
        apart_s = self._every_s / len(self._models)
        until = int((now - self._began_s) / apart_s)
        turns = [(self._began_s + n * apart_s, *self._models[n % len(self._models)]) for n in range(self._done, until)]
        self._done = max(until, self._done)
        return turns


def _spec() -> Object:
    return {
        "model": {"source": {"configMap": {"name": "m", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}},
        "runtime": {"gpu": {"count": 0}},
        "batching": {"maxBatchSize": 8},
        "scaling": {"maxReplicas": 10, "targets": {"latency": "500ms"}},
        "traffic": {"balancerReplicas": 1},
    }


def _objects(keys: list[Key]) -> dict[Kind, list[Object]]:
    """Return a model, a model pod and a balancer pod for each key, ready for an hour."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    return {
        kinds.MODEL_DEPLOYMENT: [
            {
                "metadata": {"namespace": key.namespace, "name": key.name, "uid": key.name, "resourceVersion": "1"},
                "spec": {"replicas": 1},
            }
            for key in keys
        ],
        kinds.POD: [
            _pod(key, component, since)
            for key in keys
            for component in (("a", names.SERVER), ("balancer", names.BALANCER))
        ],
    }


def _pod(key: Key, component: tuple[str, str], since: str) -> Object:
    name = f"{key.name}-{component[0]}-0"
    return {
        "metadata": {
            "namespace": key.namespace,
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": since,
            "labels": {
                names.OWNER_LABEL: key.name,
                names.COMPONENT_LABEL: component[1],
                names.MANAGER_LABEL: names.MANAGER,
            },
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("PodScheduled", "Ready")
            ],
        },
    }
