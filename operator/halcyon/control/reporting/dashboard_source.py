"""Data source of the web dashboard, and the service that runs it: serving and sampling.

Every replica serves it: caches and agents' reports are warm on the standby too, and the desired replicas are in the status that
the leader writes. Out of scope: what the dashboard shows (`halcyon.dashboard`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from halcyon.api.documents.observation_report import ReportedHistogram
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.objects.pod_stage import stage
from halcyon.control.reporting.recent_events import RecentEvents
from halcyon.control.state.cluster_state import ClusterState
from halcyon.dashboard.authorization import Authorizer, ModelReviews, Proxy
from halcyon.dashboard.client_latency import ClientLatency
from halcyon.dashboard.history import STEP_S, ChartHistory, ReplicaCounts
from halcyon.dashboard.ports import UNKNOWN, DashboardPod, Event, ModelNumbers, Name, Past
from halcyon.dashboard.server import NO_PAGES, Dashboard
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.tls import ServingTLS
from halcyon.render import revision
from halcyon.scaling.observations import MAX_AGE_S, PodPoint
from halcyon.scaling.planner.forecast.seasonality import BIN_S
from halcyon.scaling.planner.whatif import Known
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.store_state import BALANCER_COUNTERS, POD_COUNTERS, ModelSnapshot
from halcyon.signals.time_series import Ring

log = logging.getLogger(__name__)

WINDOW_S = 15.0
"""Window for rates: agents at rest report every 5 s."""
SLICE_S = 0.02
"""Time after which sampling yields to other tasks."""
CLOSE_WITHIN_S = 0.5
"""Maximum time to close, out of the 2 s that a hand-over may take."""
_SLICES = STEP_S
"""Number of slices. Each second the models of one slice are sampled, so that thousands cause no load peak."""
_QUEUED = 1
_PENDING, _GPU = ([*PodPoint.__dataclass_fields__].index(name) for name in ("pending", "gpu"))
_OF_BALANCERS = tuple(3 + BALANCER_COUNTERS.index(name) for name in ("requests", "rejected", "errors"))
_OF_SERVERS = tuple(
    3 + POD_COUNTERS.index(name) for name in ("succeeded", "failed", "rows", "executions", "queue_us", "compute_us")
)
"""Columns of the rings (`signals.time_series`, `signals.store_state`)."""


@dataclass(frozen=True)
class DashboardSettings:
    """Options for serving the dashboard."""

    local: bool
    """Whether to serve on localhost, without TLS and sign-in; else on every address, with TLS, for users of the cluster."""
    port: int
    proxy: Proxy | None = None
    """Proxy that is trusted to authenticate users; None: no proxy is trusted."""


@dataclass
class OperatorSource:
    """The operator's state, as the dashboard reads it."""

    caches: ClusterState
    hub: ObservationStore
    autoscaler: Autoscaler
    clock: Clock
    _names: tuple[int, Collection[Name]] = (-1, ())

    def __post_init__(self) -> None:
        """Start to record events."""
        self._happened = RecentEvents(self.clock)
        self.caches.resources.listeners.append(self._happened.changed)

    @property
    def synced(self) -> bool:
        """Return whether the caches are filled."""
        return self.caches.synced

    @property
    def changes(self) -> int:
        """Return how often a ModelDeployment was added, changed or deleted."""
        return self.caches.resources.changes

    def names(self) -> Collection[Name]:
        """Return the names of all models."""
        if self._names[0] != self.changes:
            self._names = (self.changes, [Name(*key) for key in self.caches.resources.all_keys()])
        return self._names[1]

    def model(self, name: Name) -> Object | None:
        """Return the ModelDeployment."""
        return self.caches.resources.get(Key(*name))

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Return its server pods."""
        return self._pods(name.namespace, name.name)

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Return its balancer pods."""
        return self._pods(name.namespace, f"balancer/{name.name}")

    def _pods(self, namespace: str, word: str) -> Sequence[DashboardPod]:
        found = [(pod, stage(pod)) for pod in self.caches.pods.find(namespace, word)]
        return [DashboardPod(pod, doing.state, doing.reason, doing.message) for pod, doing in found]

    def events(self, name: Name) -> Sequence[Event]:
        """Return its recent events."""
        return self._happened.of(Key(*name))

    def overlay(self, name: Name) -> str:
        """Return the overlay of the target revision; without one, that of the current revision."""
        revisions = ((self.model(name) or {}).get("status") or {}).get("revision") or {}
        records = self.caches.children[kinds.CONTROLLER_REVISION]
        for which in ("target", "current"):
            record = records.get(Key(name.namespace, str(revisions.get(which) or "")))
            if record is not None and (found := revision.read(record)) is not None:
                return found.overlay
        return ""

    def reading(self, name: Name) -> ModelNumbers:
        """Return its current numbers."""
        now = self.clock.monotonic()
        picture = self.hub.snapshot(name.namespace, name.name, now)
        if picture is None:
            return UNKNOWN
        gpu, scaled = _gpu(picture, now), self.autoscaler.state(Key(*name))
        if gpu is None and scaled is not None and scaled.verdict is not None:
            # From the site's Prometheus, or derived: the decision has it for all ready pods together.
            ready = sum(pod.state in {"ready", "unreachable"} for pod in picture.pods.values())
            utilization = next((s.value for s in scaled.verdict.signals if s.name == "gpuUtilization"), None)
            gpu = None if utilization is None or not ready else utilization / ready
        return measured(picture, now, gpu=gpu)

    def answers(self, name: Name) -> Mapping[str, ReportedHistogram]:
        """Return the histograms of answers to clients that its balancers have counted, by pod."""
        return self.hub.client_latencies(*name, self.clock.monotonic())

    def past(self, name: Name) -> Past | None:
        """Return the past arrivals that its planner remembers."""
        history = self.autoscaler.decider.history(Key(*name))
        if history is None or not history.bins:
            return None
        return Past(BIN_S, history.open * BIN_S, history.bins)

    def known(self, name: Name) -> Known | None:
        """Return what its planner has learnt."""
        spec = self.autoscaler.specs.get(Key(*name))
        return None if spec is None or spec.scaling is None else self.autoscaler.decider.known(Key(*name), spec)


