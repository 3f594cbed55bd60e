"""Section about the planner's learning parts on the page with the table.

This module creates its text, and puts it between two markers.

Both `make bench-scaling` and `make bench-ablation` write the page, and each keeps the sections of the other. Out of
scope: the runs (`ablation`), and the rest of the page (`page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_BEGIN, _END = "<!-- make bench-ablation: begin -->", "<!-- make bench-ablation: end -->"
_NEXT = "## Pictures"
"""Heading before which the section is inserted if the page doesn't have it yet."""
_FIGURES = ("violations, points", "GPU ratio", "changes of direction per h")
_TITLES = (
    "Violations, in % and points",
    "GPU time over that of the clairvoyant schedule",
    "Changes of direction per hour",
)
_THRESHOLDS = (0.1, 0.01, 0.5)
"""Largest difference of each figure for which two results for a scenario still count as equal. Violations: a tenth of
those that a p99 objective allows. GPU time: a hundredth of that of the clairvoyant schedule. Changes of direction: one
in two hours."""
_DIGITS = (2, 2, 1)


@dataclass(frozen=True)
class LearningPart:
    """Description of a learning part of the planner for the page."""

    module: str
    """Name of the module in `halcyon.scaling.planner`."""
    learns: str
    off: str
    """Description of the planner's behaviour without the part."""


PARTS: Mapping[str, LearningPart] = {
    "plausibility": LearningPart(
        "plausibility",
        "when signals are too old, missing or stuck to act on",
        "every reading counts: a missing value as the last known one, an old one as 10 s old, a stuck counter as no load",
    ),
    "damping": LearningPart(
        "forecast.trend_damping",
        "share of a rise that is expected to continue",
        "every proven rise is expected to continue in full",
    ),
    "headroom": LearningPart(
        "headroom",
        "how far the load exceeds its forecasts",
        "no headroom is added to the rate",
    ),
    "dispersion": LearningPart(
        "forecast.dispersion",
        "variance over mean of the arrivals",
        "arrivals count as Poisson arrivals from the first second on",
    ),
    "rejections": LearningPart(
        "capacity.bounded_queue",
        "bound of the queue if balancers reject requests",
        "the queue counts as unlimited",
    ),
    "zero": LearningPart(
        "scale_to_zero",
        "idle time before zero, longer if scaling to zero cost more than it saved",
        "the model scales to zero after `idleAfter` every time",
    ),
    "hold": LearningPart(
        "scale_down_hold",
        "how long a need is kept",
        "nothing is held for the load: it is released as soon as it isn't needed",
    ),
    "patience": LearningPart(
        "scale_down_hold",
        "that time's length alone",
        "a need is kept for one start, a minute at least, whatever the load has shown",
    ),
    "spikes": LearningPart(
        "forecast.recurring_spikes",
        "spikes that recur, and their times",
        "no spike is remembered or expected",
    ),
    "season": LearningPart(
        "forecast.seasonality",
        "usual load at this time of day or week",
        "no season is learnt",
    ),
}
"""Learning parts of the planner, by their names in `policies.ablation.NEUTRAL`."""

Figures = tuple[float, float, float]
"""Figures of a scenario, each as a mean over the seeds. They are violations in percent, GPU time divided by that of the
clairvoyant schedule, and changes of direction per hour."""


@dataclass(frozen=True)
class Column:
    """Results of one policy, which is the whole planner or the planner without one part."""

    figures: Mapping[str, Figures]
    """Figures of the policy, by scenario."""
    wrong: int
    """Number of wrong scalings in scenario S9."""


@dataclass(frozen=True)
class Ablation:
    """Results of all runs of the ablation."""

    planner: Column
    """Results of the whole planner, without Halcyon's balancer."""
    installed: Column
    """Results of the whole planner with Halcyon's balancer."""
    without: Mapping[str, Column]
    """Results of the planner without one part, by the name of this part."""

    def reference(self, part: str) -> Column:
        """Return the whole planner's results to compare with the results without a learning part."""
        return self.installed if part in BEHIND_BALANCER else self.planner

    def changes(self, part: str) -> dict[str, Figures]:
        """Return how much each figure changes if a learning part is switched off, by scenario."""
        reference = self.reference(part).figures
        return {
            name: (a - reference[name][0], b - reference[name][1], c - reference[name][2])
            for name, (a, b, c) in self.without[part].figures.items()
        }


BEHIND_BALANCER = frozenset({"rejections"})
"""Learning parts that are tested with Halcyon's own balancer, because other balancers reject no requests."""


