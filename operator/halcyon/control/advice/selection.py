"""Selection of the advice to show: advice that has applied for minutes, with the largest benefit first.

The selection changes at most once every ten minutes. Shown advice stays while the signals for its rule are unknown. It
is stored in the status, so that a new leader continues with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.advice.rules import RULES, AdviceFinding

HOLD_S = 540.0
"""Seconds for which a rule must apply before its advice is shown, and not apply before the advice is removed."""
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
    """Current state of each rule by name: whether it applies, and since when, in seconds since the epoch. Rules that
    neither apply nor are shown are left out."""

    def updated(self, now: float, opinions: Mapping[str, AdviceFinding | None]) -> AdviceSelection:
        """Return the selection, updated with new findings of the rules.

        `opinions` has the finding of each rule that has an opinion. A finding of None means that the rule doesn't
        apply.
        """
        since, shown = dict(self.since), {advice.rule: advice for advice in self.shown}
        for rule, finding in opinions.items():
            if finding is None and rule not in shown:
                since.pop(rule, None)
                continue
            applies, began_at = since.get(rule, (None, now))
            if applies is not (finding is not None):
                began_at = now
            since[rule] = (finding is not None, began_at)
            if now - began_at < HOLD_S:
                continue
            if finding is None:
                shown.pop(rule, None)
            elif rule not in shown or not _is_same(shown[rule].finding.value, finding.value):
                shown[rule] = Advice(rule, finding, shown[rule].since if rule in shown else began_at)
        order = list(_FIELDS)
        ranked = sorted(shown.values(), key=lambda advice: (-advice.finding.share, order.index(advice.rule)))
        selected = tuple(ranked[:MAX_ADVICE])
        if selected == self.shown or now - self.changed_at < WRITE_INTERVAL_S:
            return replace(self, since=since)
        return AdviceSelection(selected, now, since)


def _is_same(before: str, after: str) -> bool:
    first, second = (float("".join(char for char in text if char.isdigit() or char == ".")) for text in (before, after))
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


def write(advice: Advice, current: str | None) -> dict[str, object]:
    """Return a piece of advice as an entry of `status.advice`.

    `current` is the present value of the field in the spec; None if it isn't set.
    """
    finding = advice.finding
    return {
        "rule": advice.rule,
        "field": advice.field,
        **({} if current is None else {"currentValue": current}),
        "value": finding.value,
        "evidence": finding.evidence,
        "gain": finding.gain,
        "gainPercent": round(100 * finding.share),
        "since": rfc3339(advice.since),
    }
