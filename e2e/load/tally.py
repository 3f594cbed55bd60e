"""Counts outcomes and turns them into reports. `now` is an argument: seconds of one monotonic clock."""

from collections import Counter
from dataclasses import dataclass, field

from e2e.load.clients import Answer
from e2e.load.settings import Report


@dataclass
class Tally:
    """Outcomes since `began_s`."""

    began_s: float
    _latencies_ms: list[float] = field(default_factory=list)
    _executions: float = 0.0
    _rows: int = 0
    _who: Counter[str] = field(default_factory=Counter)
    _failures: Counter[str] = field(default_factory=Counter)
    _last_s: float | None = None
    _failed_s: list[float] = field(default_factory=list)

    def answered(self, answer: Answer, *, sent_s: float, now: float) -> None:
        """One request was answered."""
        self._latencies_ms.append((now - sent_s) * 1000)
        self._last_s = now
        if answer.batch:
            # Each of n requests of one execution tells n: a share of 1/n each counts the execution once.
            self._executions += 1 / answer.batch
            self._rows += 1
        if answer.who is not None:
            self._who[answer.who] += 1

    def failed(self, kind: str, *, now: float) -> None:
        """One request was not answered."""
        self._failures[kind] += 1
        self._failed_s.append(round(now - self.began_s, 3))

    def failures(self) -> int:
        """How many were not answered."""
        return self._failures.total()

    def report(self, now: float, *, final: bool) -> Report:
        """What is counted so far; `now` ends the time where nothing was answered."""
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