def counts(changes: Sequence[float], threshold: float) -> tuple[int, int, int]:
    """Return how many changes are worse, better or neither, as (worse, better, neither).

    A change above `threshold` is worse, and a change below -`threshold` is better.
    """
    worse = sum(change > threshold for change in changes)
    better = sum(change < -threshold for change in changes)
    return worse, better, len(changes) - worse - better


def existing_lines(path: Path) -> list[str]:
    """Return the lines of the section in a page, so that the next version of the page can keep them.

    The result is empty if the page has no such section.
    """
    begin, section = _find_section(path.read_text() if path.exists() else "")
    return [*section.splitlines(), ""] if begin >= 0 else []


def write(ablation: Ablation, path: Path, *, seeds: str) -> None:
    """Write the section to a page.

    It replaces an older section, if there is one. Otherwise it is inserted before the pictures, or else at the end.
    """
    text = path.read_text() if path.exists() else ""
    begin, former = _find_section(text)
    section = "\n".join([_BEGIN, *_lines(ablation, seeds=seeds), _END])
    if begin >= 0:
        text = text[:begin] + section + text[begin + len(former) :]
    else:
        head, _, tail = text.partition(f"{_NEXT}\n")
        text = f"{head}{section}\n" + (f"\n{_NEXT}\n{tail}" if tail else "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _find_section(text: str) -> tuple[int, str]:
    """Return the offset of the section and its text, including the markers.

    The offset is -1 if the page has no such section.
    """
    begin, end = text.find(_BEGIN), text.find(_END)
    return (begin, text[begin : end + len(_END)]) if 0 <= begin < end else (-1, "")


def _lines(ablation: Ablation, *, seeds: str) -> list[str]:
    worse, ratio, turns = _THRESHOLDS
    text = [
        "## What each part of the planner is worth",
        "",
        "Written by `make bench-ablation` from simulated runs with law L1 and starts of 60 s; build/bench/ablation.json has the same numbers",
        "for machines. Each part of the planner that learns is switched off by itself, as with `--policy halcyon:without=headroom` in",
        f"`halcyon simulate`. Every figure is a mean over seeds ({seeds}). A change is the figure without the part minus the",
        "figure of the whole planner, on the same seeds: above 0 the part is of use. S9 is the mean of its 35 cases.",
        f"{_listed(sorted(BEHIND_BALANCER))} is compared behind Halcyon's own balancer (`halcyon+balancer`), because no other rejects requests.",
        "",
        f"A scenario is worse or better without a part if the change is above {worse:g} points of violations, {ratio:g} of the GPU ratio",
        f"or {turns:g} changes of direction per hour; else it is equal. The columns show worse / better / equal, and the mean change over the",
        "scenarios. Changes to less GPU time at more violations, and the reverse, are one better and one worse.",
        "",
    ]
    rows = []
    for part, description in PARTS.items():
        if part not in ablation.without:
            continue
        changes = list(ablation.changes(part).values())
        cells = []
        for index, threshold in enumerate(_THRESHOLDS):
            values = [change[index] for change in changes]
            mean = _signed(sum(values) / len(values), _DIGITS[index])
            cells.append(f"{' / '.join(map(str, counts(values, threshold)))}; {mean}")
        wrong = f"{ablation.without[part].wrong} ({ablation.reference(part).wrong})"
        rows.append([f"`{part}`", f"`{description.module}`: {description.learns}", description.off, *cells, wrong])
    head = ["part", "module, and what it learns", "without it", *_FIGURES, "wrong scalings in S9 (whole)"]
    text += _table(head, rows)
    for index, title in enumerate(_TITLES):
        text += [f"### {title}", "", *_by_scenario(ablation, index)]
    return text[:-1]


def _by_scenario(ablation: Ablation, index: int) -> list[str]:
    """Return a table of one figure: the value of the whole planner, and the change without each part."""
    alone = [part for part in ablation.without if part not in BEHIND_BALANCER]
    behind = [part for part in ablation.without if part in BEHIND_BALANCER]
    digits = _DIGITS[index]
    rows = []
    for name, figures in ablation.planner.figures.items():
        row = [name, f"{figures[index]:.{digits}f}"]
        row += [_signed(ablation.changes(part)[name][index], digits) for part in alone]
        if behind:
            row.append(f"{ablation.installed.figures[name][index]:.{digits}f}")
            row += [_signed(ablation.changes(part)[name][index], digits) for part in behind]
        rows.append(row)
    head = ["scenario", "whole", *(f"`{part}`" for part in alone)]
    return _table([*head, "as installed", *(f"`{part}`" for part in behind)] if behind else head, rows)


def _signed(value: float, digits: int) -> str:
    """Return a change as text with its sign; `0` if the change is rounded to 0."""
    text = f"{value:+.{digits}f}"
    return "0" if float(text) == 0 else text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]
