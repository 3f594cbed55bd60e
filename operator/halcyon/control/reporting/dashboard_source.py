"""Data source of the web dashboard, and the server that serves the dashboard and samples models for its charts.

Every replica of the operator serves the dashboard. The standby also has filled caches and receives the agents' reports,
and it reads the desired replicas from the status, which the leader writes. Out of scope: the pages of the dashboard
(`halcyon.dashboard`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from halcyon.api.documents.observation_report import ReportedHistogram
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.objects.pod_stage import stage
from halcyon.control.reporting.recent_events import RecentEvents
from halcyon.control.state.cluster_state import ClusterState
from halcyon.dashboard.authorization import Authorizer, ModelReviews, Proxy
from halcyon.dashboard.client_latency import ClientLatency
from halcyon.dashboard.history import STEP_S, ChartHistory, ReplicaCounts
from halcyon.dashboard.ports import (
    UNKNOWN,
    BatchReader,
    DashboardPod,
    Event,
    LogReader,
    ModelNumbers,
    Name,
    Past,
    ResultReader,
    StoredRevision,
)
from halcyon.dashboard.server import NO_PAGES, Dashboard
from halcyon.dashboard.site import NO_LINKS, Links, SiteMetrics
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock, in_slices
from halcyon.kube.kinds import Key
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.tls import ServingTLS
from halcyon.render import names, revision
from halcyon.scaling.observations import MAX_AGE_S, BalancerPoint, PodPoint
from halcyon.scaling.planner.forecast.seasonality import BIN_S
from halcyon.scaling.planner.whatif import Known
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.prometheus.source import PrometheusSource
from halcyon.signals.store_state import POD_COUNTERS, ModelSnapshot
from halcyon.signals.time_series import Ring

log = logging.getLogger(__name__)

WINDOW_S = 15.0
"""Length of the period over which rates are computed, in seconds. An agent of an idle model reports every 5 s."""
CLOSE_WITHIN_S = 0.5
"""Maximum time for closing the dashboard's server, in seconds. A change of leader may take at most 2 s in total."""
QUERY_TIMEOUT_OF_PAGES_S = 15.0
"""Maximum time of a query to the site's Prometheus for a page of the dashboard, in seconds. If a query takes longer,
the page shows why the data is missing."""
_SLICES = STEP_S
"""Number of groups of models for sampling. One group is sampled each second, so that thousands of models cause no peak
load."""
_QUEUED = 1
_PENDING, _GPU = ([*PodPoint.__dataclass_fields__].index(name) for name in ("pending", "gpu"))
_BALANCER_COLUMNS = tuple(
    [*BalancerPoint.__dataclass_fields__].index(name) for name in ("requests", "rejected", "errors", "unavailable")
)
_READY = frozenset({"ready", "unreachable"})
"""States of pods that Kubernetes counts as ready."""
_SERVER_COLUMNS = tuple(
    3 + POD_COUNTERS.index(name) for name in ("succeeded", "failed", "rows", "executions", "queue_us", "compute_us")
)
"""Positions of the servers' counters in the time series that are made from an agent's reports. See
`signals.time_series` and `signals.store_state`."""


@dataclass(frozen=True)
class DashboardSettings:
    """Settings of the dashboard's server."""

    local: bool
    """Whether the dashboard is served only on localhost, without TLS and sign-in. Otherwise it is served on all
    addresses with TLS, to users of the cluster."""
    port: int
    proxy: Proxy | None = None
    """Proxy that is trusted to authenticate users; None if no proxy is trusted."""
    links: Links = NO_LINKS
    cluster: str = ""
    """Name of the cluster; empty if it has none."""


