import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from halcyon.dashboard.history import FIELDS, MAX_POINTS
from halcyon.dashboard.site import QUERIES, SiteMetrics, parse, query, span
from halcyon.signals.prometheus.client import PrometheusError, QueryRange
from tests.unit.dashboard.objects import name

NOW = 1_767_268_805.0


class Answers:
    """A Prometheus with these answers."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.queries = answer, list[str]()

    async def value(self, query: str) -> float | None:
        self.queries.append(query)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: float | None = self.answer
        return answer

    async def rows(self, query: str, over: QueryRange) -> Sequence[Mapping[str, Any]]:
        del over
        self.queries.append(query)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Sequence[Mapping[str, Any]] = self.answer
        return answer


class Site(SiteMetrics):
    """Values of a site whose clock is set by hand."""

    def __init__(self, answer: Any) -> None:
        self.at, self.prometheus = 0.0, None if answer is None else Answers(answer)
        super().__init__(self.prometheus, monotonic=lambda: self.at, wall=lambda: NOW)

    async def settled(self) -> dict[str, Any]:
        self.allocatable()
        if self._refresh is not None:
            await self._refresh
        return self.allocatable()


@pytest.mark.parametrize(("hours", "step_s"), [(2, 20), (24, 240), (720, 7200)])
def test_points_of_a_range_are_at_multiples_of_the_step(hours: int, step_s: int) -> None:
    over = span(NOW, hours)
    assert (over.step_s, over.end % step_s, (over.end - over.begin) / step_s) == (step_s, 0, MAX_POINTS - 1)
    assert 0 <= NOW - over.end < step_s


def test_one_query_has_all_fields_of_one_model() -> None:
    text = query(name(7), "served", span(NOW, 24))
    assert text.count('model_deployment="model-0007"') >= len(QUERIES)
    assert "$" not in text.replace("$1", "")
    assert all(f'"field", "{field}"' in text for field in QUERIES)
    assert set(QUERIES) == set(FIELDS) - {"errors"}  # the sum of three others
    assert "[300s]" in text
    assert "[7200s]" in query(name(7), "served", span(NOW, 720))


def test_counters_of_triton_are_those_of_the_served_model() -> None:
    selectors = re.findall(r"nv_\w+\{([^}]*)\}", query(name(7), "served", span(NOW, 24)))
    assert len(selectors) > 6
    assert [selector for selector in selectors if ',model="served"' not in selector] == []


def test_samples_are_put_where_their_times_are_and_the_rest_is_unknown() -> None:
    over = span(NOW, 24)
    rows = [
        {
            "metric": {"field": "rate"},
            "values": [[over.end, "12.345678"], [over.begin, "NaN"], [over.begin + 240, "0"]],
        },
        {"metric": {"field": "lost"}, "values": [[over.end, "0.06175"], [over.begin, "1"], [over.begin + 240, "0"]]},
        {"metric": {"field": "failed"}, "values": [[over.end, "0.1235"]]},
    ]
    series = parse(rows, over)
    assert (series["rate"][-1], series["rate"][0], len(series["rate"])) == (12.35, None, MAX_POINTS)
    assert (series["errors"][-1], series["errors"][-2]) == (pytest.approx(1.5, rel=0.01), None)
    assert series["lost"][:2] == [None, None], "without requests there is no share of errors"
    assert (series["end"], series["step"]) == (over.end, 240)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "Only the last hour is in memory, and no Prometheus is configured"),
        (PrometheusError("Prometheus at http://p can't be reached"), "Prometheus at http://p can't be reached."),
        ([{"metric": {}}], "The response of Prometheus can't be used"),
    ],
)
async def test_a_range_that_cannot_be_had_has_its_reason(answer: Any, why: str) -> None:
    history = await Site(answer).history(name(), "served", 24)
    assert list(history) == ["why"]
    assert history["why"].startswith(why)


async def test_gpus_of_the_cluster_are_queried_at_most_once_a_minute() -> None:
    site = Site(48.0)
    assert site.allocatable() == {
        "gpus": None,
        "why": "The GPUs of the cluster are unknown: Prometheus was not queried yet.",
    }
    assert (await site.settled())["gpus"] == 48.0
    await site.settled()
    assert site.prometheus is not None
    assert len(site.prometheus.queries) == 1
    site.at = 60.0
    site.prometheus.answer = PrometheusError("no")
    assert await site.settled() == {"gpus": None, "why": "The GPUs of the cluster are unknown: no."}


async def test_gpus_of_the_cluster_are_unknown_without_prometheus() -> None:
    allocatable = await Site(None).settled()
    assert allocatable["gpus"] is None
    assert "no Prometheus is configured" in allocatable["why"]
