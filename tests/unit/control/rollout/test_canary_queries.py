"""Metrics of a canary: what a series of results leads to. The real Prometheus: tests/integration/signals/test_prometheus.py."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.control.rollout.canary_analysis import CanaryAnalysis
from halcyon.control.rollout.canary_queries import CanaryQueries, render_query
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.state.scope import CanaryResult
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.prometheus.client import PrometheusError
from tests.clocks import DrivenClock
from tests.policies import METRIC
from tests.unit.control.rollout.canary_cluster import begun
from tests.unit.control.rollout.test_canary_analysis import KEY, Rolling, rollout
from tests.unit.control.scope_builders import PVC

Result = float | None | PrometheusError


def spec_of(*metrics: Any, mode: str = "Enabled") -> Spec:
    analysis = {"mode": mode, "metrics": list(metrics)}
    return parse("digits", {"model": {"source": PVC}, "rollout": {"canary": {"analysis": analysis}}})


class Queried:
    """A canary with metrics, and a Prometheus with these results; the last one stays."""

    def __init__(self, *results: Result, metric: Any = METRIC, mode: str = "Enabled") -> None:
        cluster, self.stable, self.canary = begun(count=2, room=3)
        self.rollout: RolloutPlan | None = rollout(cluster)
        self.now, self.results = 1000.0, list(results)
        self.sent: list[str] = []
        self.spec = spec_of(metric, mode=mode)
        self.queries = CanaryQueries(self.ask, DrivenClock(lambda: self.now))
        self.queries.planned(KEY, self.spec, self.rollout)

    async def ask(self, query: str) -> float | None:
        self.sent.append(query)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, PrometheusError):
            raise result
        return result

    async def after(self, *, intervals: int, action: str = "promote") -> CanaryResult | None:
        """The verdict after so many intervals, beside the one of the comparison."""
        for _ in range(intervals):
            self.now += 60
            task = asyncio.ensure_future(self.queries.run())
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return self.verdict(action)

    def verdict(self, action: str = "promote") -> CanaryResult | None:
        compared: Any = CanaryResult(self.canary, action, f"{action}: compared")  # type: ignore[arg-type]
        return self.queries.combined_result(KEY, compared if action else None)


@pytest.mark.parametrize(
    ("results", "compared", "action", "words"),
    [
        ((0.5,), "promote", "promote", "promote: compared; metric conversion is 0.5 (at least 0.5)"),
        ((0.5,), "wait", "wait", "wait: compared; metric conversion is 0.5"),
        ((0.5,), "rollback", "rollback", "rollback: compared"),
        (
            (0.4,),
            "promote",
            "rollback",
            "rolled back: metric conversion is 0.4 (at least 0.5); consecutive values beyond the limit: 3 (the canary is rolled back at 3)",
        ),
        ((0.4,), "", "rollback", "rolled back: metric conversion is 0.4"),
        (
            (0.4, 0.6, 0.4),
            "promote",
            "wait",
            "waits: metric conversion is 0.4 (at least 0.5); consecutive values beyond the limit: 1 (the canary is rolled back at 3)",
        ),
        ((0.4, 0.4, None), "promote", "wait", "waits: metric conversion: the query has no result"),
        ((0.4, 0.4, PrometheusError("away")), "promote", "wait", "waits: metric conversion: away"),
    ],
)
async def test_a_series_of_results_leads_to_its_verdict(
    results: tuple[Result, ...], compared: str, action: str, words: str
) -> None:
    queried = Queried(*results)
    verdict = await queried.after(intervals=3, action=compared)

    assert verdict is not None
    assert (verdict.revision, verdict.action) == (queried.canary, action)
    assert words in verdict.why
    assert len(queried.sent) == 3


async def test_missing_data_neither_counts_as_failure_nor_ends_a_row() -> None:
    queried = Queried(0.1, None, 0.1, None, None, 0.1)
    assert (await queried.after(intervals=5)).action == "wait"  # type: ignore[union-attr]
    assert (await queried.after(intervals=1)).action == "rollback"  # type: ignore[union-attr]


async def test_a_promotion_waits_for_the_first_value_and_for_a_recent_one() -> None:
    queried = Queried(1.0)
    before = queried.verdict()
    assert before is not None
    assert (before.action, before.why) == ("wait", "waits: metric conversion: no value yet")
    good = await queried.after(intervals=1)
    assert good is not None
    assert good.action == "promote"
    queried.now += 200
    stale = queried.verdict()
    assert stale is not None
    assert stale.action == "wait"


async def test_a_maximum_is_a_limit_too() -> None:
    queried = Queried(0.02, metric={"name": "errors", "query": "x", "max": "0.01", "failureLimit": 1})
    verdict = await queried.after(intervals=1, action="wait")
    assert verdict is not None
    assert (
        verdict.why
        == "rolled back: metric errors is 0.02 (at most 0.01); consecutive values beyond the limit: 1 (the canary is rolled back at 1)"
    )


async def test_a_query_knows_its_canary() -> None:
    placeholders = ("namespace", "name", "revision", "stable", "deployment", "stableDeployment")
    query = " ".join("{{" + name + "}}" for name in placeholders)
    queried = Queried(1.0, metric={**METRIC, "query": query})
    await queried.after(intervals=1)

    assert queried.sent == [f"team digits {queried.canary} {queried.stable} digits-b digits-a"]
    assert render_query('x{a="{{name}}"}', {"name": "m"}) == 'x{a="m"}'


@pytest.mark.parametrize("end", ["deleted", "disabled", "another spec", "no rollout"])
async def test_queries_end_with_the_canary(end: str) -> None:
    queried = Queried(0.1)
    assert (await queried.after(intervals=3)).action == "rollback"  # type: ignore[union-attr]
    if end == "deleted":
        queried.queries.deleted(KEY)
    elif end == "no rollout":
        queried.queries.planned(KEY, queried.spec, None)
    else:
        mode = "Disabled" if end == "disabled" else "Enabled"
        queried.queries.planned(KEY, spec_of({**METRIC, "min": "0"}, mode=mode), queried.rollout)
    verdict = queried.verdict()
    assert verdict is not None
    assert verdict.action == ("wait" if end == "another spec" else "promote")
    queried.queries.planned(KEY, queried.spec, queried.rollout)
    assert (await queried.after(intervals=1)).action == "wait"  # type: ignore[union-attr]


async def test_the_analysis_joins_the_comparison_and_the_metrics() -> None:
    queried = Queried(0.1)
    analysis = CanaryAnalysis(ObservationStore(), DrivenClock(lambda: queried.now), queried.queries)
    analysis.planned(KEY, Rolling(queried.spec, queried.rollout))
    await queried.after(intervals=3)

    verdict = analysis.result(KEY, [])
    assert verdict is not None
    assert verdict.action == "rollback"
    analysis.deleted(KEY)
    assert analysis.result(KEY, []) is None


async def test_queries_begin_once_the_first_pods_are_ready() -> None:
    queried = Queried(0.1)
    starting = begun(count=2, room=3)[0].operate().rollout
    queried.queries.planned(KEY, queried.spec, starting)
    await queried.after(intervals=5)

    assert starting is not None
    assert starting.canary is not None
    assert queried.sent == []


@pytest.mark.parametrize("mode", ["Enabled", "Disabled"])
def test_metrics_without_analysis_are_reported_as_ignored(mode: str) -> None:
    messages = [text for text in defaults.ignored(spec_of(METRIC, mode=mode)) if "metrics" in text]
    words = "spec.rollout.canary.analysis.metrics: ignored with mode Disabled; set mode: Enabled to use it"
    assert messages == ([words] if mode == "Disabled" else [])
