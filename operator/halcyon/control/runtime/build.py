"""Construction of the operator's parts, with one function per subsystem. Nothing runs before `Operator.run` is called."""

from __future__ import annotations

from collections.abc import Callable

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.batch.controller import BatchController
from halcyon.control.autoscaling.batch_replicas import BatchReplicas
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.control.autoscaling.history_backfill import HistoryBackfill
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.control.autoscaling.limits.site_hold import SiteHold
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState, ages_s
from halcyon.control.autoscaling.planner_memory_store import PlannerMemoryStore
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.control.autoscaling.scale_writer import ScaleWriter
from halcyon.control.autoscaling.served_metrics import ServedMetrics
from halcyon.control.autoscaling.sources.site_queries import SiteQueries
from halcyon.control.autoscaling.status_updates import StatusUpdates
from halcyon.control.reconcile.adoption import Adoption
from halcyon.control.reconcile.backend_restart import BackendRestart
from halcyon.control.reconcile.children_writer import ChildrenWriter
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.pod_notices import PodNotices
from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.reconcile.reconciler import Reconciler
from halcyon.control.reconcile.release_overlap import ReleaseOverlap
from halcyon.control.reconcile.scope_builder import ScopeBuilder
from halcyon.control.reconcile.status_writer import StatusWriter
from halcyon.control.reconcile.workers import Workers
from halcyon.control.reporting.dashboard_source import QUERY_TIMEOUT_OF_PAGES_S, DashboardService, OperatorSource
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_advice import ModelAdvice
from halcyon.control.reporting.model_metrics import ModelMetrics
from halcyon.control.reporting.start_time_metrics import StartTimes
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.rollout.canary_queries import QUERY_TIMEOUT_S, CanaryQueries
from halcyon.control.runtime import batch_inference
from halcyon.control.runtime.foundation import Foundation, build_foundation
from halcyon.control.runtime.operator import Operator
from halcyon.control.runtime.process_metrics import VERSION, register_instruments
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.control.state.measured_capacities import MeasuredCapacities
from halcyon.control.state.metrics_api_check import MetricsApiCheck
from halcyon.control.state.model_sources import ModelSources
from halcyon.control.state.reported_models import ReportedModels
from halcyon.dashboard.authorization import ModelReviews
from halcyon.dashboard.measured import config_map_name
from halcyon.dashboard.pod_logs import PodLogs
from halcyon.kube.auth.callers import Reviews
from halcyon.kube.auth.namespaced_reviews import NamespacedReviews
from halcyon.kube.auth.reviews import ApiServerReviews
from halcyon.kube.client import KubeClient
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import CONFIG_MAP, Key
from halcyon.kube.leader_election import DURATION_S, RENEW_DEADLINE_S
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.tracing import Tracer
from halcyon.metricsapi.auth import Gate, metric_reviewer
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.server import MetricsApi
from halcyon.metricsapi.serving_certificate import ServingCertificate
from halcyon.render.site import Site
from halcyon.scaling.gpu_cost import Prices
from halcyon.signals.collector import Collector


