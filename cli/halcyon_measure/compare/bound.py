"""Conditions such as `p99 > +5%`. A comparison fails if the confidence interval of the change shows that one holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halcyon_measure.compare.difference import FIGURES
from halcyon_measure.errors import SettingError
from halcyon_measure.results.sections.comparison import Bound, Comparison, Difference

_FORM = re.compile(r"\s*([a-z0-9]+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Condition:
    """Condition on the change of a figure; a comparison fails if it holds."""

    text: str
    figure: str
    is_above: bool
    change: float
    """Relative change; for example, 0.05 is an increase of 5 %."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition.

        Raises:
            SettingError: the text isn't of the form FIGURE > +N% or FIGURE < -N%, or the figure is unknown.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise SettingError(f"--fail-if {text!r}: it must be FIGURE > +N% or FIGURE < -N%, for example 'p99 > +5%'")
        if match[1] not in FIGURES:
            raise SettingError(f"--fail-if {text!r}: {match[1]} isn't compared; there are {', '.join(FIGURES)}")
        return cls(text.strip(), match[1], match[2] == ">", float(match[3]) / 100)

    def judge(self, differences: Sequence[Difference]) -> Bound:
        """Return the result of the condition.

        It counts as failed if the condition holds in the whole confidence interval of the change.
        """
        change = next((difference.change for difference in differences if difference.figure == self.figure), None)
        if change is None or change.value is None:
            reason = change.reason if change is not None else "it isn't in both results"
            return Bound(text=self.text, failed=False, evidence=f"{self.figure} wasn't compared: {reason}")
        if change.interval is None:
            return Bound(
                text=self.text, failed=False, evidence=f"{self.figure} changed by {change.value:+.1%}; {change.reason}"
            )
        low, high = change.interval
        return Bound(
            text=self.text,
            failed=low > self.change if self.is_above else high < self.change,
            evidence=f"{self.figure} changed by {change.value:+.1%} [{low:+.1%}, {high:+.1%}]",
        )


def is_passed(comparison: Comparison) -> bool:
    """Return whether every condition of a comparison could be decided, and none has failed.

    A condition that couldn't be decided counts as not passed, so that a pipeline doesn't pass without a comparison.
    """
    return not any(bound.failed or bound in comparison.undecided for bound in comparison.bounds)
