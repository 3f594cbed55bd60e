"""Selection of the advice to show: advice that has applied for minutes, with the largest benefit first.

The selection changes rarely. A rule without an opinion changes nothing. The advice is stored in the status, so that a
new leader continues with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.advice.rules import RULES, AdviceFinding

HOLD_S = 540.0
"""Time for which a rule must apply before its advice is shown, or not apply before it is removed, in seconds."""
WRITE_INTERVAL_S = 600.0
"""Minimum time between two changes of the advice that is shown, in seconds."""
MAX_ADVICE = 5
_SAME = 0.25
"""Maximum relative difference between two advised values that count as the same advice."""
_FIELDS = {rule.name: rule.field for rule in RULES}


@dataclass(frozen=True, slots=True)
class Advice:
    """Finding of an advice rule, and the time since which the rule has applied, in seconds since the epoch."""

    rule: str
    finding: AdviceFinding
    since: float

    @property
    def field(self) -> str:
        """Return the field of the spec that the advice is about."""
        return _FIELDS[self.rule]


@dataclass(frozen=True, slots=True)
class AdviceSelection:
    """Advice that is shown for a model, and the time since which each rule has applied or not applied."""

    shown: tuple[Advice, ...] = ()
    changed_at: float = 0.0
    """Time at which `shown` was last changed, in seconds since the epoch."""
    since: Mapping[str, tuple[bool, float]] = field(default_factory=dict)
    """Whether each rule applies, and the time since which this has been so, in seconds since the epoch. The key is the
    rule's name. Rules that neither apply nor are shown are left out."""

    def updated(self, now: float, opinions: Mapping[str, AdviceFinding | None]) -> AdviceSelection:
        """Return the selection of advice after new findings of the rules.

        `opinions` has the finding of each rule that has an opinion. A finding of None means that the rule doesn't
        apply.
        """
        since, kept = dict(self.since), {advice.rule: advice for advice in self.shown}
        for rule, finding in opinions.items():
            if finding is None and rule not in kept:
                since.pop(rule, None)
                continue
            applies, begin = since.get(rule, (None, now))
            if applies is not (finding is not None):
                begin = now
            since[rule] = (finding is not None, begin)
            if now - begin < HOLD_S:
                continue
            if finding is None:
                kept.pop(rule, None)
            elif rule not in kept or not _is_same(kept[rule].finding.value, finding.value):
                kept[rule] = Advice(rule, finding, kept[rule].since if rule in kept else begin)
        order = list(_FIELDS)
        most = sorted(kept.values(), key=lambda one: (-one.finding.share, order.index(one.rule)))[:MAX_ADVICE]
        if tuple(most) == self.shown or now - self.changed_at < WRITE_INTERVAL_S:
            return replace(self, since=since)
        return AdviceSelection(tuple(most), now, since)


def _is_same(before: str, now: str) -> bool:
    first, second = (float("".join(char for char in text if char.isdigit() or char == ".")) for text in (before, now))
    return abs(second - first) <= _SAME * first


def read(status: object) -> AdviceSelection:
    """Return the selection of advice that is stored in `status.advice`. Entries that can't be read are left out."""
    shown = []
    for entry in status if isinstance(status, list) else ():
        try:
            finding = AdviceFinding(entry["value"], entry["evidence"], entry["gain"], int(entry["gainPercent"]) / 100)
            if entry["rule"] in _FIELDS and (at := epoch_seconds(entry["since"])) is not None:
                shown.append(Advice(entry["rule"], finding, at))
        except (KeyError, TypeError, ValueError):
            continue
    return AdviceSelection(tuple(shown))


def write(advice: Advice, now: str | None) -> dict[str, object]:
    """Return a piece of advice as an entry of `status.advice`.

    `now` is the present value of the field in the spec; None if it isn't set.
    """
    found = advice.finding
    return {
        "rule": advice.rule,
        "field": advice.field,
        **({} if now is None else {"currentValue": now}),
        "value": found.value,
        "evidence": found.evidence,
        "gain": found.gain,
        "gainPercent": round(100 * found.share),
        "since": rfc3339(advice.since),
    }
