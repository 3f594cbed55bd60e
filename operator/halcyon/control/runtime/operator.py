"""The operator process, which starts all its parts and stops them in order.

Most parts run on both replicas of the operator. The workers and other parts that write run only on the leader. The
standby has filled caches and the agents' reports, so that it can serve the metrics API too, and can become the leader
at once.
"""

# run on                   parts
# both replicas            caches, leader election, certificates, TLS server (metrics API, collector), plain HTTP server, kopf,
#                          decision loop, dashboard, GPU costs, scraping of servers without an agent, queries to Prometheus
# the leader only          workers, events, saving of planner memories, batch inference, check of which server serves the metrics API

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from halcyon.batch.controller import BatchController
from halcyon.control.autoscaling.limits.site_hold import SiteHold
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.control.autoscaling.served_metrics import ServedMetrics
from halcyon.control.autoscaling.sources.site_queries import SiteQueries
from halcyon.control.reconcile.workers import Workers
from halcyon.control.reporting.dashboard_source import DashboardService
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_advice import ModelAdvice
from halcyon.control.reporting.model_metrics import ModelMetrics
from halcyon.control.rollout.canary_queries import CanaryQueries
from halcyon.control.runtime import http_endpoints as probes
from halcyon.control.runtime import kopf_watch
from halcyon.control.runtime.foundation import Foundation
from halcyon.control.runtime.gc_freeze import GcFreeze
from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.kube import errors
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import Key
from halcyon.metricsapi.auth import Gate
from halcyon.metricsapi.listener import Listener, ListeningPorts
from halcyon.metricsapi.server import MetricsApi, build_app
from halcyon.metricsapi.serving_certificate import CHECK_INTERVAL_S, ServingCertificate
from halcyon.metricsapi.tls import ServingTLS
from halcyon.signals.collector import Collector

log = logging.getLogger(__name__)

RESYNC_INTERVAL_S = 600.0
REPORTS_TIMEOUT_S = 15.0
"""Maximum time for which a new replica waits for agents' reports before it becomes ready, in seconds."""
FLUSH_TIMEOUT_S = 0.6
"""Maximum time for saving planner memories at shutdown, in seconds. It is a part of the 2 s that a leader change may
take. Memories that aren't saved keep their last saved state, which is at most ten minutes old."""
EVENTS_TIMEOUT_S = 0.3
"""Maximum time for writing events at shutdown, in seconds. It is a part of the 2 s that a leader change may take."""
FIRST_CHECK_S = 3.0
"""Maximum time for which a new leader checks which server serves the metrics API before it reconciles, in seconds."""
STUCK_TIMEOUT_S = 120.0
"""Time for which keys may be queued while no reconcile begins or ends, in seconds. After that, the liveness probe of
the leader fails. The start of the leader's work, in which all caches are filled, is not limited."""