def measured(picture: ModelSnapshot, now: float, *, gpu: float | None) -> ModelNumbers:
    """Return a model's numbers from its agents' reports."""
    balancers = [ring for _, ring in picture.balancers]
    servers = [pod.ring for pod in picture.pods.values() if pod.ring is not None]
    asked, refused, lost = _rates(balancers, _OF_BALANCERS, now)
    answered, failed, rows, executions, queue_us, compute_us = _rates(servers, _OF_SERVERS, now)
    known_us = [value for value in (queue_us, compute_us) if value is not None]
    queued, pending = _sum(balancers, _QUEUED, now), _sum(servers, _PENDING, now)
    waiting = [value for value in (queued, pending) if value is not None]
    return ModelNumbers(
        rate=asked if balancers else answered,
        waiting=sum(waiting) if waiting else None,
        latency_ms=sum(known_us) / answered / 1000 if answered and known_us else None,
        batch=rows / executions if rows is not None and executions else None,
        gpu=gpu,
        rejected=refused,
        lost=lost,
        failed=failed,
    )


def _gpu(picture: ModelSnapshot, now: float) -> float | None:
    values = [v for p in picture.pods.values() if p.ring is not None and (v := _newest(p.ring, _GPU, now)) is not None]
    return sum(values) / len(values) if values else None


def _rates(rings: Iterable[Ring], columns: Sequence[int], now: float) -> list[float | None]:
    """Return, per column, the sum of the known rates; None if none is known."""
    total: list[float | None] = [None] * len(columns)
    for ring in rings:
        for index, rate in enumerate(ring.rates(columns, now, WINDOW_S)):
            if rate is not None:
                total[index] = rate + (total[index] or 0.0)
    return total


def _sum(rings: Iterable[Ring], column: int, now: float) -> float | None:
    values = [value for ring in rings if (value := _newest(ring, column, now)) is not None]
    return sum(values) if values else None


def _newest(ring: Ring, column: int, now: float) -> float | None:
    back = ring.fresh((column,), now, MAX_AGE_S, -math.inf)
    return ring.value(back, column) if back else None


