"""Input of a rollout decision: the scope, the server pods of each revision, and the state of both slots' Deployments.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec, defaults
from halcyon.api.types import duration_s
from halcyon.control.objects import pod_interference, pods, volume_attachment
from halcyon.control.objects.admission_messages import exceeds_quota
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.state.scope import Scope
from halcyon.kube import pod_times
from halcyon.kube.kinds import Object
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision

LOAD_FAILURES = frozenset({Reason.LOAD_FAILED, Reason.MODEL_CONFIG_INVALID, Reason.MODEL_SOURCE_NOT_FOUND})


REPORTS_TIMEOUT_S = 10.0
"""Maximum delay until a Deployment's status includes a new pod, in seconds. A pod that was scheduled later than this
after its creation is assumed to have waited for a node."""


@dataclass(frozen=True)
class RevisionFailure:
    """Reason why pods of a revision aren't ready."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class UnschedulablePod:
    """Pod that can't be scheduled, or that can't be created because of a quota."""

    message: str
    since: float | None
    """Time since which the pod can't be scheduled or created, in seconds since the epoch; None if unknown."""
    is_certain: bool = False
    """Whether waiting is useless, because the pod can only start after another pod has ended."""


@dataclass(frozen=True)
class ObservedRollout:
    """Observed state of a ModelDeployment's servers, on which a rollout decision is based."""

    scope: Scope
    spec: Spec
    slots: Mapping[Slot, SlotState]
    by_revision: Mapping[str, list[Object]]
    """Server pods that are live, by key of their revision."""

    @classmethod
    def at(cls, scope: Scope, spec: Spec, deployments: Mapping[Slot, Object]) -> ObservedRollout:
        """Return the observed state of the servers. `deployments` are the model's server Deployments, by slot."""
        by_revision: dict[str, list[Object]] = {}
        for pod in filter(pods.is_live, scope.pods):
            by_revision.setdefault(pods.revision(pod), []).append(pod)
        return cls(scope, spec, {slot: SlotState.of(deployments[slot]) for slot in deployments}, by_revision)

    @property
    def live_pods(self) -> list[Object]:
        """Server pods that are live, whatever their revision."""
        return list(chain.from_iterable(self.by_revision.values()))

    @property
    def count(self) -> int:
        """Number of desired server pods, in total over all revisions."""
        return defaults.bounded_replicas(self.spec)

    @property
    def surge_timeout_s(self) -> float:
        """Maximum time that a rollout waits for an unschedulable pod: spec.rollout.surgeTimeout, in seconds."""
        return duration_s(self.spec.rollout.surge_timeout)

    def is_due(self, at: float | None) -> bool:
        """Return whether the time `at` has come. `at` is in seconds since the epoch. Return False if it is None."""
        return at is not None and self.scope.now >= at

    def ready(self, key: str) -> int:
        """Return the number of ready pods of a revision."""
        return sum(pods.is_ready(p) for p in self.by_revision.get(key, ()))

    def live_in(self, slot: Slot) -> list[Object]:
        """Return the live pods of a slot, whatever their revision."""
        return [p for p in self.live_pods if p["metadata"]["labels"].get(names.SLOT_LABEL) == slot]

    def remaining_in(self, slot: Slot) -> list[Object]:
        """Return the pods of a slot that may still serve requests: those that are live, and those that are stopping."""
        slot_pods = (p for p in self.scope.pods if p["metadata"]["labels"].get(names.SLOT_LABEL) == slot)
        return [p for p in slot_pods if not pods.is_ended_or_lost(p, self.scope.now)]

    def ready_in(self, slot: Slot) -> int:
        """Return the number of ready pods of a slot."""
        return sum(map(pods.is_ready, self.live_in(slot)))

    def others(self, key: str) -> list[Object]:
        """Return the live pods of all revisions except the one with this key."""
        return [p for p in self.live_pods if pods.revision(p) != key]

    def oldest_start(self, key: str) -> float | None:
        """Return the earliest start of a revision's live pods, in seconds since the epoch; None if there are none.

        A pod starts when its own containers could run. If this time is unknown for all pods, creation times are used.
        """
        own_pods = self.by_revision.get(key, ())
        times = [at for at in map(pod_interference.released_at, own_pods) if at is not None]
        return min(times or (at for at in map(pod_times.created_at, own_pods) if at is not None), default=None)

    def longest_wait_s(self, key: str) -> float:
        """Return the longest time from the creation of a live pod until its own containers could begin, in seconds."""
        waits = ((pod_interference.released_at(p), pod_times.created_at(p)) for p in self.by_revision.get(key, ()))
        return max((end - start for end, start in waits if end is not None and start is not None), default=0.0)

    def has_time(self, key: str, within_s: float) -> bool:
        """Return whether an unready pod of a revision waited for a node and was scheduled less than `within_s` s ago.

        Such a pod still has time to start, although its Deployment may already report an exceeded deadline.
        """
        return any(
            released - created >= REPORTS_TIMEOUT_S and not self.is_due(released + within_s)
            for p in self.by_revision.get(key, ())
            if not pods.is_ready(p)
            and (released := pod_interference.released_at(p)) is not None
            and (created := pod_times.created_at(p)) is not None
        )

    def failure(self, key: str, slot: SlotState | None) -> RevisionFailure | None:
        """Return the reason why pods of a revision aren't ready; None if unknown.

        The first of these sources is used: a failed load or fetch in the pods' status; load errors from the agents;
        other failures in the pods' status; the API server's reason for not creating pods.
        """
        own_pods = self.by_revision.get(key, [])
        pod_failure = pods.failure(own_pods)
        if pod_failure and pod_failure.reason in LOAD_FAILURES:
            return RevisionFailure(pod_failure.reason, pod_failure.message)
        load_errors = self.scope.signals.load_errors if self.scope.signals else {}
        error = next((load_errors[n] for p in own_pods if (n := p["metadata"]["name"]) in load_errors), None)
        if error is not None:
            return RevisionFailure(Reason.LOAD_FAILED, error)
        if pod_failure:
            return RevisionFailure(pod_failure.reason, f"pod {pod_failure.pod}: {pod_failure.message}")
        if slot and slot.paused and not own_pods:
            text = f"Deployment {slot.name} is paused, so no pods of the new revision are created; run kubectl rollout resume deployment/{slot.name}"
            return RevisionFailure(Reason.DEPLOYMENT_PAUSED, text)
        return RevisionFailure(Reason.POD_CREATION_FAILED, slot.rejection) if slot and slot.rejection else None

    def is_start_blocked(self, key: str, slot: SlotState | None) -> bool:
        """Return whether something outside Halcyon keeps all pods of a revision from starting.

        The revision then doesn't count as failed. Examples are a container that a webhook has injected, and a paused
        Deployment.
        """
        unready = [p for p in self.by_revision.get(key, ()) if not pods.is_ready(p)]
        if not unready:
            return slot is not None and slot.paused
        return all(pod_interference.start_blocker(p) for p in unready)

    def unschedulable_pod(self, revision: Revision, slot: SlotState | None) -> UnschedulablePod | None:
        """Return the pod of `waiting_pod` if the removal of other pods could free capacity for it; otherwise None.

        Pods to remove are schedulable pods of other revisions, and those that `kubectl rollout restart` is replacing.
        """
        restarts = slot is not None and slot.revision == revision.key and slot.is_observed and not slot.is_updated
        can_free = restarts or not all(map(pods.is_unschedulable, self.others(revision.key)))
        return self.waiting_pod(revision, slot) if can_free else None

    def waiting_pod(self, revision: Revision, slot: SlotState | None) -> UnschedulablePod | None:
        """Return the revision's pod that has been unschedulable longest, or the rejection of its pods by a quota.

        The result is None if there is neither. A pod that can't attach its volume counts as unschedulable.
        """
        own_pods = self.by_revision.get(revision.key, ())
        for pod in own_pods:
            if conflict := volume_attachment.conflict(pod, self.scope.pods, self.scope.source.exclusive):
                return UnschedulablePod(conflict, pod_times.scheduled_at(pod), is_certain=True)
        unschedulable = [(pods.unschedulable_since(p), p) for p in own_pods if pods.is_unschedulable(p)]
        if unschedulable:
            since, pod = min(unschedulable, key=lambda f: (f[0] is None, f[0], f[1]["metadata"]["name"]))
            return UnschedulablePod(_needs(pod, revision), since)
        if slot and slot.revision == revision.key and exceeds_quota(slot.rejection):
            return UnschedulablePod(slot.rejection, slot.rejected_since)
        return None

    def unschedulable_pods(self, revision: Revision, slot: SlotState | None) -> int:
        """Return how many pods of other revisions have lacked capacity for surgeTimeout plus the grace period.

        They are unschedulable, or a quota rejects them. Pods that have waited for less time aren't included: they may
        get the capacity of a pod that is stopping.
        """
        timeout_s = self.surge_timeout_s + grace_s(revision)
        others = self.others(revision.key)
        count = sum((at := pods.unschedulable_since(p)) is not None and self.is_due(at + timeout_s) for p in others)
        if slot is None or slot.rejected_since is None or not self.is_due(slot.rejected_since + timeout_s):
            return count
        return count + max(self.count - len(others), 0)

    def missing_pods(self, revision: Revision, slot: SlotState | None) -> int:
        """Return how many pods of both slots were unschedulable for surgeTimeout plus the grace period.

        Unlike `unschedulable_pods`, this counts the pods of all revisions. It is used if both slots have pods of
        `revision`.
        """
        timeout_s = self.surge_timeout_s + grace_s(revision)
        since = [pods.unschedulable_since(p) for p in self.live_pods]
        missing = max(self.count - since.count(None), 0)
        if slot is not None and slot.rejected_since is not None and self.is_due(slot.rejected_since + timeout_s):
            return missing
        return min(missing, sum(at is not None and self.is_due(at + timeout_s) for at in since))

    def surge_deadline(self, pod: UnschedulablePod) -> float | None:
        """Return the time at which a pod will have been unschedulable for surgeTimeout, in seconds since the epoch.

        Return None if it is unknown. If waiting is useless, the result is the time since which the pod has been
        unschedulable.
        """
        return None if pod.since is None else pod.since + (0 if pod.is_certain else self.surge_timeout_s)

    def has_surge_timed_out(self, pod: UnschedulablePod | None) -> bool:
        """Return whether there is an unschedulable `pod`, and it has been unschedulable for surgeTimeout."""
        return pod is not None and self.is_due(self.surge_deadline(pod))


def grace_s(revision: Revision) -> int:
    """Return the termination grace period of a revision's pods, in seconds."""
    return int(revision.template["spec"].get("terminationGracePeriodSeconds", 30))


def _needs(pod: Object, revision: Revision) -> str:
    """Return a message about the resources that a pod lacks, as reported by the scheduler.

    Halcyon itself doesn't count free GPUs.
    """
    failure = pods.failure([pod])
    message = (failure.message if failure else "").split(". ")[0].rstrip(".")
    resources = [c.get("resources") or {} for c in revision.template["spec"]["containers"]]
    amounts = {k: v for r in resources for k, v in {**(r.get("limits") or {}), **(r.get("requests") or {})}.items()}
    needs = ", ".join(f"{amounts[r]} more {r}" if r in amounts else f"more {r}" for r in pods.lacking(message))
    return f"pod {pod['metadata']['name']} needs {needs or 'a node'}: {message}"
