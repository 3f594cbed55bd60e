"""Scaling beside the API server: what the agents say, as readings, as signals for the status, and as the Direct actuator.

The rules are in `halcyon.scaling`; here they meet the caches, the clock and /scale.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from halcyon.api import defaults
from halcyon.api.spec import Spec
from halcyon.control import errors, kinds
from halcyon.control.caches import Caches
from halcyon.control.client import Kube
from halcyon.control.kinds import Key
from halcyon.control.plan import Actuator, Plan
from halcyon.control.view import Direct, Signal, Signals
from halcyon.scaling import direct, rules
from halcyon.scaling.observations import Missing, Observation, Value, mean_batch
from halcyon.scaling.pace import Memory
from halcyon.signals.hub import Hub

log = logging.getLogger(__name__)

STATUS_EVERY_S = 10.0
BATCH_WINDOW_S = 15.0


@dataclass
class Scaler:
    """Readings and signals of every model; writes /scale for those whose actuator is Direct."""

    client: Kube
    caches: Caches
    hub: Hub
    spec_of: Callable[[Key], Spec | None]
    """The spec in force."""
    enqueue: Callable[[Key], None]
    clock: Callable[[], float] = time.monotonic

    _due: dict[Key, float] = field(default_factory=dict)
    """Models whose actuator is Direct, and when their next decision is due."""
    _memories: dict[Key, Memory] = field(default_factory=dict)
    _shown: dict[Key, tuple[object, ...]] = field(default_factory=dict)

    async def reading(self, namespace: str, name: str) -> rules.RulesReading | Missing:
        """What the metrics API serves for a model."""
        return self._read(Key(namespace, name))[0]

    def _read(self, key: Key) -> tuple[rules.RulesReading | Missing, Observation | None]:
        spec = self.spec_of(key)
        if spec is None:
            return Missing(f"there is no ModelDeployment {key} whose spec was accepted"), None
        observation = self.hub.observe(key.namespace, key.name, self.clock(), window_s=20.0)
        if observation is None:
            return Missing("no balancer's agent has spoken yet"), None
        resource = self.caches.resources.get(key)
        status = (resource or {}).get("status") or {}
        replicas = int((status.get("replicas") or {}).get("total") or 0)
        return rules.read(observation, targets=defaults.targets(spec), replicas=replicas), observation

    def unheard(self) -> list[Key]:
        """Models with scaling, and with balancers, whose metrics this replica can't serve yet."""
        return [
            key
            for key in self.caches.resources.keys()  # noqa: SIM118  # an informer is no dict
            if (spec := self.spec_of(key)) is not None
            and spec.scaling is not None
            and (
                isinstance(reading := self._read(key)[0], Missing)
                or Missing in {type(reading.queue_depth), type(reading.gpu_utilization)}
            )
        ]

    def signals(self, key: Key) -> Signals | None:
        """What a reconcile is told of a model."""
        reading, observation = self._read(key)
        if observation is None:
            return None
        spec = self.spec_of(key)
        scaling: tuple[Signal, ...] = ()
        if spec is not None and spec.scaling is not None and isinstance(reading, rules.RulesReading):
            scaling = self._scaling(reading, defaults.targets(spec))
        return Signals(
            load_errors={p.name: p.load_error for p in observation.pods if p.load_error},
            versions=tuple(sorted({v for p in observation.pods for v in p.versions})),
            maintenance=frozenset(p.name for p in observation.pods if p.state == "maintenance"),
            scaling=scaling,
            mean_batch=mean_batch(observation, BATCH_WINDOW_S),
        )

    def _scaling(self, reading: rules.RulesReading, targets: defaults.ResolvedTargets) -> tuple[Signal, ...]:
        signals = [self._signal(rules.QUEUE_DEPTH, targets.queue_depth, reading.queue_depth)]
        if targets.gpu_utilization is not None and reading.gpu_utilization is not None:
            signals.append(self._signal(rules.GPU_UTILIZATION, targets.gpu_utilization, reading.gpu_utilization))
        return tuple(signals)

    def _signal(self, name: str, target: int, value: Value | Missing) -> Signal:
        if isinstance(value, Missing):
            return Signal(name, target, missing=value.reason)
        seen = datetime.fromtimestamp(time.time() - (self.clock() - value.at), UTC)
        return Signal(name, target, value=value.value, observed_at=seen.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def planned(self, key: Key, plan: Plan) -> None:
        """Told by each reconcile: whether this model's actuator is Direct."""
        if plan.actuator is Actuator.DIRECT:
            self._due.setdefault(key, self.clock())
        else:
            # What was shown stays known: else every reconcile would bring the next.
            for held in (self._due, self._memories, self.caches.direct):
                held.pop(key, None)

    def forget(self, key: Key) -> None:
        """The model is gone."""
        for held in (self._due, self._memories, self._shown, self.caches.direct):
            held.pop(key, None)

    async def run(self) -> None:
        """Decide for models with Direct when they are due, and have changed values shown; until cancelled."""
        shown = self.clock()
        while True:
            await asyncio.sleep(0.5)
            now = self.clock()
            for key in [key for key, due in self._due.items() if due <= now]:
                self._due[key] = now + direct.SYNC_S
                await self._direct(key)
            if now - shown >= STATUS_EVERY_S:
                shown = now
                self._show()

    def _show(self) -> None:
        """Have the status of models written whose values have changed."""
        for namespace, name in self.hub.models():
            key = Key(namespace, name)
            signals = self.signals(key)
            if signals is None:
                continue
            values = (
                *((s.name, None if s.value is None else round(s.value), s.missing) for s in signals.scaling),
                None if signals.mean_batch is None else round(signals.mean_batch, 1),
            )
            if self._shown.get(key) != values:
                self._shown[key] = values
                self.enqueue(key)

    async def _direct(self, key: Key) -> None:
        spec, resource = self.spec_of(key), self.caches.resources.get(key)
        reading, _ = self._read(key)
        if spec is None or spec.scaling is None or resource is None or isinstance(reading, Missing):
            return
        now = self.clock()
        current = int(resource["spec"].get("replicas", 1))
        decision = direct.desired(
            now,
            current,
            reading,
            defaults.targets(spec),
            spec.scaling.behavior,
            low=spec.scaling.min_replicas,
            high=spec.scaling.max_replicas,
            memory=self._memories.get(key) or Memory(),
        )
        said = Direct(decision.count, decision.say())
        if decision.count != current:
            body = {
                "metadata": {"resourceVersion": resource["metadata"]["resourceVersion"]},
                "spec": {"replicas": decision.count},
            }
            try:
                await self.client.patch(kinds.MODEL_DEPLOYMENT, key.namespace, key.name, body, subresource="scale")
            except (errors.ApiError, errors.Unreachable) as error:
                # Changed meanwhile, or out of reach: decided anew in a moment, from what is then.
                log.warning("cannot scale", extra={"key": str(key), "error": str(error)})
                self._memories[key] = decision.unwritten
                self._due[key] = now + 1.0
                return
            log.info("scaled", extra={"key": str(key), "replicas": decision.count, "before": current, "why": said.why})
        self._memories[key] = decision.memory
        if self.caches.direct.get(key) != said:
            self.caches.direct[key] = said
            self.enqueue(key)