def sliced(models: Iterable[Name]) -> list[list[Name]]:
    """Return the models grouped by the second in which they are sampled."""
    slices: list[list[Name]] = [[] for _ in range(_SLICES)]
    for name in models:
        slices[hash(name) % _SLICES].append(name)
    return slices


def due(slices: Sequence[Sequence[Name]], before_s: int, now_s: int) -> list[Name]:
    """Return the models to sample at this second: each once in `STEP_S` seconds, even if seconds were missed."""
    seconds = range(max(before_s + 1, now_s - _SLICES + 1), now_s + 1)
    return [name for second in seconds for name in slices[second % _SLICES]]


class DashboardService:
    """The dashboard of this replica."""

    def __init__(
        self,
        chosen: DashboardSettings,
        source: OperatorSource,
        reviews: ModelReviews,
        ports: ListeningPorts,
    ) -> None:
        """Create the dashboard over `source`."""
        self._ports = ports
        self._chosen, self._source, self._clock = chosen, source, source.clock
        self.history = ChartHistory()
        self._client_latency = ClientLatency()
        access = Authorizer(
            None if chosen.local else reviews,
            clock=source.clock.monotonic,
            namespaces=lambda: {name.namespace for name in source.names()},
            proxy=chosen.proxy,
        )
        steps = lambda: int(self._clock.wall() // STEP_S)  # noqa: E731  # as short as a name for it
        self._site = Dashboard(source, access, self.history, steps=steps)

    async def run(self, tls: Callable[[], Awaitable[ServingTLS]]) -> None:
        """Serve and sample until cancelled. If the port can't be opened, only the dashboard is missing.

        Args:
            tls: waits for the operator's certificate and returns its TLS.
        """
        if not self._site.has_pages:
            log.warning(NO_PAGES)
        context = None if self._chosen.local else (await tls()).context
        try:
            listener = await self._ports.open(
                self._site.app(),
                name="dashboard",
                host="127.0.0.1" if self._chosen.local else None,
                port=self._chosen.port,
                tls=context,
                shutdown_s=CLOSE_WITHIN_S,
            )
        except OSError as error:
            log.error("the dashboard can't be served", extra={"port": self._chosen.port, "error": str(error)})  # noqa: TRY400  # it says it all
            return
        try:
            log.info("serving the dashboard", extra={"port": self._chosen.port, "localhost": self._chosen.local})
            await self._sample()
        finally:
            await listener.cleanup()

    async def _sample(self) -> None:
        clock = self._clock.monotonic
        before = int(self._clock.wall()) - _SLICES
        changes, slices = -1, sliced(())
        while True:
            now = self._clock.wall()
            if not before - _SLICES < int(now):  # the clock was set back
                before = int(now) - 1
            began = clock()
            if changes != self._source.changes:
                changes, slices = self._source.changes, sliced(self._source.names())
            for name in due(slices, before, int(now)):
                try:
                    self.sample(name, now)
                except Exception:
                    # A missing point in a chart must not end the operator.
                    log.exception(
                        "cannot sample a model for the dashboard's history",
                        extra={"key": f"{name.namespace}/{name.name}"},
                    )
                if clock() - began > SLICE_S:
                    await asyncio.sleep(0)
                    began = clock()
            if len(self.history) > len(self._source.names()):
                self.history.retain(self._source.names())
                self._client_latency.retain(self._source.names())
            before = max(int(now), before)
            await asyncio.sleep(1.0)

    def sample(self, name: Name, at: float) -> None:
        """Add one point to a model's history; `at` in seconds since the epoch."""
        model = self._source.model(name)
        if model is None:
            return
        spec, status = model.get("spec") or {}, model.get("status") or {}
        ready, desired = status.get("readyReplicas"), (status.get("scaling") or {}).get("desired")
        counts = ReplicaCounts(replicas=int(spec.get("replicas", 1)), ready=ready, desired=desired)
        reading = self._source.reading(name)
        if reading is UNKNOWN:
            self._client_latency.forget(name)
            self.history.add(name, at, counts, reading)
        else:
            self.history.add(name, at, counts, reading, self._client_latency.update(name, self._source.answers(name)))
