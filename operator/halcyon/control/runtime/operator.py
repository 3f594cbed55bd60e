"""The operator: its parts, started and stopped in order.

    always                   caches, election, certificates, the TLS server (metrics API, collector), the plain HTTP server, kopf,
                             the decision loop, the dashboard, GPU costs, the scraping of servers without an agent, and Prometheus
                             if the site has one
    only while leading       workers, status events, saving of planner memories, the check of who serves the metrics API

The standby has warm caches and the agents' observations, so that it serves the metrics API too, and can lead at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.control.autoscaling.served_metrics import ServedMetrics
from halcyon.control.reconcile.workers import Workers
from halcyon.control.reporting.dashboard_source import DashboardService
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_metrics import ModelMetrics
from halcyon.control.rollout.canary_queries import CanaryQueries
from halcyon.control.runtime import http_endpoints as probes
from halcyon.control.runtime import kopf_watch
from halcyon.control.runtime.gc_freeze import GcFreeze
from halcyon.control.runtime.leader_state import LeaderState
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.kube import errors
from halcyon.kube.client import KubeClient
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import LeaderElector
from halcyon.kube.work_queue import Priority, WorkQueue
from halcyon.metricsapi.auth import Gate
from halcyon.metricsapi.listener import Listener, ListeningPorts
from halcyon.metricsapi.server import MetricsApi, build_app, start_site
from halcyon.metricsapi.serving_certificate import CHECK_INTERVAL_S, ServingCertificate
from halcyon.metricsapi.tls import ServingTLS
from halcyon.signals.collector import Collector
from halcyon.signals.prometheus.source import PrometheusSource

log = logging.getLogger(__name__)

RESYNC_INTERVAL_S = 600.0
REPORTS_TIMEOUT_S = 15.0
"""Time after which a new replica is ready even if some agents haven't reported."""
FLUSH_TIMEOUT_S = 0.6
"""Time to save memories, out of the 2 s that a hand-over may take. Unsaved ones stay as they were at most ten minutes ago."""
EVENTS_TIMEOUT_S = 0.3
"""Time to write events, out of the same 2 s."""
STUCK_TIMEOUT_S = 120.0
"""Time without a reconcile starting or ending, although keys are queued, after which the process counts as stuck."""


