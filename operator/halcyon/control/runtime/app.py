"""Object graph of `halcyon operator`. Out of scope: what the parts do, and when (`operator`)."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import re
import signal
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.spec import routing_mode
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.autoscaling.balancer_errors import BalancerErrorStore
from halcyon.control.autoscaling.gpu_budget import GpuBudget
from halcyon.control.autoscaling.history_backfill import HistoryBackfill
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.reconciler import ReconcileCounts, Reconciler
from halcyon.control.reconcile.workers import Workers
from halcyon.control.reporting.dashboard_source import DashboardService, ModelReviews, OperatorSource
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_metrics import ModelMetrics
from halcyon.control.reporting.start_times import StartTimes
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.runtime import json_logging, memory_limit, settings
from halcyon.control.runtime.operator import LeaderState, Operator
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import errors, malformed_objects, rbac_denials, tracing
from halcyon.kube.client import KubeClient, connect
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import LeaderElector
from halcyon.kube.tracing import OFF, Tracer
from halcyon.kube.work_queue import Priority, WorkQueue
from halcyon.metricsapi.auth import Gate
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.namespaced_reviews import NamespacedReviews
from halcyon.metricsapi.reviews import ApiServerReviews
from halcyon.metricsapi.server import MetricsApi
from halcyon.metricsapi.serving_certificate import ServingCertificate
from halcyon.monitoring import instruments
from halcyon.monitoring import operator_metrics as listed
from halcyon.render.site import Site
from halcyon.scaling.gpu_cost import Prices
from halcyon.signals.collector import Collector
from halcyon.signals.prometheus.source import PrometheusSource

log = logging.getLogger(__name__)

VERSION = version("halcyon-operator")


def main(argv: Sequence[str]) -> int:
    """Run the operator; return the exit status: 0 if it was stopped by a signal."""
    parser = argparse.ArgumentParser(prog="halcyon operator", description="Run the operator.")
    settings.add_arguments(parser)
    arguments = parser.parse_args(list(argv))
    json_logging.configure(arguments.log_level)
    status = 0
    try:
        asyncio.run(_run(settings.of(arguments)))
    except* errors.HalcyonError as group:
        log.error("the operator ends", extra={"error": "; ".join(_messages(group))})  # noqa: TRY400  # it says it all
        status = 1
    return status


def _registry() -> CollectorRegistry:
    # The creation time of each counter doubles the page, and has no use here.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # has no types
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _peak_memory_bytes() -> float:
    """Return the kernel's high-water mark; that of getrusage starts at the size of the parent process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(found[1]) * 1024 if found else math.nan


