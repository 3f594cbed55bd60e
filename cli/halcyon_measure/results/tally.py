"""Counts and durations of a run's requests for its document, computed from all requests or from their counts. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results import statistics
from halcyon_measure.results.columns import Columns, Integers
from halcyon_measure.results.durations import Durations, middles
from halcyon_measure.results.folded import PARTS, Folded
from halcyon_measure.results.run import Run
from halcyon_measure.results.statistics import Blocks


@dataclass(frozen=True)
class FailureCount:
    """Number of failures with the same outcome and message, and their times."""

    outcome: Outcome
    kind: int
    """Index of the message in the list of the run."""
    count: int
    first_s: float
    last_s: float


@dataclass(frozen=True)
class SecondCount:
    """Counts of the requests that became due in one second. Latencies are in seconds; None without answers."""

    due: int
    answered: int
    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True)
class Tally:
    """Counts and durations of a run's requests."""

    due: int
    outcomes: Counter[int]
    good: int | None
    """Number of answers within the objective; None if there is no objective."""
    good_by_second: Integers
    answering_s: float
    """Time in seconds in which the answers of a schedule arrived. It is the length of the run unless the server fell
    behind."""
    rows: int
    """Number of rows in the answered requests."""
    answered: Mapping[str, Durations]
    """Durations of the answered requests, by the names in `folded.PARTS`."""
    late: Durations
    """Delays from prepared to sent, of all sent requests."""
    blocks: Blocks | None
    """Answers by second, for the interval of a rate; None if the times at which they ended are unknown."""
    latency_blocks: Blocks | None
    """Latencies by second, for the intervals of percentiles; None if all requests were due at the same time."""
    failures: tuple[FailureCount, ...]
    seconds: tuple[SecondCount, ...]
    pods: Counter[int]
    """Number of answers of each pod, by the index of the pod."""
    is_folded: bool

    @property
    def answer_count(self) -> int:
        """Number of answered requests."""
        return self.outcomes[Outcome.ANSWERED]


def of(run: Run, objective_s: float | None, *, is_at_once: bool = False) -> Tally:
    """Return the tally of a run. It counts good answers if a latency objective, in seconds, is given.

    `is_at_once` is True if all requests were due at the beginning. Answers are then counted by the second in which they
    ended, because all requests are due in the same second.
    """
    if run.folded is not None:
        return _of_counts(run, run.folded, objective_s, is_at_once=is_at_once)
    return _of_columns(run, objective_s, is_at_once=is_at_once)


def outcomes(run: Run) -> Counter[int]:
    """Return the number of requests by outcome."""
    return Counter(run.columns.outcome.tolist()) if run.folded is None else run.folded.outcomes


def answered(run: Run) -> dict[str, Durations]:
    """Return the durations of the answered requests, by the names in `folded.PARTS`."""
    if run.folded is not None:
        return {name: run.folded.durations(name) for name in PARTS}
    answers = run.columns.select(run.columns.outcome == Outcome.ANSWERED)
    return {name: Durations.of(part(answers)) for name, part in PARTS.items()}


def _of_columns(run: Run, objective_s: float | None, *, is_at_once: bool) -> Tally:
    columns, length_s = run.columns, run.measured_s
    mask = columns.outcome == Outcome.ANSWERED
    answers = columns.select(mask)
    latency = answers.finished - answers.due
    is_good = latency <= (math.inf if objective_s is None else objective_s)
    at_s = answers.finished if is_at_once else answers.due
    blocks = Blocks(at_s, latency, length_s)
    return Tally(
        due=len(columns),
        outcomes=outcomes(run),
        good=None if objective_s is None else int(np.count_nonzero(is_good)),
        good_by_second=statistics.per_second(at_s, length_s, is_good),
        answering_s=statistics.answering_s(answers.due, latency, length_s),
        rows=int(answers.rows.sum()),
        answered=answered(run),
        late=Durations.of((columns.sent - columns.prepared)[np.isfinite(columns.sent)]),
        blocks=blocks,
        latency_blocks=None if is_at_once else blocks,
        failures=_failures(columns),
        seconds=_seconds(columns, length_s),
        pods=Counter(answers.pod.tolist()),
        is_folded=False,
    )