def build(settings: OperatorSettings, client: KubeClient, fence: LeaseFence, tracer: Tracer, clock: Clock) -> Operator:
    """Build the operator. `client` writes only while `fence` allows it, which is while this replica holds the Lease."""
    base = build_foundation(settings, client, fence, tracer, clock)
    site_queries = SiteQueries.create(base.prometheus, base.caches, base.specs, clock)
    gpu = None if base.prometheus is None else base.prometheus.gpu
    queried = None if site_queries is None else site_queries.value
    signals = ModelSignals(base.caches, base.reports, clock, gpu, queried)
    costs = GpuCosts(
        base.caches,
        signals,
        base.serving_specs,
        base.queue.add,
        base.leadership,
        clock,
        prices=settings.prices or Prices(),
    )
    memories = PlannerMemoryStore(
        client, settings.namespace, clock, cost=costs.stored, config_maps=settings.memory_config_maps
    )
    events = EventRecorder(client, instance=settings.pod_name, clock=clock)
    hold = SiteHold(client, settings.namespace, f"{settings.service}-switches", base.requeue_all)
    batches = batch_inference.build_batches(
        settings, client, clock, base.caches.resources, base.serving_specs, enqueue=base.queue.add, events=events
    )
    autoscaler = build_autoscaler(base, signals, memories, hold, events, batches)
    advice = ModelAdvice(base.caches, base.serving_specs, autoscaler, base.queue.add, base.leadership, clock)
    served = ServedMetrics(base.caches, base.serving_specs, signals, autoscaler.models, base.leadership, clock)
    identity = build_certificate(base)
    metrics_api = MetricsApiCheck(
        client, identity, namespace=settings.namespace, service=settings.service, watched=settings.watch_namespaces
    )
    counts = ReconcileCounts()
    # Queries of tenants: apart from the operator's own, which they must not delay.
    queries = None if base.prometheus is None else CanaryQueries(base.prometheus.beside(QUERY_TIMEOUT_S).value, clock)
    reconciler = build_reconciler(
        base,
        autoscaler=autoscaler,
        costs=costs,
        advice=advice,
        metrics_api=metrics_api,
        identity=identity,
        events=events,
        counts=counts,
        queries=queries,
        hold=hold,
        batches=batches,
    )
    reviews = build_reviews(base)
    gate = Gate(front_proxy=None, review_token=reviews.user, review_access=metric_reviewer(reviews))
    collector = Collector(
        base.reports, reviews.agent, ReportedModels(base.caches), monotonic=clock.monotonic, registry=base.registry
    )
    base.caches.resources.listeners.append(lambda key, _, after: None if after is not None else collector.forget(*key))
    base.caches.pods.listeners.append(base.reports.pod_changed)
    PodNotices(base.caches, collector.send)
    ports = ListeningPorts(base.registry)
    starts = StartTimes(base.caches, base.registry)
    operator = Operator(
        base=base,
        autoscaler=autoscaler,
        identity=identity,
        metrics_api=metrics_api,
        gate=gate,
        collector=collector,
        served=served,
        metrics=MetricsApi(
            served, gate, monotonic=clock.monotonic, ready=lambda: base.caches.synced, registry=base.registry
        ),
        workers=Workers(base.queue, reconciler, base.registry, clock),
        events=events,
        memories=memories,
        queries=queries,
        scraper=PodScraper(base.caches, base.reports, base.specs, clock),
        ports=ports,
        dashboard=build_dashboard(base, autoscaler, reviews, ports),
        costs=costs,
        advice=advice,
        hold=hold,
        site_queries=site_queries,
        batches=batches,
        model_metrics=ModelMetrics(
            base.caches, base.serving_specs, autoscaler, starts, costs, base.leadership, clock, batches.known
        ),
    )
    register_instruments(base, counts)
    return operator


def build_autoscaler(  # noqa: PLR0917  # one call, and each by its type
    base: Foundation,
    signals: ModelSignals,
    memories: PlannerMemoryStore,
    hold: SiteHold,
    events: EventRecorder,
    batches: BatchController,
) -> Autoscaler:
    """Build the autoscaler and its components."""
    caches, specs, clock, leadership = base.caches, base.serving_specs, base.clock, base.leadership
    budget = base.settings.gpu_budget
    past = None if base.prometheus is None else HistoryBackfill(base.prometheus.history, clock=clock)
    writer = ScaleWriter(base.client, caches, base.specs, leadership, clock, base.tracer)
    models: dict[Key, ModelState] = {}
    decider = Decider(signals, past)
    return Autoscaler(
        caches=caches,
        specs=specs,
        signals=signals,
        decider=decider,
        batches=BatchReplicas(decider, batch_inference.demands(batches)),
        limits=ReplicaLimits(caches, base.specs, clock, None if budget is None else GpuBudget(budget), hold),
        writer=writer,
        updates=StatusUpdates(caches, signals, writer, base.queue.add, leadership, clock, base.tracer),
        decision_metrics=DecisionMetrics(lambda: ages_s(models, clock.monotonic()), base.registry),
        models=models,
        leadership=leadership,
        clock=clock,
        memories=memories,
        events=events.record,
    )


