"""What the scaler keeps of one model from one decision to the next."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field

from halcyon.control.objects.actuator import Actuator
from halcyon.kube.kinds import Key
from halcyon.scaling.policy import decision
from halcyon.scaling.policy.decision import Change, Decision

MOVED_FOR_S = 2.0
"""Values that have moved are told after this long: where a count follows from them, with that."""


@dataclass(slots=True)
class PublishedDecision:
    """What the status was told last. Times are monotonic, in seconds."""

    at: float
    verdict: Decision
    rival: str
    moved: float = math.inf
    """Since when values are others."""


@dataclass(slots=True)
class ModelState:
    """One model that is decided for. Times are monotonic, in seconds."""

    key: Key
    due: float
    """When it is looked at again at the latest."""
    actuator: Actuator = Actuator.NONE
    """What writes its count; NONE until a reconcile has told it."""
    heard: bool = False
    """Whether an agent has spoken since the last decision."""
    confirmed: bool = False
    """Whether what it said confirms what it had seen right before: growth that counts now."""
    tried: float = -math.inf
    """When it was decided for last, or was to be and couldn't."""
    decided: float = -math.inf
    """When the verdict was made."""
    verdict: Decision | None = None
    rival: str = ""
    """Who else writes the count, in a sentence."""
    shown: PublishedDecision | None = None
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=decision.KEPT))
    """The newest first."""
    raised: int = 0
    """How often the count asked for was raised,"""
    lowered: int = 0
    """and lowered, while this replica led."""
    writing: asyncio.Task[None] | None = None
    untold: bool = False
    """Whether the status has news to tell that wait for the count to be written."""

    def is_news(self, made: Decision, rival: str, now: float, every_s: float) -> bool:
        """Whether the status has to be told: at once where counts change, else where a value has moved for good, and not too often."""
        told = self.shown
        if told is None:
            return True
        before = told.verdict
        if (made.current, made.desired, bool(made.unknown), rival) != (
            before.current,
            before.desired,
            bool(before.unknown),
            told.rival,
        ):
            return True
        told.moved = min(now, told.moved) if decision.is_news(before, made) else math.inf
        return now - told.at >= every_s and now - told.moved >= MOVED_FOR_S

    def may_be_decided(self, now: float, spacing_s: float) -> bool:
        """Whether what its agents say may be looked at now.

        Sooner where one confirms growth, and at zero: somebody waits for it, and agents say little then.
        """
        is_empty = self.verdict is not None and self.verdict.current == 0
        return self.confirmed or is_empty or now - self.tried >= spacing_s

    def asked(self, made: Decision) -> int | None:
        """The count that a verdict asks for; where an HPA decides, the one that it has written."""
        return made.current if made.desired is None and self.actuator is Actuator.HPA else made.desired
