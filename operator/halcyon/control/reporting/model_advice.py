"""Advice for all models. A sample of each model is taken every 30 s, and advice is selected every five minutes.

A changed selection causes a reconcile. Only the leader takes samples. A new leader continues with the advice in the
status. Out of scope: the rules (`control.advice`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from halcyon.api.spec import Spec
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.advice import selection
from halcyon.control.advice.evidence import ModelEvidence, Window, executed, is_measured, with_learnt
from halcyon.control.advice.rules import opinions
from halcyon.control.advice.selection import AdviceSelection
from halcyon.control.autoscaling.loop import Autoscaler
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import serving_key
from halcyon.kube import kinds
from halcyon.kube.clock import Clock, in_slices
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.policy.decision import Decision
from halcyon.signals.busy_fraction import SOURCE as DERIVED
from halcyon.signals.store_state import POD_COUNTERS, ModelSnapshot

SAMPLE_INTERVAL_S = 30.0
SAMPLES = 10
"""Number of samples of a model from which its advice is selected. They cover five minutes."""
_WINDOW_S = 15.0
"""Length of the period over which the rates of a sample are computed, in seconds. The agents' samples are stored for 20
s."""
_COLUMNS = tuple(3 + POD_COUNTERS.index(name) for name in ("succeeded", "queue_us"))


@dataclass(slots=True)
class _SampledModel:
    """State of one model whose signals are sampled for advice."""

    uid: str
    selection: AdviceSelection
    window: Window = field(default_factory=Window)
    samples: int = 0
    measured: str | None = None
    """Revision whose execution time was measured as a function of rows, from batches of different sizes. It stays set
    if all later batches have one size."""


@dataclass
class ModelAdvice:
    """Last selected advice for all models."""

    caches: ClusterState
    specs: SpecsInForce
    autoscaler: Autoscaler
    enqueue: Callable[[Key], None]
    leadership: Leadership
    clock: Clock

    _models: dict[Key, _SampledModel] = field(default_factory=dict)

    async def run(self) -> None:
        """Sample all models periodically, until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_S)
            keys = list(self.caches.resources.all_keys()) if self.leadership.is_leader else []
            self._models = {key: self._models[key] for key in keys if key in self._models}
            async for key in in_slices(keys, self.clock):
                with self.caches.malformed.skipping_errors(kinds.MODEL_DEPLOYMENT.kind, key, "advice"):
                    self.sample(key)

    def sample(self, key: Key) -> None:
        """Add a sample of a model's signals.

        After `SAMPLES` samples, select the advice, and requeue the model if the selection has changed.
        """
        spec, resource = self.specs.get(key), self.caches.resources.get(key) or {}
        uid = self.autoscaler.signals.uid(key)
        model = self._models.get(key)
        if model is None or model.uid != uid:
            status = resource.get("status") or {}
            model = self._models[key] = _SampledModel(uid, selection.read(status.get("advice")))
        if spec is None:
            return
        before, memory, now = model.selection, self.autoscaler.decider.memory(key), self.clock.monotonic()
        if spec.scaling is None:
            model.selection = AdviceSelection()
        else:
            snapshot, state = self.autoscaler.signals.hub.snapshot(*key, now), self.autoscaler.state(key)
            serving, server_pods = serving_key(self.caches, key), self.caches.pods.find(key.namespace, key.name)
            # The planner's memory has the batches of the serving revision only.
            counted = sum(pods.is_ready(pod) and pods.revision(pod) == serving for pod in server_pods)
            _add_sample(model.window, now, snapshot, memory, state.decision if state else None, counted=counted)
            model.samples += 1
        if model.samples == SAMPLES:
            model.samples, shown = 0, frozenset(advice.rule for advice in before.shown)
            findings = opinions(self._evidence(key, model, spec, memory, resource), shown)
            model.selection = before.updated(self.clock.wall(), findings)
        if model.selection.shown != before.shown:
            self.enqueue(key)

    def published(self, key: Key) -> AdviceSelection | None:
        """Return the selected advice of a model; None if none was selected yet, so that the status keeps its advice."""
        model = self._models.get(key)
        return None if model is None else model.selection

    def _evidence(
        self, key: Key, model: _SampledModel, spec: Spec, memory: PlannerMemory | None, resource: Mapping[str, Any]
    ) -> ModelEvidence:
        """Return the evidence for advice on a model's settings.

        It contains the means of the samples, the results of the planner, and the duration of a pod's last start.
        """
        cold_start = (resource.get("status") or {}).get("coldStart") or {}
        means = replace(model.window.evidence(spec), start_s=cold_start.get("seconds"))
        if memory is None:
            return means
        if is_measured(memory):
            model.measured = memory.capacity.revision
        measured = model.measured == memory.capacity.revision
        return with_learnt(means, memory, self.autoscaler.decider.knowledge(key, spec), measured=measured)


def _add_sample(
    window: Window,
    now: float,
    snapshot: ModelSnapshot | None,
    memory: PlannerMemory | None,
    decision: Decision | None,
    *,
    counted: int,
) -> None:
    signals = {signal.name: signal for signal in decision.signals} if decision else {}
    queue, gpu = signals.get("queueDepth"), signals.get("gpuUtilization")
    ready, answered, waited = 0, None, None
    for pod in snapshot.pods.values() if snapshot else ():
        ready += pod.state == "ready"
        rates = (None, None) if pod.ring is None else pod.ring.rates(_COLUMNS, now, _WINDOW_S)
        answered = answered if rates[0] is None else (answered or 0.0) + rates[0]
        waited = waited if rates[1] is None else (waited or 0.0) + rates[1] / 1e6
    used = None if gpu is None or gpu.shown is None or gpu.source == DERIVED else gpu.shown / 100
    waiting = queue.shown if queue else None
    window.add(now, ready, waiting, used, answered, waited, executed(memory), counted=min(counted, ready))