@dataclass
class Operator:
    """The operator process with all its parts. `run` starts and stops them."""

    base: Foundation
    autoscaler: Autoscaler
    identity: ServingCertificate
    metrics_api: MetricsApiCheck
    gate: Gate
    collector: Collector
    served: ServedMetrics
    metrics: MetricsApi
    workers: Workers
    events: EventRecorder
    memories: PlannerMemoryStore
    queries: CanaryQueries | None
    scraper: PodScraper
    ports: ListeningPorts
    dashboard: DashboardService | None
    """The web dashboard; None if it is disabled."""
    model_metrics: ModelMetrics
    batches: BatchController
    costs: GpuCosts
    advice: ModelAdvice
    hold: SiteHold
    site_queries: SiteQueries | None

    def __post_init__(self) -> None:
        """Initialize an operator whose agents can't connect yet."""
        self._reports_due_at = math.inf
        self._reports_are_in = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run the operator until `stop` is set. A leader stops its work before it releases the Lease."""
        released = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self.base.caches.run(), name="caches"),
                group.create_task(self._certificates(), name="certificates"),
                group.create_task(self._serve(), name="sites"),
                group.create_task(self._decide(), name="scaler"),
                group.create_task(self._poll_prometheus(), name="prometheus"),
                group.create_task(self._after_sync(self.scraper.run), name="scraping"),
                group.create_task(self._serve_dashboard(), name="dashboard"),
                group.create_task(self._after_sync(self.costs.run), name="costs"),
                group.create_task(self._after_sync(self.advice.run), name="advice"),
                group.create_task(self.hold.run(), name="switches"),
                group.create_task(self._query_site(), name="site-queries"),
                group.create_task(GcFreeze(self.base.caches.size, self.base.caches.changes).run(), name="heap"),
            ]
            election = group.create_task(self.base.elector.run(released), name="election")
            leader = group.create_task(self._lead(), name="leader")
            loop = asyncio.get_running_loop()
            kopf_stop = asyncio.Event()
            group.create_task(self._watch_by_kopf(loop, kopf_stop), name="kopf")
            await stop.wait()
            log.info("stopping")
            kopf_stop.set()
            leader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leader
            if self.base.elector.leading.is_set():
                await self.events.flush(EVENTS_TIMEOUT_S)
                await self.memories.flush(within_s=FLUSH_TIMEOUT_S)
            released.set()
            await election
            await self.collector.close()
            for task in background:
                task.cancel()

    async def _watch_by_kopf(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        def enqueue(key: Key) -> None:
            loop.call_soon_threadsafe(self.base.queue.add, key)

        handlers = kopf_watch.registry(enqueue, self.base.settings.kubeconfig)
        namespaces, identity = self.base.settings.watch_namespaces, self.base.settings.pod_name
        await kopf_watch.keep(handlers, namespaces=namespaces, identity=identity, stop=stop)

    async def _lead(self) -> None:
        await self.base.elector.leading.wait()
        await self.base.caches.wait_synced()
        # Agents receive the CA in their plan. Waiting for it saves a second write of every plan.
        await self._until(lambda: self.identity.certificates is not None, within_s=10.0)
        # Without the caches of routes, statuses would report a cluster without the Gateway API.
        await self._until(lambda: self.base.caches.routes.is_checked, within_s=10.0)
        await self._find_metrics_api()
        log.info("started as the leader", extra={"model_deployments": len(self.base.caches.resources.all_keys())})
        await self._load_memories(self.memories)
        self.workers.reset_idle()
        self.base.leadership.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.workers.run(self.base.settings.workers), name="workers")
                group.create_task(self._every(CHECK_INTERVAL_S, self._check_metrics_api), name="metrics-api")
                group.create_task(self._resync(), name="resync")
                live, restore = lambda: set(self.base.caches.resources.all_keys()), self.autoscaler.decider.restore
                group.create_task(self.memories.run(live, restore), name="memories")
                group.create_task(self.events.run(), name="events")
                group.create_task(self.batches.run(), name="batches")
                if self.queries is not None:
                    group.create_task(self.queries.run(), name="canary-queries")
        finally:
            self.base.leadership.stop()

    async def _decide(self) -> None:
        await self.base.caches.wait_synced()
        # A standby never writes memories. It reads them now, and again when it becomes the leader.
        own, config_maps = self.base.settings.namespace, self.base.settings.memory_config_maps
        await self._load_memories(PlannerMemoryStore(self.base.client, own, self.base.clock, config_maps=config_maps))
        await self.autoscaler.run()

    async def _after_sync(self, run: Callable[[], Awaitable[None]]) -> None:
        await self.base.caches.wait_synced()
        await run()

    async def _serve_dashboard(self) -> None:
        """Run the web dashboard, if it is enabled."""
        if self.dashboard is not None:
            await self.dashboard.run(self._tls)

    async def _tls(self) -> ServingTLS:
        await self._until(lambda: self.identity.tls is not None)
        assert self.identity.tls is not None  # noqa: S101  # waited for
        return self.identity.tls

    async def _poll_prometheus(self) -> None:
        """Poll the site's Prometheus, if there is one.

        The standby does this too, so that it has data when it becomes the leader.
        """
        source, decider = self.base.prometheus, self.autoscaler.decider
        if source is None:
            return
        pause_s = await source.poll()
        log.info(source.status())  # the source itself logs later changes
        async with asyncio.TaskGroup() as group:
            if decider.histories is not None:
                group.create_task(decider.histories.run(decider.history, decider.learn), name="histories")
            await asyncio.sleep(pause_s)
            await source.run()

    async def _query_site(self) -> None:
        if self.site_queries is not None:
            await self.site_queries.run()

    async def _load_memories(self, memories: PlannerMemoryStore) -> None:
        """Load saved planner memories and GPU times, for models for which this process has made no decision yet."""
        try:
            saved = await memories.load()
            self.costs.restore(saved)
            self.autoscaler.decider.restore(saved)
        except (errors.ApiError, errors.Unreachable) as error:
            log.warning("cannot read the planners' memories; planners start without them", extra={"error": str(error)})

    async def _resync(self) -> None:
        while True:
            self.base.requeue_all()
            await asyncio.sleep(RESYNC_INTERVAL_S)

    async def _find_metrics_api(self) -> None:
        """Check which server serves the metrics API, for up to `FIRST_CHECK_S`.

        Without an answer, models that have no HPA yet would be scaled without one for a while.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CHECK_S):
                await self._check_metrics_api()
                while not self.metrics_api.is_certain:
                    await asyncio.sleep(0.5)
                    await self._check_metrics_api()

    async def _check_metrics_api(self) -> None:
        """Check which server serves the metrics API.

        If this changes, requeue every model, because its actuator may change.
        """
        if await self.metrics_api.run_once():
            self.base.requeue_all()

    async def _certificates(self) -> None:
        """Keep the certificates current. As long as there are none, check often, because the servers wait for them."""
        while True:
            leading = self.base.elector.leading.is_set()
            try:
                await self.identity.refresh(leading=leading)
                self.gate.trust(self.identity.front_proxy)
            except (errors.ApiError, errors.Unreachable) as error:
                log.warning("cannot refresh the certificates", extra={"error": str(error)})
            except Exception:
                # Contents that OpenSSL rejects, for example. The certificates in use stay; without them, no other part works either.
                log.exception("cannot use the certificates")
            is_waiting = self.identity.tls is None
            if is_waiting and not leading:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self.base.elector.leading.wait()
                continue
            await asyncio.sleep(0.5 if is_waiting else CHECK_INTERVAL_S)

    async def _serve(self) -> None:
        """Run the plain HTTP server and the TLS server until cancelled."""
        checks = {"work": self._stuck}
        plain = await self.ports.open(
            probes.build(
                self.base.registry, live=checks, ready=self._readiness(), model_metrics=self.model_metrics.page
            ),
            name="http",
            host=None,
            port=self.base.settings.http_port,
        )
        secure: Listener | None = None
        try:
            # While the caches are empty, no agent can be accepted. A refused connection costs agents and operator almost nothing,
            # whereas a rejection costs a TLS handshake, and lets agents wait longer.
            await self._until(lambda: self.identity.tls is not None and self.base.caches.synced)
            tls = self.identity.tls
            if tls is not None:
                app = build_app(self.metrics, more=self.collector.routes())
                port = self.base.settings.port
                secure = await self.ports.open(app, name="https", host=None, port=port, tls=tls.context)
                log.info("serving the metrics API and the collector", extra={"port": port})
            await asyncio.Event().wait()
        finally:
            for listener in (plain, secure):
                if listener is not None:
                    await listener.cleanup()

    def _stuck(self) -> str:
        idle_s = self.workers.idle_s()
        is_stuck = len(self.base.queue) > 0 and self.base.leadership.is_leader and idle_s > STUCK_TIMEOUT_S
        return f"models are queued, but no reconcile began or ended for {idle_s:.0f} s" if is_stuck else ""

    def _readiness(self) -> dict[str, Callable[[], str]]:
        return {
            "caches": lambda: "" if self.base.caches.synced else "not synced",
            "certificates": lambda: "" if self.identity.tls is not None else "none yet",
            "agents": self._awaited_reports,
        }

    def _awaited_reports(self) -> str:
        """Return a message while a new replica waits for agents' reports; else an empty string.

        The wait begins when agents can connect, ends with the reports or after a maximum time, and never starts again.

        A new replica must not serve metrics before agents have reported. The wait is limited, because a model whose
        agents don't report must not prevent the operator from becoming ready.
        """
        if self._reports_are_in or not self.base.caches.synced or self.identity.tls is None:
            return ""
        unserved, now = self.served.unserved(), self.base.clock.monotonic()
        self._reports_due_at = min(self._reports_due_at, now + REPORTS_TIMEOUT_S)
        if not unserved or now > self._reports_due_at:
            self._reports_are_in = True
            return ""
        return f"no agent has reported yet on {len(unserved)} models, for example {unserved[0]}"

    @staticmethod
    async def _every(period_s: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            await action()

    @staticmethod
    async def _until(condition: Callable[[], bool], *, within_s: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not condition():  # noqa: ASYNC110  # polls other parts, but only at the start
                    await asyncio.sleep(0.05)
