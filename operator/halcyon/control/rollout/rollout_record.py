"""The rollout record of a revision, stored as an annotation of its ControllerRevision. Pure.

The record isn't in the status, because the status can be lost. For example, a restore from a backup omits it. The
ControllerRevision exists while the revision can be rolled back to, and is garbage-collected with the ModelDeployment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache

from halcyon.api.conditions import Reason
from halcyon.api.timestamps import rfc3339
from halcyon.render.names import SLOT_A, SLOT_B, Slot
from halcyon.render.revision import Revision

MAX_TEXT_LENGTH = 600
"""Maximum length of a stored message, in characters. Triton's error messages may be longer."""


class RolloutResult(StrEnum):
    """Result of a rollout."""

    SERVED = "Served"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"
    """The spec requested another revision before this revision was served."""


@dataclass(frozen=True)
class RolloutRecord:
    """Record of the last rollout of a revision.

    Times are in RFC 3339, in whole seconds. They are empty for events that haven't happened.
    """

    began: str = ""
    replacing: str = ""
    """Time since which old pods have been removed before new pods are ready; empty with the Surge strategy."""
    why_replacing: str = ""
    ended: str = ""
    result: str = ""
    reason: str = ""
    """Reason of the failure, or, while the rollout is in progress, the reason why a pod couldn't load the model."""
    message: str = ""
    served: str = ""
    """Time at which a rollout of this revision last succeeded. If it is set, a later failed rollout may roll back to
    this revision."""
    barred: bool = False
    """Whether the rollout failed and the spec has requested no other revision since. If so, the rollout isn't
    retried."""
    slot: str = ""
    """Slot in which the revision's pods run. An empty value means slot `a`, which was the only slot before canaries
    existed."""
    step: int = 0
    """Index of the canary's current step, from 0."""
    step_at: str = ""
    """Time at which the canary's pods for the current step became ready."""
    weight: int = 0
    """Last known percentage of requests that were sent to the canary; 0 if unknown."""
    sequences: bool = False
    """Whether the model keeps state between requests. This is a property of the revision, so a new rollout keeps it."""

    @classmethod
    def of(cls, revision: Revision) -> RolloutRecord:
        """Return the rollout record of a revision.

        The record is empty if it was edited, or if this version can't read it.
        """
        return _read(revision.note or "{}")

    def on(self, revision: Revision) -> Revision:
        """Return the revision with this rollout record in its field `note`, from which the annotation is made."""
        values = {name: value for name, value in asdict(self).items() if value}
        return replace(revision, note=json.dumps(values, sort_keys=True, separators=(",", ":")) if values else "")

    def begin(self, now: float) -> RolloutRecord:
        """Return the record of a rollout that starts now."""
        return RolloutRecord(began=rfc3339(now), served=self.served, slot=self.slot, sequences=self.sequences)

    def finish(self, now: float, slot: Slot) -> RolloutRecord:
        """Return the record of a rollout that has ended with this revision served in `slot`."""
        at = rfc3339(now)
        place = "" if slot == SLOT_A else slot
        return RolloutRecord(
            self.began, ended=at, result=RolloutResult.SERVED, served=at, slot=place, sequences=self.sequences
        )

    def fail(self, now: float, reason: str, message: str) -> RolloutRecord:
        """Return the record of a rollout that fails now."""
        text = message[:MAX_TEXT_LENGTH]
        return replace(self, ended=rfc3339(now), result=RolloutResult.FAILED, reason=reason, message=text, barred=True)

    def with_load_error(self, reason: str, message: str) -> RolloutRecord:
        """Return the record with the reason why a pod couldn't load the model; an earlier reason is kept.

        The record keeps the reason because the pod's status may lose it when the pod restarts, before the rollout
        fails.
        """
        return self if self.reason else replace(self, reason=reason, message=message[:MAX_TEXT_LENGTH])

    def replace_pods(self, now: float, why: str) -> RolloutRecord:
        """Return the record of a rollout that removes old pods before new pods are ready (Replace) from now on."""
        return replace(self, replacing=rfc3339(now), why_replacing=why[:MAX_TEXT_LENGTH])

    def surge(self) -> RolloutRecord:
        """Return the record of a rollout that keeps old pods until new pods are ready (Surge)."""
        return replace(self, replacing="", why_replacing="")

    def leave(self, now: float, other: str) -> RolloutRecord:
        """Return the record of a rollout after the spec has requested another revision.

        A rollout in progress is superseded. A failed rollout may be retried later.
        """
        if self.began and not self.ended:
            text = f"the spec changed to revision {other}"
            return replace(self, ended=rfc3339(now), result=RolloutResult.SUPERSEDED, reason="", message=text)
        return replace(self, barred=False)


_REASONS = frozenset({"", *Reason})


@lru_cache(maxsize=4096)
def _read(note: str) -> RolloutRecord:
    """Parse an annotation that contains a rollout record. The result is cached: a reconcile needs it about 12 times."""
    try:
        raw = json.loads(note)
        values = {f.name: raw[f.name] for f in fields(RolloutRecord) if f.name in raw}
    except (ValueError, TypeError, RecursionError):
        return RolloutRecord()
    is_valid = all(type(value) is type(getattr(RolloutRecord, name)) for name, value in values.items())
    if not is_valid or values.get("step", 0) < 0:
        return RolloutRecord()
    if (reason := values.get("reason", "")) not in _REASONS:
        # A reason that only a later version has can't be shown in a condition. The result of the rollout stays in force.
        text = f"{reason}: {values.get('message', '')}"
        values |= {"reason": str(Reason.UNKNOWN), "message": text[:MAX_TEXT_LENGTH]}
    return RolloutRecord(**values)


def last_served(revisions: Iterable[Revision]) -> Revision | None:
    """Return the revision whose rollout succeeded last; None if none of them has ever been served."""
    served = [(record.served, r.number, r) for r in revisions if (record := RolloutRecord.of(r)).served]
    return max(served, key=lambda entry: entry[:2])[2] if served else None


def home_slot(revisions: Iterable[Revision]) -> Slot:
    """Return the home slot: the slot of the revision that was served last. Rollouts without a canary use it."""
    last = last_served(revisions)
    return Slot(RolloutRecord.of(last).slot or SLOT_A) if last else SLOT_A


def other_slot(slot: Slot) -> Slot:
    """Return the slot of a model that isn't `slot`."""
    return SLOT_B if slot == SLOT_A else SLOT_A