@dataclass
class Operator:
    """All parts of the process, and their start and stop order."""

    clock: Clock
    settings: OperatorSettings
    client: KubeClient
    registry: CollectorRegistry
    queue: WorkQueue
    caches: ClusterState
    autoscaler: Autoscaler
    identity: ServingCertificate
    metrics_api: MetricsApiCheck
    gate: Gate
    collector: Collector
    served: ServedMetrics
    metrics: MetricsApi
    workers: Workers
    events: EventRecorder
    elector: LeaderElector
    leadership: LeaderState
    memories: PlannerMemoryStore
    prometheus: PrometheusSource | None
    queries: CanaryQueries | None
    scraper: PodScraper
    ports: ListeningPorts
    dashboard: DashboardService | None
    """The web dashboard."""
    model_metrics: ModelMetrics
    costs: GpuCosts

    def __post_init__(self) -> None:
        """Count the wait for agents' reports from now on."""
        self._built_at = self.clock.monotonic()
        self._reports_are_in = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`; a leader stops working before it releases the lease."""
        released = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self.caches.run(), name="caches"),
                group.create_task(self._certificates(), name="certificates"),
                group.create_task(self._serve(), name="sites"),
                group.create_task(self._decide(), name="scaler"),
                group.create_task(self._poll_prometheus(), name="prometheus"),
                group.create_task(self._scrape(), name="scraping"),
                group.create_task(self._serve_dashboard(), name="dashboard"),
                group.create_task(self._count_costs(), name="costs"),
                group.create_task(GcFreeze(self.caches.size, self.caches.changes).run(), name="heap"),
            ]
            election = group.create_task(self.elector.run(released), name="election")
            leader = group.create_task(self._lead(), name="leader")
            loop = asyncio.get_running_loop()
            kopf_stop = asyncio.Event()
            kopf = group.create_task(self._watch_by_kopf(loop, kopf_stop), name="kopf")
            await asyncio.wait({asyncio.ensure_future(stop.wait()), kopf}, return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping", extra={"asked": stop.is_set()})
            kopf_stop.set()
            leader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leader
            if self.elector.leading.is_set():
                await self.events.flush(EVENTS_TIMEOUT_S)
                await self.memories.flush(within_s=FLUSH_TIMEOUT_S)
            released.set()
            await election
            await self.collector.close()
            for task in background:
                task.cancel()

    async def _watch_by_kopf(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        def enqueue(key: Key) -> None:
            loop.call_soon_threadsafe(self.queue.add, key)

        handlers = kopf_watch.registry(enqueue, self.settings.kubeconfig)
        namespaces, identity = self.settings.watch_namespaces, self.settings.pod_name
        await kopf_watch.run(handlers, namespaces=namespaces, identity=identity, stop=stop)

    async def _lead(self) -> None:
        await self.elector.leading.wait()
        self.workers.reset_idle()
        await self.caches.wait_synced()
        # Agents get our certificate with their plan: if it exists before the first plan, that saves a write.
        await self._until(lambda: self.identity.certificates is not None, within_s=10.0)
        await self._check_metrics_api()
        log.info("working", extra={"model_deployments": len(self.caches.resources.all_keys())})
        await self._recall(self.memories)
        self.leadership.begin()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.workers.run(self.settings.workers), name="workers")
                group.create_task(self._every(CHECK_INTERVAL_S, self._check_metrics_api), name="metrics-api")
                group.create_task(self._resync(), name="resync")
                group.create_task(self.memories.run(lambda: set(self.caches.resources.all_keys())), name="memories")
                group.create_task(self.events.run(), name="events")
                if self.queries is not None:
                    group.create_task(self.queries.run(), name="canary-queries")
        finally:
            self.leadership.end()

    async def _decide(self) -> None:
        await self.caches.wait_synced()
        # A standby never writes memories: it reads them as they are now, and again when it becomes the leader.
        own, config_maps = self.settings.namespace, self.settings.memory_config_maps
        await self._recall(PlannerMemoryStore(self.client, own, self.clock, config_maps=config_maps))
        await self.autoscaler.run()

    async def _scrape(self) -> None:
        await self.caches.wait_synced()
        await self.scraper.run()

    async def _count_costs(self) -> None:
        await self.caches.wait_synced()
        await self.costs.run()

    async def _serve_dashboard(self) -> None:
        """Run the web dashboard if it is enabled; on the standby too."""
        if self.dashboard is not None:
            await self.dashboard.run(self._tls)

    async def _tls(self) -> ServingTLS:
        await self._until(lambda: self.identity.tls is not None)
        assert self.identity.tls is not None  # noqa: S101  # waited for
        return self.identity.tls

    async def _poll_prometheus(self) -> None:
        """Poll the site's Prometheus, if there is one; on the standby too, so that it knows as much when it leads."""
        source, decider = self.prometheus, self.autoscaler.decider
        if source is None:
            return
        pause_s = await source.poll()
        log.info(source.status())  # the source itself logs later changes
        async with asyncio.TaskGroup() as group:
            if decider.histories is not None:
                group.create_task(decider.histories.run(decider.history, decider.learn), name="histories")
            await asyncio.sleep(pause_s)
            await source.run()

    async def _recall(self, memories: PlannerMemoryStore) -> None:
        """Load what earlier processes have learnt, for models that were not decided here yet."""
        try:
            saved = await memories.load()
            self.costs.restore(saved)
            self.autoscaler.decider.restore(saved)
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("cannot read the planners' memories; planners start without them", extra={"error": str(error)})

    async def _resync(self) -> None:
        while True:
            self._requeue_all()
            await asyncio.sleep(RESYNC_INTERVAL_S)

    async def _check_metrics_api(self) -> None:
        """Check who serves the metrics API; a change concerns every model with scaling."""
        if await self.metrics_api.run_once():
            self._requeue_all()

    def _requeue_all(self) -> None:
        for key in self.caches.resources.all_keys():
            self.queue.add(key, Priority.RESYNC)

    async def _certificates(self) -> None:
        """Keep the certificates current; check often until there are some, since the servers wait for them."""
        while True:
            leading = self.elector.leading.is_set()
            try:
                await self.identity.refresh(leading=leading)
                self.gate.trust(self.identity.front_proxy)
            except (errors.ApiError, errors.Unreachable) as error:
                log.warning("cannot refresh the certificates", extra={"error": str(error)})
            waiting = self.identity.tls is None
            if waiting and not leading:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self.elector.leading.wait()
                continue
            await asyncio.sleep(0.5 if waiting else CHECK_INTERVAL_S)

    async def _serve(self) -> None:
        """Run both HTTP servers until cancelled."""
        checks = {"work": self._stuck}
        plain = await self.ports.open(
            probes.build(self.registry, live=checks, ready=self._readiness(), of_models=self.model_metrics.page),
            name="http",
            host=None,
            port=self.settings.http_port,
        )
        secure: Listener | None = None
        try:
            await self._until(lambda: self.identity.tls is not None)
            tls = self.identity.tls
            if tls is not None:
                app = build_app(self.metrics, more=self.collector.routes())
                secure = await start_site(app, tls, port=self.settings.port, ports=self.ports)
                log.info("serving", extra={"port": self.settings.port})
            await asyncio.Event().wait()
        finally:
            for listener in (plain, secure):
                if listener is not None:
                    await listener.cleanup()

    def _stuck(self) -> str:
        idle = self.workers.idle_s()
        busy = len(self.queue) > 0 and self.elector.leading.is_set()
        return (
            f"keys are queued and no reconcile began or ended for {idle:.0f} s"
            if busy and idle > STUCK_TIMEOUT_S
            else ""
        )

    def _readiness(self) -> dict[str, Callable[[], str]]:
        return {
            "caches": lambda: "" if self.caches.synced else "not synced",
            "certificates": lambda: "" if self.identity.tls is not None else "none yet",
            "agents": self._awaited_reports,
        }

    def _awaited_reports(self) -> str:
        """Return why agents' reports are still awaited; empty once they have arrived or the wait is over, and from then on.

        A replica that has just started must not serve metrics before agents have reported. The wait is bounded, because a model
        with silent agents must not keep the operator from becoming ready.
        """
        if self._reports_are_in or not self.caches.synced:
            return ""
        unserved = self.served.unserved()
        if not unserved or self.clock.monotonic() - self._built_at > REPORTS_TIMEOUT_S:
            self._reports_are_in = True
            return ""
        return f"no agent has reported yet on {len(unserved)} models, for example {unserved[0]}"

    @staticmethod
    async def _every(period_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            await act()

    @staticmethod
    async def _until(true: Callable[[], bool], *, within_s: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not true():  # noqa: ASYNC110  # a value of another part; a few times at the start only
                    await asyncio.sleep(0.05)
