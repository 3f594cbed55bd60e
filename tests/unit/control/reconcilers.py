"""Reconcilers and their parts on a test's caches, which are the only source of information on models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.autoscaling.balancer_errors import BalancerErrorStore
from halcyon.control.reconcile.adoption import Adoption
from halcyon.control.reconcile.backend_restart import BackendRestart
from halcyon.control.reconcile.children_writer import ChildrenWriter
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.reconcile.reconciler import ReconcileObserver, Reconciler
from halcyon.control.reconcile.release_overlap import ReleaseOverlap
from halcyon.control.reconcile.scope_builder import ScopeBuilder
from halcyon.control.reconcile.status_writer import StatusWriter
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.measured_capacities import MeasuredCapacities
from halcyon.control.state.metrics_api_check import CertificateSource, MetricsApiCheck
from halcyon.control.state.model_sources import ModelSources
from halcyon.control.state.scope import PublishedCosts, PublishedScaling, Signals
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import Key
from halcyon.render.site import Site
from tests.clocks import DrivenClock
from tests.unit.render.rendered import SITE

RELEASE = "halcyon-system/halcyon"


class _NoScaling:
    def reported(self, _: Key, /) -> Signals | None:
        return None

    def published(self, _: Key, /) -> PublishedScaling:
        return PublishedScaling()


class _NoCosts:
    def published(self, _: Key, /) -> PublishedCosts:
        return PublishedCosts()


class _NoAdvice:
    def published(self, _: Key, /) -> None:
        return None


def scope_builder(
    client: Kube,
    caches: ClusterState,
    *,
    site: Site = SITE,
    specs: AcceptedSpecs | None = None,
    reservations: GpuReservations | None = None,
    clock: Clock | None = None,
) -> ScopeBuilder:
    """Return a scope builder that reads only the caches."""
    clock, specs = clock or DrivenClock(lambda: 1000.0), specs or AcceptedSpecs(caches)
    reports = BalancerErrorStore(lambda *_: None)
    return ScopeBuilder(
        caches=caches,
        sources=ModelSources(client, caches, clock),
        accepted=specs,
        reservations=reservations or GpuReservations(caches, specs, lambda _: None, limited=False),
        canaries=CanaryAnalysis(reports, clock),
        scaling=_NoScaling(),
        costs=_NoCosts(),
        advice=_NoAdvice(),
        balancer_errors=reports,
        metrics_api=MetricsApiCheck(
            client, cast("CertificateSource", None), namespace="halcyon-system", service="halcyon"
        ),
        site=lambda: site,
        clock=clock,
        measured=MeasuredCapacities(caches),
    )


def reconciler(
    client: Kube,
    scopes: ScopeBuilder,
    events: EventRecorder,
    clock: Clock,
    *,
    observers: Sequence[ReconcileObserver] = (),
) -> Reconciler:
    """Return a reconciler with these scopes."""
    counts, caches = ReconcileCounts(), scopes.caches
    return Reconciler(
        client=client,
        caches=caches,
        scopes=scopes,
        adoption=Adoption(client, caches, events, clock),
        children=ChildrenWriter(client, caches, scopes.reservations, counts),
        restarts=BackendRestart(client, events, clock),
        statuses=StatusWriter(client, caches, events, clock, counts, RELEASE),
        reservations=scopes.reservations,
        overlap=ReleaseOverlap(client, clock, RELEASE),
        events=events,
        observers=observers,
    )
