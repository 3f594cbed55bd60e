"""What became of a revision: kept as an annotation of its record, so that it outlives the process and any lost status. Pure.

Why there and not in the status: a status can be lost (a restore from a backup leaves it out), and a reconcile trusts none.
The record lives as long as the revision can be gone back to, and the garbage collector takes it with the rest.
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
"""Characters that are kept of a reason: Triton's may be long."""


class RolloutResult(StrEnum):
    """How a rollout ended."""

    SERVED = "Served"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"
    """The spec asked for another revision before this one was reached."""


@dataclass(frozen=True)
class RolloutRecord:
    """The last rollout to a revision; times are RFC 3339 in whole seconds, empty where it hasn't come to that."""

    began: str = ""
    replacing: str = ""
    """Since when old pods go before new ones are ready; empty while it surges."""
    why_replacing: str = ""
    ended: str = ""
    result: str = ""
    reason: str = ""
    """Why it failed; while it is under way, why a pod of it said that it can't load the model."""
    message: str = ""
    served: str = ""
    """When every pod was of this revision and one was ready, the last time a rollout got there: it can be gone back to."""
    barred: bool = False
    """It failed, and the spec has asked for nothing else since: it isn't tried again."""
    slot: str = ""
    """Where its pods are; empty is `a`, the slot of all that came before canaries."""
    step: int = 0
    """Of a canary, from 0."""
    step_at: str = ""
    """When the pods of this step were ready."""
    weight: int = 0
    """Of a canary, the share of the requests, of 100, that it was last to have; 0 where that isn't known."""
    sequences: bool = False
    """The model keeps a state between requests: no rollout to it changes that."""

    @classmethod
    def of(cls, revision: Revision) -> RolloutRecord:
        """What is known of a revision. What can't be read is unknown: some other version's, or somebody's edit."""
        return _read(revision.note or "{}")

    def on(self, revision: Revision) -> Revision:
        """The revision with this as its note."""
        said = {name: value for name, value in asdict(self).items() if value}
        return replace(revision, note=json.dumps(said, sort_keys=True, separators=(",", ":")) if said else "")

    def begin(self, now: float) -> RolloutRecord:
        """A rollout to it begins."""
        return RolloutRecord(began=rfc3339(now), served=self.served, slot=self.slot, sequences=self.sequences)

    def finish(self, now: float, slot: Slot) -> RolloutRecord:
        """It is served in this slot."""
        at = rfc3339(now)
        place = "" if slot == SLOT_A else slot
        return RolloutRecord(
            self.began, ended=at, result=RolloutResult.SERVED, served=at, slot=place, sequences=self.sequences
        )

    def fail(self, now: float, reason: str, message: str) -> RolloutRecord:
        """It didn't get there."""
        text = message[:MAX_TEXT_LENGTH]
        return replace(self, ended=rfc3339(now), result=RolloutResult.FAILED, reason=reason, message=text, barred=True)

    def hear(self, reason: str, message: str) -> RolloutRecord:
        """A pod of it has said that it can't load the model; by the time it is given up it may be silent, in a restart."""
        return self if self.reason else replace(self, reason=reason, message=message[:MAX_TEXT_LENGTH])

    def replace_pods(self, now: float, why: str) -> RolloutRecord:
        """Old pods go before new ones are ready, from now on."""
        return replace(self, replacing=rfc3339(now), why_replacing=why[:MAX_TEXT_LENGTH])

    def surge(self) -> RolloutRecord:
        """Old pods stay until new ones are ready."""
        return replace(self, replacing="", why_replacing="")

    def leave(self, now: float, other: str) -> RolloutRecord:
        """The spec asks for another revision now: a failure is forgiven, and what was under way has ended."""
        if self.began and not self.ended:
            text = f"the spec asked for revision {other}"
            return replace(self, ended=rfc3339(now), result=RolloutResult.SUPERSEDED, reason="", message=text)
        return replace(self, barred=False)


_REASONS = frozenset({"", *Reason})


@lru_cache(maxsize=4096)
def _read(note: str) -> RolloutRecord:
    """A reconcile asks for the same trail a dozen times."""
    try:
        raw = json.loads(note)
        given = {f.name: raw[f.name] for f in fields(RolloutRecord) if f.name in raw}
    except (ValueError, TypeError, RecursionError):
        return RolloutRecord()
    good = all(type(value) is type(getattr(RolloutRecord, name)) for name, value in given.items())
    # A reason of a later version has no condition here.
    good = good and given.get("step", 0) >= 0 and given.get("reason", "") in _REASONS
    return RolloutRecord(**given) if good else RolloutRecord()


def last_good(revisions: Iterable[Revision], asked: Revision) -> Revision | None:
    """The newest other revision that was served once."""
    served = [r for r in revisions if r.key != asked.key and RolloutRecord.of(r).served]
    return max(served, key=lambda r: r.number, default=None)


def home(revisions: Iterable[Revision]) -> Slot:
    """The slot of the revision that was served last: where a rollout without a canary takes place."""
    trails = [(trail.served, r.number, trail.slot) for r in revisions if (trail := RolloutRecord.of(r)).served]
    return Slot(max(trails)[2] or SLOT_A) if trails else SLOT_A


def away(slot: Slot) -> Slot:
    """The other slot."""
    return SLOT_B if slot == SLOT_A else SLOT_A
