"""docs/quality/reliability.md: the goals R-1 to R-26, with what shows each and the number of cases so far.

    python -m benchmarks.hold.reliability

The goals are in `goals`, the trials of `make test-reliability` in docs/quality/data/reliability, and those of the campaigns in
docs/quality/data/hold.json. A goal is shown if each of its counts is reached, no trial has a problem, each figure is within its bound, and nothing
else is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.hold.goals import GOALS, Count, Goal
from benchmarks.quality.rows import PAGES, read, replace
from tests.faults.tested_code import MOST_CHANGED, load_codes
from tests.reliability.trials import FOLDER, Trial, load, tested

SHOWN, PART, NOT = "shown", "in part", "not"
_HEAD = ("goal", "fault and bound", "shown", "cases", "by", "stand-ins", "what is missing, and why")
_INTRODUCTION = f"""\
# Reliability goals R-1 to R-26

Written by `make test-reliability` from benchmarks/hold/goals.py and the results in docs/quality/data, not by hand. A goal is *shown* if its count
is reached without a problem and nothing else is missing, *in part* if tests show some of it, and *not* without a test. A trial counts while
at most {MOST_CHANGED:.0%} of the operator's modules differ from those that were tested. `per run` means that each run of the tests has as many cases.
Rows 2.1 to 3.1 are those of [hold.md](hold.md).
"""
_PROBLEMS = ("divergences", "unrecovered", "silent", "other problems")
"""Values of the rows of hold.json that count problems."""


@dataclass(frozen=True)
class Reached:
    """Cases of one count."""

    count: Count
    cases: float
    source: str
    """Where the cases are counted, in words."""
    problems: int = 0

    @property
    def is_enough(self) -> bool:
        """Return whether the count is reached without a problem."""
        return self.cases >= self.count.needed and not self.problems


@dataclass(frozen=True)
class Results:
    """Everything that was measured."""

    trials: Mapping[str, Sequence[Trial]]
    """Trials that count, by the name of their file."""
    rows: Mapping[str, Mapping[str, Any]]
    """Values of the rows of hold.json, by id."""


def reached(count: Count, results: Results) -> Reached:
    """Return the cases of a count so far."""
    if count.per_run is not None:
        return Reached(count, count.per_run, "per run")
    if count.trials:
        trials = [trial for name in count.trials for trial in results.trials.get(name, ())]
        cases = sum(trial.figures.get(count.figure, 1.0) for trial in trials)
        return Reached(count, cases, "trials", sum(bool(trial.problems) for trial in trials))
    row, name = count.row
    values = results.rows.get(row, {})
    return Reached(count, values.get(name) or 0, f"row {row}", sum(values.get(problem) or 0 for problem in _PROBLEMS))


def beyond(goal: Goal, results: Results) -> list[str]:
    """Return a sentence for each figure of which some trials are beyond its bound."""
    trials = [t for count in goal.counts for name in count.trials for t in results.trials.get(name, ())]
    sentences = []
    for bound in goal.limits:
        values = [trial.figures[bound.figure] for trial in trials if bound.figure in trial.figures]
        if values and max(values) > bound.largest:
            over = sum(value > bound.largest for value in values)
            sentences.append(
                f"{bound.figure} is over {bound.largest:g} in {over} of {len(values)}, {max(values):g} at most"
            )
    return sentences


def judged(goal: Goal, results: Results) -> tuple[str, list[str]]:
    """Return whether a goal is shown, and what is missing."""
    if not goal.tests:
        return NOT, [goal.missing or "there is no test"]
    missing = [goal.missing] if goal.missing else []
    for part in (reached(count, results) for count in goal.counts):
        if part.problems:
            missing.append(
                f"{part.problems} {part.source} of {part.count.cases} have a problem"
                if part.count.trials
                else f"{part.source} has {part.problems} problems"
            )
        if part.cases < part.count.needed:
            missing.append(f"{part.cases:g} of {part.count.needed} {part.count.cases}")
    missing += beyond(goal, results)
    return (PART if missing else SHOWN), missing


def figures(goal: Goal, results: Results) -> str:
    """Return the median and the largest value of each bounded figure."""
    trials = [t for count in goal.counts for name in count.trials for t in results.trials.get(name, ())]
    texts = []
    for name in sorted({name for trial in trials for name in trial.figures}):
        values = sorted(trial.figures[name] for trial in trials if name in trial.figures)
        texts.append(f"{name.replace('_', ' ')} {values[len(values) // 2]:g}, at most {values[-1]:g}")
    return "; ".join(texts)


def page(goals: Sequence[Goal], results: Results) -> str:
    """Return the page in Markdown."""
    lines = [" | ".join(("", *_HEAD, "")).strip(), "| " + " | ".join("---" for _ in _HEAD) + " |"]
    states = []
    for goal in goals:
        state, missing = judged(goal, results)
        states.append(state)
        parts = [reached(count, results) for count in goal.counts]
        cases = "; ".join(f"{p.cases:g} of {p.count.needed} {p.count.cases} ({p.source})" for p in parts)
        measured = figures(goal, results)
        cells = (
            goal.id,
            f"{goal.fault}: {goal.bound}",
            state,
            cases + (f". Measured: {measured}" if measured else ""),
            ", ".join(f"`{test}`" for test in goal.tests),
            goal.stand_ins,
            "; ".join(missing) or "nothing",
        )
        lines.append("| " + " | ".join(cells) + " |")
    sums = ", ".join(f"{states.count(state)} {state}" for state in (SHOWN, PART, NOT))
    return f"{_INTRODUCTION}\nSum: {sums}.\n\n" + "\n".join(lines) + "\n"


def measured() -> Results:
    """Return the results in the tree."""
    code, codes = tested(), load_codes(FOLDER)
    names = {name for goal in GOALS for count in goal.counts for name in count.trials}
    trials = {name: list(load(name).counting(codes, code).values()) for name in names}
    return Results(trials, {str(row["id"]): row["value"] for row in read("hold")})


def main() -> int:
    """Write the page."""
    replace(PAGES / "reliability.md", page(GOALS, measured()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
