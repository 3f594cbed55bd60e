"""Counts of the requests of a long run, from which its document can be built without one row per request.

Pure, except for its file.

Latencies are also counted by the second in which their requests became due, for the timeline and the intervals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.results.columns import Columns, Floats, Integers
from halcyon_measure.results.durations import BINS, Durations, bins_of, middles

PARTS: Mapping[str, Callable[[Columns], Floats]] = {
    "latency": lambda columns: columns.finished - columns.due,
    "from_send": lambda columns: columns.done - columns.sent,
    "first_byte": lambda columns: columns.first_byte - columns.due,
    "ready": lambda columns: columns.prepared - columns.due,
    "prepare": lambda columns: columns.prepared - columns.due - columns.encode,
    "serialise": lambda columns: columns.encode,
    "late": lambda columns: columns.sent - columns.prepared,
    # A server may answer before it has read the whole body. Sending then ends with the answer.
    "send": lambda columns: np.minimum(columns.written, columns.first_byte) - columns.sent,
    "receive": lambda columns: columns.done - columns.first_byte,
    "decode": lambda columns: columns.decode,
    "finish": lambda columns: columns.finished - columns.done - columns.decode,
}
"""Functions that compute the durations of answered requests, by name."""
_ALL = "late_of_all"
"""Name for the sending delays of all sent requests, including failed requests."""
_NAMES = (*PARTS, _ALL)
_COMPACT = 1_000_000


class Folded:
    """Counts of requests. The indices of messages and pods refer to the lists of the process that counted them."""

    def __init__(self, good_within_s: float = math.inf) -> None:
        """Create empty counts. Answers with a latency up to `good_within_s` count as good."""
        self.good_within_s = good_within_s
        self._counts = np.zeros((len(_NAMES), BINS), dtype=np.int64)
        self._totals, self._largest = np.zeros(len(_NAMES)), np.zeros(len(_NAMES))
        self._unknown = np.zeros(len(_NAMES), dtype=np.int64)
        self.outcomes: Counter[int] = Counter()
        self.failures: dict[tuple[int, int], tuple[int, float, float]] = {}
        """Number of failures, and first and last due time, by (outcome, index of the message)."""
        self.pods: Counter[int] = Counter()
        self.rows = 0
        self.least_rows, self.most_rows = math.inf, 0.0
        self.last_done_s = self.last_due_s = 0.0
        self.due_by_second: Integers = np.zeros(0, dtype=np.int64)
        self.good_by_second: Integers = np.zeros(0, dtype=np.int64)
        self._cells: list[tuple[Integers, Integers]] = []

    def __len__(self) -> int:
        return sum(self.outcomes.values())

    def add(self, columns: Columns) -> None:
        """Add the requests in these columns to the counts."""
        answered = columns.outcome == Outcome.ANSWERED
        answers = columns.select(answered)
        for index, name in enumerate(_NAMES):
            if name == _ALL:
                late = columns.sent - columns.prepared
                self._count(index, late[np.isfinite(late)])
            else:
                self._count(index, PARTS[name](answers))
        self.outcomes.update(columns.outcome.tolist())
        self.pods.update(answers.pod[answers.pod >= 0].tolist())
        self.rows += int(answers.rows.sum())
        if len(answers):
            self.least_rows = min(self.least_rows, float(answers.rows.min()))
            self.most_rows = max(self.most_rows, float(answers.rows.max()))
        if len(columns):
            self.last_done_s = max(self.last_done_s, float(np.nanmax(columns.done)))
            self.last_due_s = max(self.last_due_s, float(columns.due[-1]))
        failed = columns.select(~answered)
        for outcome, kind, due in zip(failed.outcome.tolist(), failed.kind.tolist(), failed.due.tolist(), strict=True):
            self._fail((outcome, kind), (1, due, due))
        self.due_by_second = _sum(self.due_by_second, _by_second(columns.due))
        latency = answers.finished - answers.due
        self.good_by_second = _sum(self.good_by_second, _by_second(answers.due[latency <= self.good_within_s]))
        cells = np.floor(np.clip(answers.due, 0, None)).astype(np.int64) * BINS + bins_of(latency)
        self._cells.append((cells, np.ones(len(cells), dtype=np.int64)))
        if sum(len(block) for block, _ in self._cells) > _COMPACT:
            self._compact()

    def merged(self, other: Folded, kinds: Sequence[int], pods: Sequence[int]) -> None:
        """Add the counts of another process. `kinds` and `pods` translate its indices of messages and pods."""
        self._counts += other._counts
        self._totals += other._totals
        self._largest = np.maximum(self._largest, other._largest)
        self._unknown += other._unknown
        self.outcomes.update(other.outcomes)
        for (outcome, kind), failure in other.failures.items():
            self._fail((outcome, kinds[kind]), failure)
        self.pods.update({pods[pod]: count for pod, count in other.pods.items()})
        self.rows += other.rows
        self.least_rows = min(self.least_rows, other.least_rows)
        self.most_rows = max(self.most_rows, other.most_rows)
        self.last_done_s = max(self.last_done_s, other.last_done_s)
        self.last_due_s = max(self.last_due_s, other.last_due_s)
        self.due_by_second = _sum(self.due_by_second, other.due_by_second)
        self.good_by_second = _sum(self.good_by_second, other.good_by_second)
        self._cells += other._cells

    def durations(self, name: str) -> Durations:
        """Return the durations with this name: one of `PARTS`, or `_ALL`."""
        index = _NAMES.index(name)
        return Durations(
            int(self._counts[index].sum()),
            float(self._totals[index]),
            float(self._largest[index]),
            is_known=not self._unknown[index],
            counts=self._counts[index],
        )

    @property
    def late_of_all(self) -> Durations:
        """Delays from prepared to sent, of all sent requests."""
        return self.durations(_ALL)

    def latency_by_second(self) -> tuple[Integers, Integers, Integers]:
        """Return three arrays, sorted by second and bin: second, bin of the latency, and number of requests."""
        self._compact()
        cells, counts = self._cells[0]
        second, bins = np.divmod(cells, BINS)
        return second, bins, counts

    def save(self, path: Path, *, messages: Sequence[str], pods: Sequence[str]) -> None:
        """Write a compressed .npz file with the counts of each duration by bin, and the bins' middles in seconds."""
        self._compact()
        failures = [(*key, *failure) for key, failure in sorted(self.failures.items())]
        with path.open("wb") as stream:
            np.savez_compressed(
                stream,
                durations=np.array(_NAMES, dtype=str),
                bins_s=middles(np.arange(BINS)),
                counts=self._counts,
                totals_s=self._totals,
                largest_s=self._largest,
                unknown=self._unknown,
                outcomes=np.array(sorted(self.outcomes.items()), dtype=np.int64).reshape(-1, 2),
                failures=np.array(failures, dtype=np.float64).reshape(-1, 5),
                answers_by_pod=np.array(sorted(self.pods.items()), dtype=np.int64).reshape(-1, 2),
                facts=np.array([self.rows, self.last_done_s, self.good_within_s, self.last_due_s]),
                rows_range=np.array([self.least_rows, self.most_rows]),
                due_by_second=self.due_by_second,
                good_by_second=self.good_by_second,
                cells=self._cells[0][0],
                cell_counts=self._cells[0][1],
                messages=np.array(messages, dtype=str),
                pods=np.array(pods, dtype=str),
            )

    @classmethod
    def load(cls, path: Path) -> tuple[Self, list[str], list[str]] | None:
        """Read a file that `save` has written, and return (counts, messages, pods).

        The result is None if the file contains columns instead.
        """
        with np.load(path, allow_pickle=False) as stored:
            if "bins_s" not in stored.files:
                return None
            folded = cls(float(stored["facts"][2]))
            folded._counts, folded._totals, folded._largest = stored["counts"], stored["totals_s"], stored["largest_s"]
            folded._unknown = stored["unknown"]
            folded.outcomes = Counter(dict(stored["outcomes"].tolist()))
            folded.failures = {
                (int(outcome), int(kind)): (int(count), first, last)
                for outcome, kind, count, first, last in stored["failures"].tolist()
            }
            folded.pods = Counter(dict(stored["answers_by_pod"].tolist()))
            rows, folded.last_done_s, _, folded.last_due_s = stored["facts"].tolist()
            folded.rows = int(rows)
            folded.least_rows, folded.most_rows = stored["rows_range"].tolist()
            folded.due_by_second, folded.good_by_second = stored["due_by_second"], stored["good_by_second"]
            folded._cells = [(stored["cells"], stored["cell_counts"])]
            return folded, stored["messages"].tolist(), stored["pods"].tolist()

    def _count(self, index: int, values: Floats) -> None:
        finite = values[np.isfinite(values)]
        self._unknown[index] += len(values) - len(finite)
        if len(finite):
            self._counts[index] += np.bincount(bins_of(finite), minlength=BINS)
            self._totals[index] += finite.sum()
            self._largest[index] = max(self._largest[index], finite.max())

    def _fail(self, key: tuple[int, int], failure: tuple[int, float, float]) -> None:
        count, first, last = self.failures.get(key, (0, math.inf, -math.inf))
        self.failures[key] = count + failure[0], min(first, failure[1]), max(last, failure[2])

    def _compact(self) -> None:
        """Merge cells with the same second and bin by adding their counts."""
        if not self._cells:
            self._cells = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
        cells, group = np.unique(np.concatenate([block for block, _ in self._cells]), return_inverse=True)
        counts = np.bincount(group, weights=np.concatenate([block for _, block in self._cells]), minlength=len(cells))
        self._cells = [(cells, counts.astype(np.int64))]


def _by_second(due: Floats) -> Integers:
    return np.bincount(np.floor(np.clip(due, 0, None)).astype(np.int64)) if len(due) else np.zeros(0, dtype=np.int64)


def _sum(first: Integers, second: Integers) -> Integers:
    """Return the sum of two arrays of counts by second, which may have different lengths."""
    total = np.zeros(max(len(first), len(second)), dtype=np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total