@dataclass
class OperatorSource:
    """State of the operator in the form that the dashboard needs."""

    caches: ClusterState
    hub: ObservationStore
    autoscaler: Autoscaler
    clock: Clock
    _names: tuple[int, Collection[Name]] = (-1, ())

    def __post_init__(self) -> None:
        """Subscribe to changes of ModelDeployments, to record their events."""
        self._recent_events = RecentEvents(self.clock)
        self.caches.resources.listeners.append(self._recent_events.changed)

    @property
    def synced(self) -> bool:
        """Return whether the caches contain all objects."""
        return self.caches.synced

    @property
    def changes(self) -> int:
        """Return the number of additions, changes and deletions of ModelDeployments since the start."""
        return self.caches.resources.changes

    def names(self) -> Collection[Name]:
        """Return the namespace and name of each model."""
        if self._names[0] != self.changes:
            self._names = (self.changes, [Name(*key) for key in self.caches.resources.all_keys()])
        return self._names[1]

    def version(self, name: Name) -> object:
        """Return the resourceVersion of a ModelDeployment; None if it doesn't exist."""
        return self.caches.resources.version(Key(*name))

    def model(self, name: Name) -> Object | None:
        """Return the ModelDeployment with this name; None if it doesn't exist."""
        return self.caches.resources.get(Key(*name))

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the server pods of a model."""
        return self._pods(name.namespace, name.name)

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the balancer pods of a model."""
        return self._pods(name.namespace, f"balancer/{name.name}")

    def _pods(self, namespace: str, index_value: str) -> Sequence[DashboardPod]:
        stages = [(pod, stage(pod)) for pod in self.caches.pods.find(namespace, index_value)]
        return [DashboardPod(pod, state.state, state.reason, state.message) for pod, state in stages]

    def events(self, name: Name) -> Sequence[Event]:
        """Return the recent events of a model."""
        return self._recent_events.of(Key(*name))

    def revisions(self, name: Name) -> Sequence[StoredRevision]:
        """Return the revisions of a model that the cluster stores in ControllerRevisions."""
        uid = str(((self.model(name) or {}).get("metadata") or {}).get("uid") or "")
        records = self.caches.owned(kinds.CONTROLLER_REVISION, Key(*name), uid)
        stored = (r for r in map(revision.read, records) if r is not None)
        return [StoredRevision(names.revision(name.name, r.key), r.number, r.template, r.overlay) for r in stored]

    def overlay(self, name: Name) -> str:
        """Return the config overlay of a model's target revision, or of its current revision; empty if unknown."""
        revisions = ((self.model(name) or {}).get("status") or {}).get("revision") or {}
        records = self.caches.children[kinds.CONTROLLER_REVISION]
        for kind in ("target", "current"):
            record = records.get(Key(name.namespace, str(revisions.get(kind) or "")))
            if record is not None and (stored := revision.read(record)) is not None:
                return stored.overlay
        return ""

    def reading(self, name: Name) -> ModelNumbers:
        """Return a model's current rates, queue length and other numbers for the dashboard's page."""
        now = self.clock.monotonic()
        snapshot = self.hub.snapshot(name.namespace, name.name, now)
        if snapshot is None:
            return UNKNOWN
        gpu, scaled = _gpu(snapshot, now), self.autoscaler.state(Key(*name))
        if gpu is None and scaled is not None and scaled.decision is not None:
            # Without reports, the scaling decision may have GPU utilisation from Prometheus.
            gpu = next((s.shown for s in scaled.decision.signals if s.name == "gpuUtilization"), None)
        return measured(snapshot, now, gpu=gpu)

    def answers(self, name: Name) -> Mapping[str, ReportedHistogram]:
        """Return the histograms of response times that the balancers of a model report, by balancer pod."""
        return self.hub.client_latencies(*name, self.clock.monotonic())

    def past(self, name: Name) -> Past | None:
        """Return the history of arrivals in the memory of a model's planner; None if there is none."""
        history = self.autoscaler.decider.history(Key(*name))
        if history is None or not history.bins:
            return None
        return Past(BIN_S, history.open * BIN_S, history.bins)

    def known(self, name: Name) -> Known | None:
        """Return the planner's knowledge of a model, for what-if calculations; None if `spec.scaling` is not set."""
        spec = self.autoscaler.specs.get(Key(*name))
        return None if spec is None or spec.scaling is None else self.autoscaler.decider.knowledge(Key(*name), spec)


