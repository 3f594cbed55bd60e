"""Autoscalers and their parts, built as in the composition root."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.decider import Decider
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState, ages_s
from halcyon.control.autoscaling.scale_writer import ScaleWriter
from halcyon.control.autoscaling.served_metrics import ServedMetrics
from halcyon.control.autoscaling.status_updates import StatusUpdates
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.kube.tracing import OFF
from halcyon.kube.work_queue import Priority


def autoscaler(
    client: Kube,
    caches: ClusterState,
    specs: SpecsInForce,
    signals: ModelSignals,
    *,
    clock: Clock,
    leadership: Leadership,
    enqueue: Callable[[Key, Priority], None] = lambda *_: None,
    budget: GpuBudget | None = None,
    decider: Decider | None = None,
    decision_metrics: DecisionMetrics | None = None,
) -> Autoscaler:
    """Return an autoscaler with these parts. The decider is the real one, unless the test passes another."""
    models: dict[Key, ModelState] = {}
    writer = ScaleWriter(client, caches, specs, leadership, clock)
    return Autoscaler(
        caches=caches,
        specs=specs,
        signals=signals,
        decider=decider or Decider(signals),
        limits=ReplicaLimits(caches, specs, clock, budget),
        writer=writer,
        updates=StatusUpdates(caches, signals, writer, enqueue, leadership, clock, OFF),
        decision_metrics=decision_metrics
        or DecisionMetrics(lambda: ages_s(models, clock.monotonic()), CollectorRegistry()),
        models=models,
        leadership=leadership,
        clock=clock,
    )


def served_metrics(scaler: Autoscaler) -> ServedMetrics:
    """Return the decisions of this autoscaler as the metrics API serves them."""
    return ServedMetrics(scaler.caches, scaler.specs, scaler.signals, scaler.models, scaler.leadership, scaler.clock)
