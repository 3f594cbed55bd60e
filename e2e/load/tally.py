"""Counts of results, converted to reports. `now` arguments are seconds of one monotonic clock."""

from collections import Counter
from dataclasses import dataclass, field

from e2e.load.clients import Answer
from e2e.load.settings import Report


@dataclass
class Tally:
    """Results since `began_s`."""

    began_s: float
    _latencies_ms: list[float] = field(default_factory=list)
    _executions: float = 0.0
    _rows: int = 0
    _who: Counter[str] = field(default_factory=Counter)
    _failures: Counter[str] = field(default_factory=Counter)
    _last_s: float | None = None
    _failed_s: list[float] = field(default_factory=list)

    def answered(self, answer: Answer, *, sent_s: float, now: float) -> None:
        """Count a request that got a response."""
        self._latencies_ms.append((now - sent_s) * 1000)
        self._last_s = now
        if answer.batch:
            # Each of the n requests of an execution reports n, so each counts as 1/n of an execution.
            self._executions += 1 / answer.batch
            self._rows += 1
        if answer.who is not None:
            self._who[answer.who] += 1

    def failed(self, kind: str, *, now: float) -> None:
        """Count a failed request."""
        self._failures[kind] += 1
        self._failed_s.append(round(now - self.began_s, 3))

    def failures(self) -> int:
        """Return the number of failed requests."""
        return self._failures.total()

    def report(self, now: float, *, final: bool) -> Report:
        """Return the report on the results so far. `now` is the end of the period if there was no response."""
        latencies = sorted(self._latencies_ms)
        end_s = self._last_s if final and self._last_s is not None else now
        seconds = max(end_s - self.began_s, 1e-9)
        return Report(
            answered=len(latencies),
            failed=self._failures.total(),
            seconds=round(seconds, 3),
            rate_rps=round(len(latencies) / seconds, 1),
            p50_ms=_percentile(latencies, 0.50),
            p99_ms=_percentile(latencies, 0.99),
            most_ms=_percentile(latencies, 1.0),
            mean_batch=round(self._rows / self._executions, 2) if self._executions else None,
            failures=dict(self._failures.most_common(20)),
            first_failed_s=min(self._failed_s, default=None),
            last_failed_s=max(self._failed_s, default=None),
            who=dict(self._who),
            final=final,
        )


def _percentile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)
