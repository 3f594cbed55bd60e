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
from halcyon.control.state.lookups import serving_revision
from halcyon.control.state.scope import PublishedCosts as Shown
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock, in_slices
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.render import names
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
    accepted: SpecsInForce | None = None
    """Accepted specs, which pods of other revisions than the serving one have; None if they are those in `specs`."""

    _saved: Mapping[Key, Saved] = field(default_factory=dict)
    """GPU times saved by an earlier process, for models that this process has not counted yet."""
    _models: dict[Key, _ModelCost] = field(default_factory=dict)
    _served: dict[Key, AbstractSet[str]] = field(default_factory=dict)
    """Uids of the serving pods of each model: those that are ready, or are being deleted after they were ready."""
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
        spec = self._with_gpus(key)
        usage = None if spec is None else self._usage(key, spec)
        if spec is None or usage is None or not (usage.held or self.specs.get(key) is spec):
            if self._models.pop(key, None) is not None and self.leadership.is_leader:
                self.enqueue(key)
            return
        model, uid = self._models.get(key), self.signals.uid(key)
        if model is None or model.uid != uid:
            model = self._models[key] = _ModelCost(uid, self._restored(key, uid))
        inferences_before, at = model.ledger.total.inferences, self.clock.monotonic()
        model.ledger = model.ledger.counted(usage)
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
        """Return the hourly price of a GPU, by the spec's resource or the product in its nodeSelector; None if unknown."""
        product = (spec.runtime.placement.node_selector or {}).get(GPU_PRODUCT_LABEL)
        return self.prices.of(product, None if spec.runtime.gpu is None else spec.runtime.gpu.resource_name)

    def published(self, key: Key) -> Shown:
        """Return the last published cost of a model; `settling` if one with GPUs has no sample yet."""
        model, spec = self._models.get(key), self.specs.get(key)
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
        held, spec = self.held(key), self._with_gpus(key)
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

    def _with_gpus(self, key: Key) -> Spec | None:
        """Return the serving spec, or the accepted one if only that has GPUs; None if none has."""
        specs = (lookup.get(key) for lookup in (self.specs, self.accepted) if lookup is not None)
        return next((spec for spec in specs if spec is not None and spec.runtime.gpus), None)

    def _gpus(self, key: Key) -> Callable[[Object], int]:
        """Return a function that returns the GPUs of a pod, which may be of another revision than the serving one."""
        serving, accepted = self.specs.get(key), None if self.accepted is None else self.accepted.get(key)
        specs = [spec for spec in (serving, accepted or serving) if spec is not None]
        resources = {gpu.resource for spec in specs if (gpu := spec.runtime.gpu) is not None and gpu.resource}
        stored = serving_revision(self.caches, key).name

        def of_pod(pod: Object) -> int:
            devices = sum(pods.devices(pod, resource) or 0 for resource in resources)
            # Claims aren't devices, so the spec has their number.
            is_serving = names.revision(key.name, pods.revision(pod)) == stored
            return devices or specs[0 if is_serving else -1].runtime.gpus

        return of_pod

    def _usage(self, key: Key, spec: Spec) -> GpuUsage:
        node_pods = [pod for pod in self.caches.pods.find(key.namespace, key.name) if pods.holds_node(pod)]
        ready = {pod["metadata"]["uid"] for pod in node_pods if pods.is_ready(pod)}
        # A pod that ends without ever having been ready has only started.
        ended = {pod["metadata"]["uid"] for pod in node_pods if pod["metadata"]["deletionTimestamp"] is not None}
        served = self._served[key] = ready | (ended & self._served.get(key, frozenset()))
        gpus = self._gpus(key)
        held = {pod["metadata"]["uid"]: gpus(pod) for pod in node_pods}
        serving = sum(held[uid] for uid in served)
        return GpuUsage(
            at=self.signals.epoch.at(self.clock.monotonic()),
            starting=sum(held.values()) - serving,
            serving=serving,
            worked=self.signals.reported_work(key, spec) or ReportedWork(),
            max_gpus=None if spec.scaling is None else spec.scaling.max_replicas * spec.runtime.gpus,
        )