def measured(snapshot: ModelSnapshot, now: float, *, gpu: float | None) -> ModelNumbers:
    """Return a model's numbers from its agents' reports, as docs/reference/numbers.md defines them."""
    balancers = [ring for _, ring in snapshot.balancers]
    servers = [pod.ring for pod in snapshot.pods.values() if pod.ring is not None]
    requests, rejected, lost, unavailable = _rates(balancers, _BALANCER_COLUMNS, now)
    answered, failed, rows, executions, queue_us, compute_us = _rates(servers, _SERVER_COLUMNS, now)
    times_us = [value for value in (queue_us, compute_us) if value is not None]
    waiting = [*_means(balancers, _QUEUED, now), *_means(_ready_rings(snapshot), _PENDING, now)]
    failures = [value for value in (failed, unavailable) if value is not None]
    return ModelNumbers(
        rate=requests if balancers else answered,
        waiting=sum(waiting) if waiting else None,
        latency_ms=sum(times_us) / answered / 1000 if answered and times_us else None,
        batch=rows / executions if rows is not None and executions else None,
        gpu=gpu,
        rejected=rejected,
        lost=lost,
        # Both count requests that Triton refuses because they waited too long; only balancers count those above maxQueueSize.
        failed=max(failures) if failures else None,
    )


def _ready_rings(snapshot: ModelSnapshot) -> list[Ring]:
    return [pod.ring for pod in snapshot.pods.values() if pod.ring is not None and pod.state in _READY]


def _gpu(snapshot: ModelSnapshot, now: float) -> float | None:
    values, ready = _means(_ready_rings(snapshot), _GPU, now), sum(p.state in _READY for p in snapshot.pods.values())
    return sum(values) / len(values) if values and 2 * len(values) >= ready else None


def _rates(rings: Iterable[Ring], columns: Sequence[int], now: float) -> list[float | None]:
    """Return the sum of each counter's rates over all time series.

    Unknown rates are left out; None means that all are unknown.
    """
    total: list[float | None] = [None] * len(columns)
    for ring in rings:
        for index, rate in enumerate(ring.rates(columns, now, WINDOW_S)):
            if rate is not None:
                total[index] = rate + (total[index] or 0.0)
    return total


def _means(rings: Iterable[Ring], column: int, now: float) -> list[float]:
    """Return the mean of a column over the period, for each time series in which the column is known now."""
    recent = (ring for ring in rings if ring.known(column, now, MAX_AGE_S, -math.inf) is not None)
    means = (ring.mean(column, now, WINDOW_S, held_s=MAX_AGE_S, since=now - WINDOW_S) for ring in recent)
    return [mean for mean in means if mean is not None]


def sliced(models: Iterable[Name]) -> list[list[Name]]:
    """Return the models in groups. Each group is sampled in a different second."""
    slices: list[list[Name]] = [[] for _ in range(_SLICES)]
    for name in models:
        slices[hash(name) % _SLICES].append(name)
    return slices


def due(slices: Sequence[Sequence[Name]], before_s: int, now_s: int) -> list[Name]:
    """Return the models to sample now. Each model is sampled once in `STEP_S` seconds, even if some calls were late.

    `before_s` is the time of the previous call, `now_s` the current time, both in whole seconds.
    """
    seconds = range(max(before_s + 1, now_s - _SLICES + 1), now_s + 1)
    return [name for second in seconds for name in slices[second % _SLICES]]


def due_at(name: Name, now_s: int) -> int:
    """Return the second at which a model was last due. Late samples are stored for it, so that charts have no gap."""
    return now_s - (now_s - hash(name)) % _SLICES


