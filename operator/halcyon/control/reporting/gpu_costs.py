"""Cost of models' GPUs, computed from samples of the models' pods every ten seconds and after changes of the pods.

Both replicas of the operator take samples, so that the standby has the same data when it becomes the leader. Models
without GPUs are not included. The shares of GPU time over the last day change slowly even if a model is idle, because
time passes. New values are therefore published rarely, and the status keeps the last published ones.

Out of scope: how GPU time is counted (`scaling.gpu_cost`).
"""

# | change                                    | published                                                                     |
# | ----------------------------------------- | ----------------------------------------------------------------------------- |
# | in the number of GPUs that a model holds  | at once                                                                       |
# | in its shares of GPU time, if large       | every ten minutes while it serves requests, once when it becomes idle, and    |
# |                                           | every hour while it is idle                                                   |

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from halcyon.api.documents.measured_capacity import GPU_PRODUCT_LABEL
from halcyon.api.spec import Spec
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.planner_memory.entries import BROKEN, Saved
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import stored_revision
from halcyon.control.state.scope import PublishedCosts as Shown
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock, in_slices
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.render import gpu, names
from halcyon.render.revision import serving_spec
from halcyon.scaling import gpu_cost
from halcyon.scaling.gpu_cost import Cost, GpuUsage, Ledger, Prices, ReportedWork, Spent

log = logging.getLogger(__name__)

EVERY_S = 10.0
AFTER_CHANGE_S = 1.0
"""Maximum time from a change of a model's pods to the next sample, in seconds."""
BUSY_INTERVAL_S, IDLE_INTERVAL_S = 600.0, 3600.0
"""Minimum time between two comparisons of current and published shares of GPU time, in seconds. The first number is for
a busy model, the second for an idle one."""
IDLE_AFTER_S = 60.0
"""Time without an inference after which a model counts as idle, in seconds."""


@dataclass
class _ModelCost:
    """GPU time of one model, and its published cost."""

    uid: str
    ledger: Ledger
    shown: Cost | None = None
    compared_at: float = -math.inf
    """Monotonic time at which current and published shares of GPU time were last compared, in seconds."""
    worked_at: float = -math.inf
    """Monotonic time at which the number of inferences last increased, in seconds."""

    def is_due(self, at: float) -> bool:
        """Return whether the current and published shares of GPU time should be compared now."""
        is_idle = at - self.worked_at >= IDLE_AFTER_S
        if is_idle and self.compared_at < self.worked_at + IDLE_AFTER_S:
            return True
        return at - self.compared_at >= (IDLE_INTERVAL_S if is_idle else BUSY_INTERVAL_S)