def build_reconciler(
    base: Foundation,
    *,
    autoscaler: Autoscaler,
    costs: GpuCosts,
    advice: ModelAdvice,
    metrics_api: MetricsApiCheck,
    identity: ServingCertificate,
    events: EventRecorder,
    counts: ReconcileCounts,
    queries: CanaryQueries | None,
    hold: SiteHold,
    batches: BatchController,
) -> Reconciler:
    """Build the reconciler, with the state that all models share: GPU reservations and canary analyses."""
    client, caches, clock = base.client, base.caches, base.clock
    limited = base.settings.site_policy.limits.gpus_per_namespace is not None
    reservations = GpuReservations(caches, base.specs, base.queue.add, limited=limited)
    canaries = CanaryAnalysis(base.reports, clock, queries, base.queue.add)
    return Reconciler(
        client=client,
        caches=caches,
        scopes=ScopeBuilder(
            caches=caches,
            sources=ModelSources(client, caches, clock),
            accepted=base.specs,
            reservations=reservations,
            canaries=canaries,
            scaling=autoscaler,
            costs=costs,
            advice=advice,
            balancer_errors=base.reports,
            metrics_api=metrics_api,
            site=current_site(base.settings, identity, hold),
            clock=clock,
            measured=MeasuredCapacities(caches),
            lower_class=batch_inference.lower_class(batches),
        ),
        adoption=Adoption(client, caches, events, clock),
        children=ChildrenWriter(client, caches, reservations, counts),
        restarts=BackendRestart(client, events, clock),
        statuses=StatusWriter(client, caches, events, clock, counts, base.settings.release),
        reservations=reservations,
        overlap=ReleaseOverlap(client, clock, base.settings.release),
        events=events,
        observers=(autoscaler, canaries, base.reports),
        tracer=base.tracer,
    )


def build_certificate(base: Foundation) -> ServingCertificate:
    """Build the certificates of the TLS server. A new CA requeues every model, because the plans contain the CA."""
    settings = base.settings
    host = f"{settings.service}.{settings.namespace}.svc"
    return ServingCertificate(
        base.client,
        namespace=settings.namespace,
        secret=settings.tls_secret,
        names=(host, f"{host}.cluster.local", f"{settings.agents_service}.{settings.namespace}.svc"),
        on_change=base.requeue_all,
        has_front_proxy=settings.front_proxy and not settings.watch_namespaces,
        clock=base.clock,
    )


def current_site(settings: OperatorSettings, identity: ServingCertificate, hold: SiteHold) -> Callable[[], Site]:
    """Return a function that returns the site's current settings.

    They change with the operator's certificate, and with the switch that stops scaling down.
    """

    def site() -> Site:
        certificates = identity.certificates
        return Site(
            operator_image=settings.operator_image,
            balancer_image=settings.balancer_image,
            server_image=settings.server_image,
            pull_secrets=settings.image_pull_secrets,
            service_annotations=settings.service_annotations,
            model_pod_labels=settings.model_pod_labels,
            model_pod_annotations=settings.model_pod_annotations,
            cpu_limit=settings.cpu_limit,
            fixed_user_ids=settings.fixed_user_ids,
            downloads=settings.downloads,
            version=VERSION,
            policy=settings.site_policy,
            balancers=settings.balancers,
            network=settings.network,
            port=settings.port,
            has_prometheus=settings.prometheus is not None,
            hold_scale_down=bool(hold.reason),
            queries=() if settings.prometheus is None else tuple(settings.prometheus.queries),
            own_secret=f"{settings.namespace}/{settings.tls_secret}",
            collector=None
            if certificates is None
            else CollectorAddress(
                host=f"{settings.agents_service}.{settings.namespace}.svc",
                port=settings.port,
                server_name=f"{settings.service}.{settings.namespace}.svc",
                ca_pem=certificates.bundle_pem,
            ),
        )

    return site


def build_reviews(base: Foundation) -> Reviews:
    """Build the authentication of callers. Its type depends on whether the operator is limited to some namespaces."""
    if namespaces := base.settings.watch_namespaces:
        return NamespacedReviews(base.client, namespaces, monotonic=base.clock.monotonic, wall=base.clock.wall)
    return ApiServerReviews(base.client)


def build_dashboard(
    base: Foundation, autoscaler: Autoscaler, reviews: Reviews, ports: ListeningPorts
) -> DashboardService | None:
    """Build the web dashboard; return None if it is disabled."""
    settings = base.settings
    if settings.dashboard is None:
        return None
    return DashboardService(
        settings.dashboard,
        OperatorSource(base.caches, base.reports, autoscaler, base.clock),
        ModelReviews(reviews),
        ports,
        prometheus=None
        if base.prometheus is None
        else base.prometheus.beside(QUERY_TIMEOUT_OF_PAGES_S, kind="dashboard"),
        logs=PodLogs(*base.client.endpoint),
        measured_results=lambda name: base.client.get(CONFIG_MAP, name.namespace, config_map_name(name.name)),
        batches=batch_inference.reader(base.client),
    )


def build_fence(settings: OperatorSettings, clock: Clock) -> LeaseFence:
    """Build the fence. It lets the client write only while this replica holds the Lease."""
    return LeaseFence(settings.release, clock, deadline_s=RENEW_DEADLINE_S, duration_s=DURATION_S)