class DashboardService:
    """Server of the dashboard in this replica of the operator, which also samples models for the charts."""

    def __init__(
        self,
        settings: DashboardSettings,
        source: OperatorSource,
        reviews: ModelReviews,
        ports: ListeningPorts,
        *,
        prometheus: PrometheusSource | None = None,
        logs: LogReader | None = None,
        measured_results: ResultReader | None = None,
        batches: BatchReader | None = None,
    ) -> None:
        """Create the web dashboard.

        The state of the operator comes from `source`, and charts can use the site's Prometheus if there is one. Other
        data comes from pods' logs, measurements and BatchInferences.
        """
        self._ports = ports
        self._settings, self._source, self._clock = settings, source, source.clock
        self.history = ChartHistory()
        self._client_latency = ClientLatency()
        access = Authorizer(
            None if settings.local else reviews,
            clock=source.clock.monotonic,
            namespaces=lambda: {name.namespace for name in source.names()},
            proxy=settings.proxy,
        )
        steps = lambda: int(self._clock.wall() // STEP_S)  # noqa: E731  # as short as a name for it
        clock = source.clock
        site = SiteMetrics(prometheus, monotonic=clock.monotonic, wall=clock.wall, cluster=settings.cluster)
        self._site = Dashboard(
            source,
            access,
            self.history,
            site=site,
            links=settings.links,
            cluster=settings.cluster,
            logs=logs,
            measured_results=measured_results,
            batches=batches,
            steps=steps,
        )

    async def run(self, tls: Callable[[], Awaitable[ServingTLS]]) -> None:
        """Serve the dashboard and sample models until cancelled.

        If the port can't be opened, log the error and return, so that the operator runs without a dashboard. `tls` is a
        function that waits for the operator's certificate and returns its TLS settings.
        """
        if not self._site.has_pages:
            log.warning(NO_PAGES)
        context = None if self._settings.local else (await tls()).context
        try:
            listener = await self._ports.open(
                self._site.app(),
                name="dashboard",
                host="127.0.0.1" if self._settings.local else None,
                port=self._settings.port,
                tls=context,
                shutdown_s=CLOSE_WITHIN_S,
            )
        except OSError as error:
            log.error("the dashboard can't be served", extra={"port": self._settings.port, "error": str(error)})  # noqa: TRY400  # the message suffices
            return
        try:
            log.info("serving the dashboard", extra={"port": self._settings.port, "localhost": self._settings.local})
            await self._sample()
        finally:
            await listener.cleanup()

    async def _sample(self) -> None:
        before = int(self._clock.wall()) - _SLICES
        changes, slices = -1, sliced(())
        while True:
            now = self._clock.wall()
            if not before - _SLICES < int(now):  # the clock was set back
                before = int(now) - 1
            if changes != self._source.changes:
                changes, slices = self._source.changes, sliced(self._source.names())
            async for name in in_slices(due(slices, before, int(now)), self._clock):
                try:
                    self.sample(name, due_at(name, int(now)))
                except Exception:
                    # A failed sample only leaves a gap in a chart, so it must not end the operator.
                    log.exception(
                        "cannot sample a model for the dashboard's history",
                        extra={"key": f"{name.namespace}/{name.name}"},
                    )
            if len(self.history) > len(self._source.names()):
                self.history.retain(self._source.names())
                self._client_latency.retain(self._source.names())
            before = max(int(now), before)
            await asyncio.sleep(1.0)

    def sample(self, name: Name, at: float) -> None:
        """Add the current numbers of a model to the history of its charts. `at` is in seconds since the epoch."""
        model = self._source.model(name)
        if model is None:
            return
        status = model.get("status") or {}
        ready, desired = status.get("readyReplicas"), (status.get("scaling") or {}).get("desired")
        counts = ReplicaCounts(replicas=replicas_in_force(model), ready=ready, desired=desired)
        reading = self._source.reading(name)
        if reading is UNKNOWN:
            self._client_latency.forget(name)
            self.history.add(name, at, counts, reading)
        else:
            self.history.add(name, at, counts, reading, self._client_latency.update(name, self._source.answers(name)))