def _messages(group: BaseExceptionGroup[BaseException]) -> list[str]:
    found: list[str] = []
    for error in group.exceptions:
        found += _messages(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return found


async def _run(chosen: OperatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    client = await connect(chosen.kubeconfig)
    tracer = OFF if chosen.traces is None else tracing.connect(chosen.traces, instance=chosen.pod_name, version=VERSION)
    try:
        await build(chosen, client, tracer).run(stop)
    finally:
        await client.close()
        await asyncio.to_thread(tracer.close)


def build(chosen: OperatorSettings, client: KubeClient, tracer: Tracer = OFF) -> Operator:
    """Build the operator; nothing runs before `run`."""
    client.tracer = tracer
    clock = time.monotonic
    registry = _registry()
    queue = WorkQueue(clock)
    caches = ClusterState(
        client, enqueue=queue.add, namespaces=chosen.watch_namespaces, walls=chosen.network is not None
    )
    elector = LeaderElector(client, chosen.namespace, chosen.lease, chosen.pod_name, clock)
    client.fence = elector.fence
    duty = LeaderState()
    hub = BalancerErrorStore(
        on_change=lambda namespace, name: queue.add(Key(namespace, name)),
        on_record=lambda namespace, name, confirms: scaler.heard(Key(namespace, name), confirms=confirms),
    )
    caches.accepted = accepted = AcceptedSpecs(caches)
    prometheus = None if chosen.prometheus is None else PrometheusSource(chosen.prometheus, registry=registry)
    scaler = Autoscaler(
        client=client,
        caches=caches,
        sensing=ModelSignals(caches, hub, clock, time.time, None if prometheus is None else prometheus.gpu),
        spec_of=accepted,
        enqueue=queue.add,
        leads=lambda: duty.on,
        led=lambda: elector.led,
        clock=clock,
        registry=registry,
        budget=None if chosen.gpu_budget is None else GpuBudget(chosen.gpu_budget),
        tracer=tracer,
    )
    if prometheus is not None:
        scaler.deciding.histories = HistoryBackfill(prometheus.history, clock=clock)
    caches.signals = scaler.facts
    caches.scaling = scaler.shown
    caches.troubles = lambda key: hub.troubles(key, clock())

    limited = chosen.site_policy.limits.gpus_per_namespace is not None
    caches.gpus = gpus = GpuReservations(caches, accepted, queue.add, limited=limited)

    costs = GpuCosts(
        caches, scaler.sensing, accepted, queue.add, lambda: duty.on, clock, prices=chosen.prices or Prices()
    )

    def everything() -> None:
        for key in caches.resources.keys():  # noqa: SIM118  # an informer is no dict
            queue.add(key, Priority.RESYNC)

    host = f"{chosen.service}.{chosen.namespace}.svc"
    identity = ServingCertificate(
        client,
        namespace=chosen.namespace,
        secret=chosen.tls_secret,
        names=(host, f"{host}.cluster.local", f"{chosen.agents_service}.{chosen.namespace}.svc"),
        on_change=everything,
        has_front_proxy=not chosen.watch_namespaces,
    )
    reviews: ApiServerReviews | NamespacedReviews = ApiServerReviews(client)
    if chosen.watch_namespaces:
        reviews = NamespacedReviews(client, monotonic=clock, wall=time.time)
    gate = Gate(front_proxy=None, review_token=reviews.user, review_access=reviews.may_list)

    def site() -> Site:
        known = identity.certificates
        return Site(
            operator_image=chosen.operator_image,
            balancer_image=chosen.balancer_image,
            server_image=chosen.server_image,
            pull_secrets=chosen.image_pull_secrets,
            service_annotations=chosen.service_annotations,
            version=VERSION,
            policy=chosen.site_policy,
            balancers=chosen.balancers,
            network=chosen.network,
            port=chosen.port,
            own_secret=f"{chosen.namespace}/{chosen.tls_secret}",
            collector=None
            if known is None
            else CollectorAddress(
                host=f"{chosen.agents_service}.{chosen.namespace}.svc",
                port=chosen.port,
                server_name=host,
                ca_pem=known.bundle_pem,
            ),
        )

    watch = CanaryAnalysis(hub, clock)
    caches.canary = lambda key: watch.verdict(key, caches.pods.find(key.namespace, key.name))

    def planned(key: Key, plan: ReconcilePlan) -> None:
        scaler.planned(key, plan)
        watch.planned(key, plan.rollout, balanced=plan.spec is not None and not routing_mode.is_direct(plan.spec))

    def gone(key: Key) -> None:
        gpus.gone(key)
        scaler.gone(key)
        watch.forget(key)
        hub.forget(key.namespace, key.name)

    memories = PlannerMemoryStore(client, chosen.namespace, clock, time.time, config_maps=chosen.memory_config_maps)
    scaler.keep = memories.offer
    memories.cost = costs.stored
    recorder = EventRecorder(client, instance=chosen.pod_name, clock=clock)
    reconciler = Reconciler(
        client, caches, recorder, site, clock, on_plan=planned, on_gone=gone, shares=gpus, tracer=tracer
    )
    ports = ListeningPorts(registry)
    operator = Operator(
        settings=chosen,
        client=client,
        registry=registry,
        queue=queue,
        caches=caches,
        scaler=scaler,
        identity=identity,
        gate=gate,
        collector=Collector(hub, reviews.agent, monotonic=clock, registry=registry),
        metrics=MetricsApi(scaler, gate, monotonic=clock, ready=lambda: caches.synced, registry=registry),
        workers=Workers(queue, reconciler, registry),
        events=recorder,
        elector=elector,
        duty=duty,
        memories=memories,
        prometheus=prometheus,
        scraping=PodScraper(caches, hub, accepted, clock),
        ports=ports,
        board=None
        if chosen.dashboard is None
        else DashboardService(
            chosen.dashboard,
            OperatorSource(caches, hub, scaler, clock, time.time),
            ModelReviews(client, reviews, local=bool(chosen.watch_namespaces)),
            ports,
        ),
        costs=costs,
        of_models=ModelMetrics(
            caches,
            accepted,
            scaler.scaled,
            StartTimes(caches, registry).last,
            costs,
            leads=lambda: duty.on,
            clock=clock,
        ),
    )
    _instruments(operator, reconciler.counts)
    return operator


def _instruments(operator: Operator, counts: ReconcileCounts) -> None:
    """Register the metrics that are read at scrape time."""
    reads: instruments.Reads = {
        listed.LEADING: lambda: float(operator.elector.leading.is_set()),
        listed.QUEUE_READY: lambda: float(len(operator.queue)),
        listed.QUEUE_WAITING: lambda: float(operator.queue.waiting),
        listed.MODELS: lambda: float(len(operator.caches.resources.keys())),
        listed.API_WRITES: lambda: operator.client.writes,
        listed.OBJECTS_WRITTEN: lambda: counts.written,
        listed.OBJECTS_SKIPPED: lambda: counts.skipped,
        listed.STATUSES_WRITTEN: lambda: counts.statuses,
        listed.PEAK_MEMORY: _peak_memory_bytes,
        listed.MEMORY_LIMIT: memory_limit.read,
    }
    instruments.Read(reads, operator.registry)
    operator.registry.register(rbac_denials.RbacDenialsPage(operator.client.rights))
    operator.registry.register(malformed_objects.MalformedObjectsPage(operator.caches.malformed))
    instruments.gauge(listed.BUILD, operator.registry).labels(VERSION).set(1)