def _of_counts(run: Run, folded: Folded, objective_s: float | None, *, is_at_once: bool) -> Tally:
    length_s = run.measured_s
    second, bins, counts = folded.latency_by_second()
    length = max(math.floor(length_s), 1)
    blocks = None if is_at_once else Blocks(second.astype(np.float64), middles(bins), length_s, counts=counts)
    return Tally(
        due=len(folded),
        outcomes=folded.outcomes,
        good=None if objective_s is None else int(folded.good_by_second.sum()),
        good_by_second=_within(folded.good_by_second, length),
        answering_s=statistics.answering_s(second.astype(np.float64), middles(bins), length_s, counts=counts),
        rows=folded.rows,
        answered=answered(run),
        late=folded.late_of_all,
        blocks=blocks,
        latency_blocks=blocks,
        failures=tuple(
            FailureCount(Outcome(outcome), kind, *failure)
            for (outcome, kind), failure in sorted(folded.failures.items())
        ),
        seconds=_counted_seconds(folded, length_s),
        pods=folded.pods,
        is_folded=True,
    )


def _within(by_second: Integers, length: int) -> Integers:
    """Return the counts of the first `length` seconds.

    Later counts are added to the last of these seconds, as in `statistics.per_second`.
    """
    counts = np.zeros(length, dtype=np.int64)
    np.add.at(counts, np.minimum(np.arange(len(by_second)), length - 1), by_second)
    return counts


def _failures(columns: Columns) -> tuple[FailureCount, ...]:
    failures = []
    failed = columns.outcome != Outcome.ANSWERED
    for outcome in Outcome:
        for kind in np.unique(columns.kind[failed & (columns.outcome == outcome)]).tolist():
            due = columns.due[(columns.outcome == outcome) & (columns.kind == kind)]
            failures.append(FailureCount(outcome, kind, len(due), float(due.min()), float(due.max())))
    return tuple(failures)


def _seconds(columns: Columns, length_s: float) -> tuple[SecondCount, ...]:
    count = math.ceil(length_s)
    # The last arrival of a trace is due at the end, which belongs to the last second.
    second = np.minimum(np.floor(columns.due).astype(np.int64), count - 1)
    bounds = np.searchsorted(second, np.arange(count + 1))
    answered = columns.outcome == Outcome.ANSWERED
    seconds = []
    for first, last in itertools.pairwise(bounds.tolist()):
        mask = answered[first:last]
        latency = (columns.finished[first:last] - columns.due[first:last])[mask]
        p50, p99 = statistics.percentile(latency, 0.5), statistics.percentile(latency, 0.99)
        seconds.append(SecondCount(int(last - first), int(mask.sum()), p50, p99))
    return tuple(seconds)


def _counted_seconds(folded: Folded, length_s: float) -> tuple[SecondCount, ...]:
    second, bins, counts = folded.latency_by_second()
    count = math.ceil(length_s)
    bounds = np.searchsorted(np.minimum(second, count - 1), np.arange(count + 1))
    due = _within(folded.due_by_second, count).tolist()
    seconds = []
    for number, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        order = first + np.argsort(bins[first:last], kind="stable")
        sums = np.cumsum(counts[order])
        answered = int(sums[-1]) if len(sums) else 0
        p50, p99 = (_percentile(bins[order], sums, share) for share in (0.5, 0.99))
        seconds.append(SecondCount(due[number], answered, p50, p99))
    return tuple(seconds)


def _percentile(bins: Integers, sums: Integers, share: float) -> float | None:
    if not len(sums):
        return None
    rank = max(math.ceil(share * int(sums[-1]) - 1e-9) - 1, 0)
    return float(middles(bins[[int(np.searchsorted(sums, rank, side="right"))]])[0])
