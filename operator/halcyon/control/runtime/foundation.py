"""Parts of the operator that all of its subsystems use."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from halcyon.control.acceptance.accepted_specs import AcceptedSpecs, ServingSpecs
from halcyon.control.autoscaling.balancer_errors import BalancerErrorStore
from halcyon.control.runtime.leader_state import LeaderState
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.client import KubeClient
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import LeaderElector
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.tracing import Tracer
from halcyon.kube.work_queue import Priority, WorkQueue
from halcyon.signals.prometheus.source import PrometheusSource


@dataclass(frozen=True)
class Foundation:
    """Parts of the operator that all of its subsystems use."""

    settings: OperatorSettings
    client: KubeClient
    tracer: Tracer
    clock: Clock
    registry: CollectorRegistry
    queue: WorkQueue
    caches: ClusterState
    specs: AcceptedSpecs
    serving_specs: ServingSpecs
    reports: BalancerErrorStore
    """Store of the agents' reports."""
    elector: LeaderElector
    leadership: LeaderState
    prometheus: PrometheusSource | None
    """Client of the site's Prometheus; None if the site has no Prometheus."""

    def requeue_all(self) -> None:
        """Add every ModelDeployment to the queue, with the low priority of a resync."""
        for key in self.caches.resources.all_keys():
            self.queue.add(key, Priority.RESYNC)


def build_foundation(
    settings: OperatorSettings, client: KubeClient, fence: LeaseFence, tracer: Tracer, clock: Clock
) -> Foundation:
    """Build the parts of the operator that all subsystems use.

    They are caches, queue, reports, accepted specs, leader election and the client of Prometheus.
    """
    registry = new_registry()
    queue = WorkQueue(clock)
    caches = ClusterState(
        client,
        enqueue=queue.add,
        namespaces=settings.watch_namespaces,
        has_network_policies=settings.network is not None,
        clock=clock,
    )
    specs = AcceptedSpecs(caches)
    elector = LeaderElector(client, settings.namespace, settings.lease, settings.pod_name, clock, fence)
    return Foundation(
        settings=settings,
        client=client,
        tracer=tracer,
        clock=clock,
        registry=registry,
        queue=queue,
        caches=caches,
        specs=specs,
        serving_specs=ServingSpecs(caches, specs),
        reports=BalancerErrorStore(on_change=lambda namespace, name: queue.add(Key(namespace, name))),
        elector=elector,
        leadership=LeaderState(elector),
        prometheus=None
        if settings.prometheus is None
        else PrometheusSource(settings.prometheus, monotonic=clock.monotonic, registry=registry),
    )


def new_registry() -> CollectorRegistry:
    """Return a registry with the metrics of the operator's process."""
    # The series with the creation time of each counter would double the page, and nothing uses them.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # has no types
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
