"""What a rollout is decided from: the view, its pods by revision, and the Deployments of both slots. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec, defaults
from halcyon.api.types import duration_s
from halcyon.control.objects import pods
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.state.scope import Scope
from halcyon.kube.client import Object
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision

CANT_LOAD = frozenset({Reason.LOAD_FAILED, Reason.MODEL_CONFIG_INVALID, Reason.MODEL_SOURCE_NOT_FOUND})


HEARD_S = 10.0
"""Within this time after a pod has come, the Deployment's status tells of it; and a pod without a node for so long lacks room."""


@dataclass(frozen=True)
class RevisionFailure:
    """Why pods of a revision aren't ready."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class UnschedulablePod:
    """A pod finds no room."""

    message: str
    since: float | None
    """Seconds since the epoch; None where it isn't known."""


@dataclass(frozen=True)
class ObservedRollout:
    """One look at a ModelDeployment's servers."""

    view: Scope
    spec: Spec
    slots: Mapping[Slot, SlotState]
    of: Mapping[str, list[Object]]
    """Live server pods, by revision."""

    @classmethod
    def at(cls, view: Scope, spec: Spec, deployments: Mapping[Slot, Object]) -> ObservedRollout:
        """The look at this view; `deployments` are the slots' own."""
        of: dict[str, list[Object]] = {}
        for pod in filter(pods.is_live, view.pods):
            of.setdefault(pods.revision(pod), []).append(pod)
        return cls(view, spec, {slot: SlotState.of(found) for slot, found in deployments.items()}, of)

    @property
    def count(self) -> int:
        """Pods wanted."""
        return defaults.wanted_replicas(self.spec)

    @property
    def surge_wait_s(self) -> float:
        """How long a pod may find no room."""
        return duration_s(self.spec.rollout.surge_wait)

    def is_due(self, at: float | None) -> bool:
        """Whether that time has come; a time that isn't known never does."""
        return at is not None and self.view.now >= at

    def ready(self, key: str) -> int:
        """Ready pods of a revision."""
        return sum(pods.is_ready(p) for p in self.of.get(key, ()))

    def live_in(self, slot: Slot) -> list[Object]:
        """Live pods of a slot, of whatever revision."""
        return [p for found in self.of.values() for p in found if p["metadata"]["labels"].get(names.SLOT_LABEL) == slot]

    def ready_in(self, slot: Slot) -> int:
        """Ready pods of a slot."""
        return sum(map(pods.is_ready, self.live_in(slot)))

    def others(self, key: str) -> list[Object]:
        """Live pods of all other revisions."""
        return [p for known, found in self.of.items() if known != key for p in found]

    def oldest(self, key: str) -> float | None:
        """When the first live pod of a revision began to start, or to wait for room; None where there is none."""
        began = (pods.placed_at(p) or pods.created_at(p) for p in self.of.get(key, ()))
        return min((at for at in began if at is not None), default=None)

    def waited_s(self, key: str) -> float:
        """How long a live pod of a revision has waited until there was room for it, the longest of those that have a node."""
        waits = ((pods.placed_at(p), pods.created_at(p)) for p in self.of.get(key, ()))
        return max((placed - made for placed, made in waits if placed is not None and made is not None), default=0.0)

    def has_time(self, key: str, within_s: float) -> bool:
        """Whether a pod of a revision that isn't ready has waited for room, and found it less than `within_s` ago.

        Its Deployment says by then that the deadline has passed, and doesn't take that back before the pod is ready.
        """
        return any(
            placed - made >= HEARD_S and not self.is_due(placed + within_s)
            for p in self.of.get(key, ())
            if not pods.is_ready(p)
            and (placed := pods.placed_at(p)) is not None
            and (made := pods.created_at(p)) is not None
        )

    def why_not(self, key: str, slot: SlotState | None) -> RevisionFailure | None:
        """What the pods of a revision say of themselves, or the API server that refuses them."""
        ours = self.of.get(key, [])
        found = pods.trouble(ours)
        if found and found.reason in CANT_LOAD:
            return RevisionFailure(found.reason, found.message)
        said = self.view.signals.load_errors if self.view.signals else {}
        if (error := next((said[n] for p in ours if (n := p["metadata"]["name"]) in said), None)) is not None:
            return RevisionFailure(Reason.LOAD_FAILED, error)
        if found:
            return RevisionFailure(found.reason, f"pod {found.pod}: {found.message}")
        return RevisionFailure(Reason.POD_REFUSED, slot.refusal) if slot and slot.refusal else None

    def lack(self, revision: Revision, slot: SlotState | None) -> UnschedulablePod | None:
        """The pod of a revision that has found no room for longest, beside pods of others; a quota is room, too.

        None where it has all the room there is: then nobody can give way.
        """
        if not self.others(revision.key):
            return None
        ours = self.of.get(revision.key, ())
        found = [(pods.unschedulable_since(p), p) for p in ours if pods.is_unschedulable(p)]
        if found:
            since, pod = min(found, key=lambda f: (f[0] is None, f[0], f[1]["metadata"]["name"]))
            return UnschedulablePod(_needs(pod, revision), since)
        if slot and slot.revision == revision.key and "exceeded quota" in slot.refusal:
            return UnschedulablePod(slot.refusal, slot.refused_since)
        return None

    def roomless(self, revision: Revision, slot: SlotState | None) -> int:
        """Pods of other revisions that are wanted and have had no room for so long that none is on its way to them.

        One that waits for a pod to end has its room soon: it must not cost another its place.
        """
        long_s = self.surge_wait_s + grace_s(revision)
        others = self.others(revision.key)
        found = sum((at := pods.unschedulable_since(p)) is not None and self.is_due(at + long_s) for p in others)
        if slot is None or slot.refused_since is None or not self.is_due(slot.refused_since + long_s):
            return found
        return found + max(self.count - len(others), 0)

    def short(self, revision: Revision, slot: SlotState | None) -> int:
        """Pods that are wanted and have had no room for so long, where those of one revision may be in both slots.

        What has its room soon is the same as for `roomless`. All pods count, for those without room may be of the revision itself.
        """
        long_s = self.surge_wait_s + grace_s(revision)
        live = [p for found in self.of.values() for p in found]
        waiting = [pods.unschedulable_since(p) for p in live]
        missing = max(self.count - waiting.count(None), 0)
        if slot is not None and slot.refused_since is not None and self.is_due(slot.refused_since + long_s):
            return missing
        return min(missing, sum(at is not None and self.is_due(at + long_s) for at in waiting))

    def patience(self, lack: UnschedulablePod) -> float | None:
        """When it will have lasted for surgeWait."""
        return None if lack.since is None else lack.since + self.surge_wait_s

    def lacks_long(self, lack: UnschedulablePod | None) -> bool:
        """Whether it has lasted for surgeWait."""
        return lack is not None and self.is_due(self.patience(lack))


def grace_s(revision: Revision) -> int:
    """How long a pod may take to end."""
    return int(revision.template["spec"].get("terminationGracePeriodSeconds", 30))


def _needs(pod: Object, revision: Revision) -> str:
    """What a pod lacks, as far as its scheduler says; free GPUs of nodes aren't ours to count."""
    trouble = pods.trouble([pod])
    said = (trouble.message if trouble else "").split(". ")[0].rstrip(".")
    asked = [c.get("resources") or {} for c in revision.template["spec"]["containers"]]
    amounts = {k: v for r in asked for k, v in {**(r.get("limits") or {}), **(r.get("requests") or {})}.items()}
    needs = ", ".join(f"{amounts[r]} more {r}" if r in amounts else f"more {r}" for r in pods.lacking(said))
    return f"pod {pod['metadata']['name']} needs {needs or 'a node'}: {said}"
