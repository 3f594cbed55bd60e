"""Queries of the site's Prometheus for canary analysis: `spec.rollout.canary.analysis.metrics`.

A result beyond its limit prevents the promotion, and `failureLimit` such results in a row cause a rollback. A missing
or stale result prevents the promotion, too.

Queries run one at a time, only on the leader, and independently of reconciles. A new leader starts from scratch, which
delays a promotion but is safe.
Out of scope: the comparison of both revisions (`canary_analysis`), running a query (`signals.prometheus.source`).
"""

# | last result of a metric           | effect                                          |
# | --------------------------------- | ----------------------------------------------- |
# | within its limit                  | none; all metrics within: promotion is possible |
# | beyond it, `failureLimit` in a row | rollback                                        |
# | beyond it, fewer in a row         | no promotion                                    |
# | none, or stale                    | no promotion; earlier values keep counting      |

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from halcyon.api.spec import Spec
from halcyon.api.spec.rollout import AnalysisMetric
from halcyon.api.types import duration_s
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.rollout.rollout_record import other_slot
from halcyon.control.state.scope import CanaryResult
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.signals.prometheus.client import PrometheusError

QUERY_TIMEOUT_S = 5.0
_MAX_INTERVALS = 3
"""Number of query intervals for which a value of a metric stays valid."""
_MAX_ERROR_LENGTH = 200

RunQuery = Callable[[str], Awaitable[float | None]]
"""Type of the function that runs a query. It returns None if the query has no value, and raises PrometheusError if the
query fails."""


@dataclass
class _Metric:
    """Metric of a canary from the site's Prometheus, with its last results."""

    spec: AnalysisMetric
    query: str
    due: float
    """Monotonic time at which the metric is queried next, in seconds."""
    value: float | None = None
    at: float = 0.0
    """Monotonic time of the metric's last value, in seconds."""
    failures: int = 0
    """Number of consecutive values of the metric that were beyond the limit."""
    missing: str = "no value yet"

    def is_fine(self, now: float) -> bool:
        """Return whether the metric's last value is recent and within its limit."""
        is_fresh = now - self.at <= _MAX_INTERVALS * duration_s(self.spec.interval) + QUERY_TIMEOUT_S
        return self.value is not None and not self.failures and is_fresh

    def describe(self) -> str:
        """Return the metric's last result in a few words."""
        if self.value is None:
            return f"metric {self.spec.name}: {self.missing}"
        limit = f"at most {self.spec.max}" if self.spec.min is None else f"at least {self.spec.min}"
        result = f"metric {self.spec.name} is {self.value:g} ({limit})"
        if not self.failures:
            return result
        max_failures = self.spec.failure_limit
        return f"{result}; consecutive values beyond the limit: {self.failures} (the canary is rolled back at {max_failures})"

    def take(self, value: float | None, now: float, missing: str = "the query has no result") -> None:
        """Record a new result of the metric's query. If there is no value, `missing` is the reason."""
        self.value, self.missing, self.at = value, missing, now
        if value is not None:
            low, high = self.spec.min, self.spec.max
            is_beyond = (low is not None and value < float(low)) or (high is not None and value > float(high))
            self.failures = self.failures + 1 if is_beyond else 0


@dataclass(frozen=True)
class _Watched:
    """Metrics that are evaluated for one canary."""

    subject: tuple[str, str, tuple[AnalysisMetric, ...]]
    """Stable revision, canary, and metrics in the spec. If any of them changes, the evaluation starts from scratch."""
    metrics: tuple[_Metric, ...]


class CanaryQueries:
    """Queries for the metrics of all canaries in progress. All methods must be called in one event loop."""

    def __init__(self, run_query: RunQuery, clock: Clock) -> None:
        """Initialize without canaries. `run_query` is the function that runs a query."""
        self._run_query, self._clock = run_query, clock
        self._watched: dict[Key, _Watched] = {}
        self._changed = asyncio.Event()

    def planned(self, key: Key, spec: Spec | None, rollout: RolloutPlan | None) -> None:
        """Start the queries for a canary in progress once its first pods are ready.

        If there is no such canary, drop the queries.
        """
        canary = spec.rollout.canary if spec else None
        metrics = (canary.analysis.metrics if canary and canary.analysis.mode == "Enabled" else None) or ()
        if not metrics or rollout is None or rollout.canary is None or rollout.good is None:
            self.deleted(key)
            return
        if not rollout.record.step and not rollout.record.step_at:
            self.deleted(key)
            return
        subject = (rollout.good.key, rollout.requested.key, metrics)
        if (watched := self._watched.get(key)) is not None and watched.subject == subject:
            return
        values = {
            "namespace": key.namespace,
            "name": key.name,
            "revision": rollout.requested.key,
            "stable": rollout.good.key,
            "deployment": names.server(key.name, other_slot(rollout.home)),
            "stableDeployment": names.server(key.name, rollout.home),
        }
        now = self._clock.monotonic()
        queried = (_Metric(spec, render_query(spec.query, values), now + duration_s(spec.interval)) for spec in metrics)
        self._watched[key] = _Watched(subject, tuple(queried))
        self._changed.set()

    def deleted(self, key: Key) -> None:
        """Drop the metrics of a ModelDeployment that was deleted or whose canary has ended."""
        self._watched.pop(key, None)

    def combined_result(self, key: Key, comparison: CanaryResult | None) -> CanaryResult | None:
        """Return the combined result of the comparison and the metrics; None if nothing has been measured yet."""
        watched, now = self._watched.get(key), self._clock.monotonic()
        if watched is None:
            return comparison
        revision = watched.subject[1]
        if failed := [metric.describe() for metric in watched.metrics if metric.failures >= metric.spec.failure_limit]:
            return CanaryResult(revision, "rollback", f"rolled back: {'; '.join(failed)}")
        if comparison is None or comparison.action == "rollback":
            return comparison
        results = "; ".join(metric.describe() for metric in watched.metrics)
        if comparison.action == "promote" and not all(metric.is_fine(now) for metric in watched.metrics):
            return CanaryResult(revision, "wait", f"waits: {results}")
        return CanaryResult(revision, comparison.action, f"{comparison.why}; {results}")

    async def run(self) -> None:
        """Run each canary's queries when they are due, until cancelled."""
        while True:
            metric = min(
                (metric for watched in self._watched.values() for metric in watched.metrics),
                key=lambda metric: metric.due,
                default=None,
            )
            wait_s = None if metric is None else metric.due - self._clock.monotonic()
            if metric is None or wait_s is None or wait_s > 0:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                continue
            await self._evaluate(metric)

    async def _evaluate(self, metric: _Metric) -> None:
        try:
            value = await self._run_query(metric.query)
        except PrometheusError as error:
            metric.take(None, self._clock.monotonic(), str(error)[:_MAX_ERROR_LENGTH])
        else:
            metric.take(value, self._clock.monotonic())
        # After the query: a slow Prometheus is queried less often.
        metric.due = self._clock.monotonic() + duration_s(metric.spec.interval)


def render_query(query: str, values: Mapping[str, str]) -> str:
    """Return the text of the query with its placeholders replaced by `values`."""
    return re.sub(r"\{\{([a-zA-Z]+)\}\}", lambda match: values[match[1]], query)
