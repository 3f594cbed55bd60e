"""Recorder of the requests of one process: their rows, and a summary of the last second."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median, quantiles

from halcyon_measure.protocols.reply import Outcome, Reply
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded

MAX_MESSAGES = 64
"""Maximum number of different failure messages that are kept. All further messages are recorded as the last one,
`other`."""
OTHER = "other messages"
CHUNK = 500
"""Number of requests that are converted to columns at once, which takes less than a millisecond."""


@dataclass
class Second:
    """Counts of the requests that ended in the last second, for progress and for detecting the end of the warm-up."""

    answered: int = 0
    failed: int = 0
    late: int = 0
    """Number of answers whose latency exceeded `late_after_s`."""
    latencies_s: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the counts, the median latency and its interquartile range in JSON form."""
        self.latencies_s.sort()  # once for both
        middle = median(self.latencies_s) if self.latencies_s else None
        low, _, high = quantiles(self.latencies_s) if len(self.latencies_s) > 1 else (0.0, 0.0, 0.0)
        return {
            "answered": self.answered,
            "failed": self.failed,
            "late": self.late,
            "median_s": middle,
            "spread_s": high - low,
        }


@dataclass
class Recorder:
    """Recorder of the requests that become due at or after `measured_from`, in seconds of the monotonic clock."""

    measured_from: float = math.inf
    late_after_s: float = math.inf
    """Latency in seconds above which an answer counts as late in the summary of a second."""
    good_within_s: float = math.inf
    """Latency in seconds up to which an answer counts as good, for requests that are stored as counts."""
    fold_above: float = math.inf
    """Number of requests above which requests are stored as counts instead of rows."""
    rows: list[tuple[float, ...]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    second: Second = field(default_factory=Second)
    warm_up: int = 0
    """Number of warm-up requests that have ended."""
    _chunks: deque[Columns] = field(default_factory=deque)
    _chunked_rows: int = 0
    """Number of requests that were converted to chunks of columns."""
    _folded: Folded | None = None
    _message_index: dict[str, int] = field(default_factory=dict)
    _pod_index: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        reply: Reply,
        *,
        due: float,
        prepared: float,
        sent: float,
        done: float,
        finished: float,
        encode: float,
        decode: float,
        rows: int,
        sent_bytes: int,
    ) -> None:
        """Record one request.

        Times are in seconds of the monotonic clock; `encode` and `decode` are durations in seconds.
        """
        answered = reply.outcome is Outcome.ANSWERED
        if answered:
            self.second.answered += 1
            self.second.late += finished - due > self.late_after_s
            self.second.latencies_s.append(finished - due)
        else:
            self.second.failed += 1
        if due < self.measured_from:
            self.warm_up += 1
            return
        zero = self.measured_from
        self.rows.append((
            due - zero,
            prepared - zero,
            sent - zero,
            reply.written_s - zero,
            reply.first_byte_s - zero,
            done - zero,
            finished - zero,
            encode,
            decode,
            reply.outcome,
            -1 if answered else self._message(reply.message),
            rows,
            sent_bytes,
            len(reply.body),
            self._pod(reply.pod) if reply.pod else -1,
        ))  # fmt: skip
        if len(self.rows) >= CHUNK:
            self._put_chunk()

    def result(self) -> Columns | Folded:
        """Return the columns of all requests, or their counts if there were too many."""
        self._put_chunk()
        if self._folded is None:
            return Columns.merged(list(self._chunks))
        while self._chunks:
            self._folded.add(self._chunks.popleft())
        return self._folded

    def _put_chunk(self) -> None:
        """Convert the rows to a chunk of columns, which takes a quarter of the memory.

        Above the limit `fold_above`, convert the oldest chunks to counts.
        """
        if self.rows:
            self._chunks.append(Columns.of(self.rows))
            self._chunked_rows += len(self.rows)
            self.rows.clear()
        if self._folded is None and self._chunked_rows > self.fold_above:
            self._folded = Folded(self.good_within_s)
        if self._folded is not None:
            # Fold two chunks for each new one, so that each pause is short.
            for _ in range(min(2, len(self._chunks))):
                self._folded.add(self._chunks.popleft())

    def next_second(self) -> Second:
        """Return the counts since the last call, and begin a new second."""
        ended, self.second = self.second, Second()
        return ended

    def _message(self, message: str) -> int:
        index = self._message_index.get(message)
        if index is None:
            text = message if len(self.messages) < MAX_MESSAGES - 1 else OTHER
            index = self._message_index.get(text, len(self.messages))
            if index == len(self.messages):
                self.messages.append(text)
            self._message_index[text] = index
        return index

    def _pod(self, pod: str) -> int:
        index = self._pod_index.setdefault(pod, len(self.pods))
        if index == len(self.pods):
            self.pods.append(pod)
        return index
