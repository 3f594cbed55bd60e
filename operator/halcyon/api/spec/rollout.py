"""`spec.rollout`: how a new revision replaces the one that serves, and what becomes of one that fails."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.spec.fields import Documented
from halcyon.api.types import ListMap, Rule, duration_field


class CanaryStep(Documented):
    """One step of a canary."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Percent of the requests that the new revision gets, and as near to it as can be of the pods."""
    pause: duration_field("1s", "168h") = "5m"  # type: ignore[valid-type]
    """How long this step lasts at least, from when its pods are ready."""


class Canary(Documented):
    """How strategy `Canary` goes on."""

    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1, max_length=10), ListMap(("weight",))] | None = None
    """The steps, their weights rising. Left out: 5 % for 2m, 25 % for 5m, 50 % for 5m."""
    analysis: Literal["On", "Off"] = "On"
    """`On`: a step ends when its pause is over and the new revision was shown to be as good as the old one; one that is worse is gone
    back from at once. `Off`: a step ends with its pause."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.steps) || self.steps.map(s, s.weight).isSorted()",
            check=lambda m: [s.weight for s in m.steps or ()] == sorted(s.weight for s in m.steps or ()),
            message="the weights of spec.rollout.canary.steps must rise; for example 5, 25 and 50",
        ),
    )


class Rollout(Documented):
    """How a new revision takes over. A change of the count alone is none."""

    strategy: Literal["Auto", "Surge", "Replace", "Canary"] = "Auto"
    """`Surge`: a pod of the new revision is ready before one of the old goes, so it needs room for one pod more. `Replace`: one
    old pod goes first, and no other before the new revision is ready. `Auto`: Surge, and Replace once there was no room
    for surgeWait. `Canary`: the new revision gets a share of the pods and requests beside the old one, in steps."""
    surge_wait: duration_field("1s", "24h") = "1m"  # type: ignore[valid-type]
    """How long a pod of the new revision may find no room until `Auto` replaces, and until the others say that they are
    blocked."""
    on_failure: Literal["Rollback", "Stay"] = "Rollback"
    """What becomes of a revision of which no pod got ready within runtime.startupTimeout and a minute. `Rollback`: the one that
    was served before comes back, and the failed one isn't tried again until the spec changes. `Stay`: it is kept trying.
    A canary always goes."""
    canary: Canary | None = None
    """How strategy `Canary` goes on: its steps, and whether its answers are compared."""