@dataclass
class GpuCosts:
    """GPU time of all models, and their last published costs."""

    caches: ClusterState
    signals: ModelSignals
    specs: SpecsInForce
    enqueue: Callable[[Key], None]
    leadership: Leadership
    clock: Clock
    prices: Prices = field(default_factory=Prices)

    _saved: Mapping[Key, Saved] = field(default_factory=dict)
    """GPU times saved by an earlier process, for models that this process has not counted yet."""
    _models: dict[Key, _ModelCost] = field(default_factory=dict)
    _served: dict[Key, AbstractSet[str]] = field(default_factory=dict)
    """Uids of the serving pods of each model. A pod serves if it is ready, or if it is being deleted after it was
    ready."""
    _gpus: defaultdict[Key, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Number of GPUs per pod of each model's stored revisions, by key of the revision."""
    _with_changed_pods: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Subscribe to changes of models, to drop the data of deleted ones, and to changes of pods."""
        self.caches.resources.listeners.append(self._changed)
        self.caches.pods.listeners.append(self._pod_changed)

    def restore(self, saved: Mapping[Key, Saved]) -> None:
        """Adopt the GPU times saved by an earlier process, for models that this process has not counted yet."""
        self._saved = saved

    async def run(self) -> None:
        """Sample all models periodically, and models with changed pods between these times, until cancelled."""
        all_sampled_at = self.clock.monotonic()
        while True:
            await asyncio.sleep(AFTER_CHANGE_S)
            started = self.clock.monotonic()
            changed, self._with_changed_pods = self._with_changed_pods, set()
            is_time_for_all = started - all_sampled_at >= EVERY_S
            if is_time_for_all:
                all_sampled_at = started
            async for key in in_slices(self.caches.resources.all_keys() if is_time_for_all else changed, self.clock):
                with self.caches.malformed.skipping_errors(kinds.MODEL_DEPLOYMENT.kind, key, "costs"):
                    self.count(key)

    def count(self, key: Key) -> None:
        """Add a sample to the GPU time of one model, and requeue it if a new cost is to be published."""
        spec = self._spec(key)
        if spec is None or not spec.runtime.gpus:
            if self._models.pop(key, None) is not None and self.leadership.is_leader:
                self.enqueue(key)
            return
        model, uid = self._models.get(key), self.signals.uid(key)
        if model is None or model.uid != uid:
            model = self._models[key] = _ModelCost(uid, self._restored(key, uid))
        inferences_before, at = model.ledger.total.inferences, self.clock.monotonic()
        model.ledger = model.ledger.counted(self._usage(key, spec))
        if model.ledger.total.inferences > inferences_before:
            model.worked_at = at
        cost = gpu_cost.cost(model.ledger, self.price(spec))
        shown, is_due = model.shown, model.is_due(at)
        if is_due:
            model.compared_at = at
        if shown is None or gpu_cost.has_changed(shown, cost) or (is_due and gpu_cost.has_moved(shown, cost)):
            model.shown, model.compared_at = cost, at
            if self.leadership.is_leader:
                self.enqueue(key)

    def price(self, spec: Spec) -> float | None:
        """Return the price per hour of one of the model's GPUs; None if unknown.

        It is the price of the spec's GPU resource, or of the GPU product in its nodeSelector.
        """
        product = (spec.runtime.placement.node_selector or {}).get(GPU_PRODUCT_LABEL)
        return self.prices.of(product, None if spec.runtime.gpu is None else spec.runtime.gpu.resource_name)

    def published(self, key: Key) -> Shown:
        """Return the last published cost of a model.

        If a model with GPUs has no sample yet, `settling` is set, so that the status keeps its value.
        """
        model, spec = self._models.get(key), self._spec(key)
        is_settling = model is None and (spec is None or spec.runtime.gpus > 0)
        return Shown(None if model is None else model.shown, self.prices.currency, settling=is_settling)

    def spent(self, key: Key) -> Spent | None:
        """Return the GPU-seconds and inferences of a model since this process started; None if none were counted."""
        model = self._models.get(key)
        return None if model is None else model.ledger.total

    def held(self, key: Key) -> int | None:
        """Return the number of GPUs of the model's pods that have a node; None if they weren't counted yet."""
        model = self._models.get(key)
        return None if model is None or model.ledger.last is None else model.ledger.last.held

    def per_hour(self, key: Key) -> float | None:
        """Return the hourly cost of the GPUs that a model holds; None if unknown."""
        held, spec = self.held(key), self._spec(key)
        price = None if spec is None else self.price(spec)
        return None if held is None or price is None else price * held

    def stored(self, key: Key) -> list[list[float]] | None:
        """Return the GPU time of a model as a JSON value, to store with the planner's memory; None if there is none."""
        model = self._models.get(key)
        return None if model is None else model.ledger.to_json()

    def _changed(self, key: Key, _before: Object | None, after: Object | None) -> None:
        if after is None:
            self._models.pop(key, None)
            self._served.pop(key, None)
            self._gpus.pop(key, None)

    def _pod_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        pod = after if after is not None else before
        if pod is not None and (owner := pod["metadata"]["labels"].get(names.OWNER_LABEL)) is not None:
            self._with_changed_pods.add(Key(key.namespace, owner))

    def _restored(self, key: Key, uid: str) -> Ledger:
        saved = self._saved.get(key)
        if saved is None or saved.uid != uid:
            return Ledger()
        try:
            return Ledger.from_json(saved.cost())
        except BROKEN as error:
            context = {"key": str(key), "error": str(error)}
            log.warning("cannot read a model's stored GPU time; counting starts from zero", extra=context)
            return Ledger()

    def _spec(self, key: Key) -> Spec | None:
        """Return the spec of a model's pods: the serving revision's, or another one's if only its pods have GPUs."""
        spec = self.specs.get(key)
        if spec is None or spec.runtime.gpus:
            return spec
        revisions = {pods.revision(pod) for pod in self.caches.pods.find(key.namespace, key.name)}
        other = max((revision for revision in revisions if self._gpus_each(key, revision)), default=None)
        return spec if other is None else serving_spec(key.name, spec, stored_revision(self.caches, key, other))

    def _gpus_each(self, key: Key, revision: str) -> int | None:
        """Return the number of GPUs per pod of a revision; None if it isn't stored. The number never changes."""
        counts = self._gpus[key]
        if revision not in counts and (stored := stored_revision(self.caches, key, revision)) is not None:
            counts[revision] = gpu.count(stored.template)
        return counts.get(revision)

    def _pod_gpus(self, key: Key, spec: Spec, pod: Object) -> int:
        """Return the number of GPUs of a pod. During a rollout, pods of two revisions can have different numbers."""
        if (count := self._gpus_each(key, pods.revision(pod))) is not None:
            return count
        resource = None if spec.runtime.gpu is None else spec.runtime.gpu.resource
        return (resource and pods.devices(pod, resource)) or spec.runtime.gpus

    def _usage(self, key: Key, spec: Spec) -> GpuUsage:
        node_pods = [pod for pod in self.caches.pods.find(key.namespace, key.name) if pods.holds_node(pod)]
        ready = {pod["metadata"]["uid"] for pod in node_pods if pods.is_ready(pod)}
        # A pod that ends without ever having been ready has only started.
        ended = {pod["metadata"]["uid"] for pod in node_pods if pod["metadata"]["deletionTimestamp"] is not None}
        served = self._served[key] = ready | (ended & self._served.get(key, frozenset()))
        held = {pod["metadata"]["uid"]: self._pod_gpus(key, spec, pod) for pod in node_pods}
        serving = sum(held[uid] for uid in served)
        return GpuUsage(
            at=self.signals.epoch.at(self.clock.monotonic()),
            starting=sum(held.values()) - serving,
            serving=serving,
            worked=self.signals.reported_work(key, spec) or ReportedWork(),
            max_gpus=None if spec.scaling is None else spec.scaling.max_replicas * spec.runtime.gpus,
        )
