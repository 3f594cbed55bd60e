"""Values that the external metrics API serves to HPAs: signals for the Rules policy, desired replicas for Planner.

Both the leader and the standby serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon.api.spec import Spec, defaults
from halcyon.control.acceptance import scaling_mode
from halcyon.control.acceptance.accepted_specs import SpecsInForce, with_scaling
from halcyon.control.autoscaling.model_signals import ModelSignals
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.render import hpa
from halcyon.scaling.hpa import metrics
from halcyon.scaling.observations import MAX_AGE_S, Missing, Value

_RULES_VALUES = ("queue_depth", "gpu_utilization", "concurrency", "metric")
_STOPPING = "scaling is not active, and the HPA has not been stopped yet"


@dataclass
class ServedMetrics:
    """Source of the metrics that HPAs read, computed from the signals and the last decisions of models.

    It implements `MetricSource`.
    """

    caches: ClusterState
    specs: SpecsInForce
    signals: ModelSignals
    models: Mapping[Key, ModelState]
    """States of the autoscaled models. They are maintained by the decision loop."""
    leadership: Leadership
    clock: Clock

    async def reading(self, namespace: str, name: str) -> metrics.RulesReading | Missing:
        """Return a model's values for the Rules policy, such as its queue depth and GPU utilisation."""
        key = Key(namespace, name)
        spec = self.specs.get(key)
        if not self._is_active(key, spec) and self._can_hpa_scale(key):
            return Missing(_STOPPING)
        return self.signals.by_rules(key, spec).reading

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        """Return a model's value for the Planner policy: the desired replicas.

        The standby's decisions may differ from the leader's by one replica, so replicas would flap if an HPA polled
        both in turn. While there is a leader, the standby therefore returns the desired replicas from the status. If
        spec.replicas is higher and the status doesn't show it yet, the leader has just written it. The standby then
        returns spec.replicas.
        """
        key = Key(namespace, name)
        spec, now = self.specs.get(key), self.clock.monotonic()
        if spec is None or spec.scaling is None or defaults.policy(spec) != "Planner":
            return Missing(f"ModelDeployment {key} is not scaled by the Planner policy")
        model = self.models.get(key)
        if not self._is_active(key, spec):
            return Missing(_STOPPING) if self._can_hpa_scale(key) else Value(self.caches.replicas(key), now)
        if model is not None and model.external_writer:
            return Value(self.caches.replicas(key), now)
        if model is None or model.decision is None or model.decision.desired is None:
            return Missing("nothing was decided yet")
        age = now - model.decided
        if age > MAX_AGE_S:
            return Missing(f"the last decision is {age:.0f} s old; the limit is {MAX_AGE_S:.0f} s")
        if model.decision.unknown:
            return Missing(model.decision.unknown)
        if not self.leadership.is_leader and self.leadership.has_leader:
            published = self.caches.published_desired(key)
            if published is None:
                return Missing("the leader has decided nothing yet")
            return Value(float(max(published, self.caches.unpublished_replicas(key))), now)
        return Value(float(model.decision.desired), now)

    def _is_active(self, key: Key, spec: Spec | None) -> bool:
        return scaling_mode.is_active(self.caches.resources.get(key) or {"metadata": {}}, spec)

    def _can_hpa_scale(self, key: Key) -> bool:
        """Return whether the model has an HPA that may still change its replicas.

        If scaling isn't active, it was paused a moment ago, and the HPA must get no value: the cached replicas may be
        older than those that the user has set.
        """
        resource = self.caches.hpas.get(key)
        return resource is not None and not hpa.is_shut(resource)

    def unserved(self) -> list[Key]:
        """Return the models with `spec.scaling` whose metrics this replica of the operator can't serve yet."""
        keys = []
        for key, spec in with_scaling(self.caches, self.specs):
            if defaults.policy(spec) == "Planner":
                model = self.models.get(key)
                if model is None or model.decision is None or model.decision.unknown:
                    keys.append(key)
            elif isinstance(reading := self.signals.by_rules(key, spec).reading, Missing) or any(
                isinstance(getattr(reading, name), Missing) for name in _RULES_VALUES
            ):
                keys.append(key)
        return keys
