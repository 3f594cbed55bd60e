"""What a Prometheus says, as rows of its answers, and how it is asked. The real one: tests/integration/signals/test_prometheus.py."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, History
from halcyon.signals.prometheus import arrival_history, dcgm
from halcyon.signals.prometheus.client import PrometheusError, PrometheusSite, PrometheusUnavailable, QueryRange, Rows
from halcyon.signals.prometheus.dcgm import ACTIVE, MAX_AGE_S, UTIL, Utilisation
from halcyon.signals.prometheus.source import PollInterval, PrometheusSource

NOW = 1_795_000_000.0
SITE = PrometheusSite("http://prometheus.monitoring:9090")


def rows(metric: str, value: str, *, age_s: float = 1.0, **labels: str) -> Rows:
    """A value and its time, as `dcgm.question` has them answered."""
    labels = {"exported_namespace": "ns", "exported_pod": "m", "namespace": "gpu-operator", "pod": "x", **labels}
    return [
        {"metric": {**labels, "halcyon": metric}, "value": [NOW, value]},
        {"metric": {**labels, "halcyon": f"time of {metric}"}, "value": [NOW, str(NOW - age_s)]},
    ]


def utilisation_of(*answers: Rows) -> Utilisation | None:
    return dcgm.parse([row for answer in answers for row in answer]).pods.get(("ns", "m"))


def test_the_mean_of_several_gpus_is_as_old_as_their_oldest() -> None:
    usage = utilisation_of(rows(ACTIVE, "0.5", UUID="a", age_s=3), rows(ACTIVE, "1", UUID="b", age_s=9))
    assert usage == Utilisation(75.0, 9.0, dcgm.Metric(ACTIVE))


def test_slices_of_one_gpu_are_distinguished_by_their_number() -> None:
    usage = utilisation_of(rows(ACTIVE, "0.1", UUID="a", GPU_I_ID="1"), rows(ACTIVE, "0.3", UUID="a", GPU_I_ID="2"))
    assert usage is not None
    assert usage.percent == pytest.approx(20)


def test_a_gpu_is_not_idle_if_plain_utilisation_is_zero_in_slices() -> None:
    assert utilisation_of(rows(UTIL, "0", GPU_I_ID="1")) is None
    assert utilisation_of(rows(UTIL, "0"), rows(ACTIVE, "NaN", GPU_I_ID="1")) is None


def test_plain_utilisation_stands_in_for_an_unknown_one_without_slices() -> None:
    assert utilisation_of(rows(UTIL, "30"), rows(ACTIVE, "NaN")) == Utilisation(30.0, 1.0, dcgm.Metric(UTIL))


def test_a_share_a_little_above_one_is_one() -> None:
    usage = utilisation_of(rows(ACTIVE, "1.02"))
    assert usage is not None
    assert usage.percent == 100


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (ACTIVE, "NaN"),
        (ACTIVE, "-0.1"),
        (ACTIVE, "55"),
        (ACTIVE, "+Inf"),
        (UTIL, "-1"),
        (UTIL, "101"),
        (UTIL, "9223372036854775794"),
    ],
)
def test_impossible_values_are_left_out_and_counted(metric: str, value: str) -> None:
    answer = dcgm.parse(rows(metric, value))
    assert (answer.pods, answer.ignored) == ({}, 1)


def test_a_value_is_known_until_stale_and_not_without_its_time() -> None:
    assert utilisation_of(rows(UTIL, "30", age_s=MAX_AGE_S)) is not None
    assert utilisation_of(rows(UTIL, "30", age_s=MAX_AGE_S + 0.1)) is None
    assert utilisation_of(rows(UTIL, "30")[:1]) is None


def test_the_pod_is_the_exported_one_where_there_is_one() -> None:
    plain = dcgm.parse(rows(UTIL, "30", exported_namespace="", exported_pod="", namespace="ns", pod="m"))
    assert list(plain.pods) == [("ns", "m")]
    half = dcgm.parse(rows(UTIL, "30", exported_namespace=""))
    assert half.pods == {}


def test_a_gpu_whose_series_has_lost_its_pod_counts_for_no_model() -> None:
    # Prometheus then sets the pod to the exporter's own.
    lost = rows(UTIL, "100", exported_namespace="", exported_pod="")
    assert utilisation_of(lost) is None
    assert list(dcgm.parse(lost).pods) == [("gpu-operator", "x")]
    unnamed = rows(UTIL, "100", exported_namespace="", exported_pod="", namespace="", pod="")
    assert dcgm.parse(unnamed).pods == {}


number = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(
        st.tuples(st.sampled_from([ACTIVE, UTIL]), number, st.floats(0, 100), st.sampled_from(["", "1"])), max_size=6
    )
)
def test_a_utilisation_is_always_a_young_percentage(
    samples: list[tuple[str, float, float, str]],
) -> None:
    answers = [
        rows(metric, str(value), age_s=age_s, UUID=f"{index}", GPU_I_ID=part)
        for index, (metric, value, age_s, part) in enumerate(samples)
    ]
    usage = utilisation_of(*answers)
    if usage is not None:
        assert 0 <= usage.percent <= 100
        assert 0 <= usage.age_s <= MAX_AGE_S + 1e-6


def test_the_query_has_both_metrics_with_the_sites_matchers() -> None:
    query = dcgm.query('cluster="eu-1"')
    for metric in (ACTIVE, UTIL):
        assert query.count(f'{metric}{{cluster="eu-1"}}') == 2


def test_samples_become_bins_and_impossible_ones_are_unknown() -> None:
    end = 1000 * BIN_S
    known = [(end, 4.0), (end - BIN_S, math.nan), (end - 3 * BIN_S, 1.0), (end - 2 * BIN_S, -1.0), (end - 100, 7.0)]
    assert arrival_history.history(known) == History.of([1.0, None, None, 4.0], end=end)
    assert arrival_history.history([(end, math.inf)]) is None
    assert arrival_history.history([]) is None


@given(st.lists(st.tuples(st.integers(1000, 1100), st.floats(0, 1e4)), max_size=8))
def test_a_history_ends_with_the_newest_sample_and_knows_what_they_know(samples: list[tuple[int, float]]) -> None:
    history = arrival_history.history([(number * BIN_S, rate) for number, rate in samples])
    if history is None:
        assert not samples
        return
    newest = max(number for number, _ in samples)
    assert history.open == newest
    rates = dict(samples)
    assert history.bins[-1] == pytest.approx(rates[newest], rel=0.01)
    known = {index - len(history.bins) + newest + 1 for index, mean in enumerate(history.bins) if mean is not None}
    assert known == set(rates)


def test_distant_samples_keep_only_those_that_fit_beside_the_newest() -> None:
    history = arrival_history.history(
        [(1000 * BIN_S, 1.0), ((1000 + MAX_BINS) * BIN_S, 2.0), ((1001 + MAX_BINS) * BIN_S, 3.0)]
    )
    assert history is not None
    assert (len(history.bins), history.bins[0], history.bins[-2:]) == (MAX_BINS, None, (2.0, 3.0))


def test_the_span_is_of_whole_bins_that_have_closed() -> None:
    begin, end = arrival_history.query_span(1000 * BIN_S + 299)
    assert (begin, end) == ((1000 - MAX_BINS + 1) * BIN_S, 1000 * BIN_S)


def test_a_template_keeps_every_dollar_that_is_no_name_of_ours() -> None:
    query = arrival_history.query('f{ns="$namespace",pod=~"^$name-.*$",x="$names"}', namespace="a", name="b")
    assert query == 'f{ns="a",pod=~"^b-.*$",x="$names"}'


def pod_of(deployment: str) -> str:
    """The name of a pod, which Kubernetes cuts to 63 characters."""
    return f"{deployment}-7d9f8c6b5d-"[:58] + "x2x3x"


@pytest.mark.parametrize("length", [1, 37, 38, 40, 46, 47, 48, 49, 50, 51, 52])
def test_the_default_query_for_arrivals_takes_the_balancers_of_its_model_alone(length: int) -> None:
    name = "m" * length
    query = arrival_history.query(arrival_history.ARRIVALS, namespace="ns", name=name)
    assert 'namespace="ns"' in query
    pods = re.compile(re.search(r'pod=~"([^"]*)"', query)[1])  # type: ignore[index]  # it is there
    assert pods.fullmatch(pod_of(f"{name}-balancer"))
    others = [f"{name}{other}" for other in ("-balance", "-a", "x", *(("-balancer",) if length == 1 else ()))]
    assert not [other for other in others if len(other) <= 52 and pods.fullmatch(pod_of(f"{other}-balancer"))]
    assert not pods.fullmatch(pod_of(f"{name}-a"))


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Door:
    """A `QueryFunction` that waits for leave and then does as it was told."""

    def __init__(self) -> None:
        self.leave, self.entered = threading.Event(), threading.Event()
        self.leave.set()
        self.does: Callable[[], Rows] = list
        self.inside = self.most_inside = 0
        self.queries: list[str] = []

    def __call__(self, _site: PrometheusSite, question: str, over: QueryRange | None, _limit_s: float, /) -> Rows:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.queries.append("gpu" if over is None else question)
        self.entered.set()
        try:
            assert self.leave.wait(10)
            return self.does()
        finally:
            self.inside -= 1


def failing(error: Exception) -> Callable[[], Rows]:
    def fail() -> Rows:
        raise error

    return fail


def source(door: Door, clock: Clock, **pace: float) -> PrometheusSource:
    return PrometheusSource(SITE, monotonic=clock, wall=lambda: NOW, query=door, intervals=PollInterval(**pace))


async def test_a_value_is_as_old_as_its_sample_and_expires() -> None:
    door, clock = Door(), Clock()
    door.does = lambda: rows(UTIL, "30", age_s=12)
    prometheus = source(door, clock)
    assert prometheus.gpu("ns", "m") is None
    assert await prometheus.poll() == 10
    gpu = prometheus.gpu("ns", "m")
    assert gpu is not None
    assert (gpu.value, gpu.at, gpu.source, gpu.metric) == (30, 88, "prometheus", UTIL)
    clock.now += MAX_AGE_S - 12
    assert prometheus.gpu("ns", "m") is not None
    clock.now += 0.1
    assert prometheus.gpu("ns", "m") is None


async def test_pauses_grow_while_it_fails_differ_and_are_short_again_afterwards() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.does = failing(PrometheusUnavailable("nobody there"))
    pauses = [await prometheus.poll() for _ in range(40)]
    assert 7.5 <= pauses[0] <= 12.5
    assert 15 <= pauses[1] <= 25
    assert all(45 <= pause_s <= 75 for pause_s in pauses[3:])
    assert len(set(pauses)) > 20
    door.does = list
    assert await prometheus.poll() == 10


async def test_the_log_has_one_line_for_failure_and_one_for_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.does = failing(PrometheusUnavailable("nobody there"))
    for _ in range(3):
        await prometheus.poll()
    door.does = list
    for _ in range(3):
        await prometheus.poll()
    messages = [record.message for record in caplog.records]
    assert messages == ["nobody there", "Prometheus at http://prometheus.monitoring:9090 responds again"]


async def test_a_history_is_refused_at_once_while_prometheus_is_down() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.does = failing(PrometheusUnavailable("nobody there"))
    await prometheus.poll()
    with pytest.raises(PrometheusUnavailable, match="nobody there"):
        await prometheus.history("ns", "m")
    assert door.queries == ["gpu"]


async def test_a_refused_gpu_query_does_not_stop_histories() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.does = failing(PrometheusError("bad query"))
    await prometheus.poll()
    door.does = lambda: [{"metric": {}, "values": [[NOW // BIN_S * BIN_S, "2.5"]]}]
    history = await prometheus.history("ns", "m")
    assert history is not None
    assert history.bins == (2.5,)


async def test_requests_run_one_by_one_and_gpus_do_not_wait_for_histories() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.leave.clear()
    histories = [asyncio.create_task(prometheus.history("ns", f"m{index}")) for index in range(20)]
    await asyncio.to_thread(door.entered.wait, 10)
    poll = asyncio.create_task(prometheus.poll())
    await asyncio.sleep(0)
    door.leave.set()
    assert await asyncio.gather(*histories) == [None] * 20
    await poll
    assert door.most_inside == 1
    assert door.queries.index("gpu") <= 2


async def test_an_endless_answer_fails_the_poll_and_no_query_runs_beside_it() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock, timeout_s=0.02)
    door.leave.clear()
    await prometheus.poll()
    assert "no response within 0.02 s" in prometheus.status()
    await prometheus.poll()
    assert door.queries == ["gpu"]
    door.leave.set()
    async with asyncio.timeout(10):
        while "GPU utilisation of 0 pods" not in prometheus.status():
            await prometheus.poll()
    assert door.most_inside == 1


async def test_a_cancelled_history_request_does_no_harm_to_the_next_poll() -> None:
    door, clock = Door(), Clock()
    prometheus = source(door, clock)
    door.leave.clear()
    waiting = asyncio.create_task(prometheus.history("ns", "m"))
    await asyncio.to_thread(door.entered.wait, 10)
    waiting.cancel()
    poll = asyncio.create_task(prometheus.poll())
    await asyncio.sleep(0)
    door.leave.set()
    assert await poll == 10
    assert door.most_inside == 1


@pytest.mark.parametrize("nonsense", [[{}], [{"metric": {}, "value": 1}], [7], [None], rows(UTIL, "many")])
async def test_an_answer_of_another_kind_is_a_failure_that_names_the_question(nonsense: Any) -> None:
    door, clock = Door(), Clock()
    door.does = lambda: nonsense
    prometheus = source(door, clock)
    await prometheus.poll()
    assert "the response can't be used" in prometheus.status()
    assert "Query: label_replace(" in prometheus.status()


async def test_a_fault_of_ours_does_not_end_the_polls() -> None:
    door, clock = Door(), Clock()
    door.does = failing(ZeroDivisionError("a fault"))
    prometheus = source(door, clock)
    assert await prometheus.poll() > 7
    assert "ZeroDivisionError, see the log" in prometheus.status()
    assert prometheus.requests.labels("gpu", "failed")._value.get() == 1


@pytest.mark.parametrize(
    "url",
    ["", "prometheus:9090", "ftp://x", "http://", "http://x?y=1", "http://x#y", "http://x:port", "http://a:b/c@x"],
)
def test_a_url_that_cannot_work_is_refused_with_a_good_example(url: str) -> None:
    with pytest.raises(ValueError, match="for example http://prometheus-operated"):
        PrometheusSite(url)


def test_a_site_never_shows_its_password() -> None:
    site = PrometheusSite("https://ml:hunter2@prometheus:9090/base/")
    assert site.shown == "https://prometheus:9090/base"
    assert "hunter2" not in f"{site}{site!r}"
    with pytest.raises(ValueError, match="not both") as caught:
        PrometheusSite("https://ml:hunter2@prometheus", token_file=Path("token"))
    assert "hunter2" not in str(caught.value)


def test_matchers_and_queries_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match='for example namespace="gpu-operator"'):
        PrometheusSite(SITE.url, gpu_matchers='{job="x"}')
    with pytest.raises(ValueError, match="arrivals is empty"):
        PrometheusSite(SITE.url, arrivals=" ")


def test_the_client_is_not_loaded_without_a_query() -> None:
    heavy = {"prometheus_api_client", "requests", "pandas", "numpy"}
    code = f"import sys, halcyon.signals.prometheus.source; print(*sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "operator"}
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ([], None),
        ([{"metric": {}, "value": [NOW, "0.25"]}], 0.25),
        ([{"metric": {}, "value": [NOW, "NaN"]}], None),
        ([{"metric": {}, "value": [NOW, "+Inf"]}], None),
    ],
)
async def test_a_query_of_one_series_has_a_value(answer: Rows, value: float | None) -> None:
    source = PrometheusSource(SITE, query=lambda *_: answer)
    beside = source.beside(1.0, kind="metric")

    assert await beside.value("x") == value
    counted = source.requests.labels("metric", "answered")
    assert counted is beside.requests.labels("metric", "answered")
    assert (counted._value.get(), source.requests.labels("canary", "answered")._value.get()) == (1, 0)


async def test_a_query_of_a_scalar_is_an_error_that_says_so() -> None:
    rows: Rows = [NOW, "5"]  # type: ignore[list-item]  # as Prometheus answers scalar(NAME)
    with pytest.raises(PrometheusError, match=r"a scalar, one series is required; for example vector\(EXPRESSION\)"):
        await PrometheusSource(SITE, query=lambda *_: rows).value("x")


async def test_a_query_of_several_series_is_an_error() -> None:
    rows: Rows = 2 * [{"metric": {}, "value": [NOW, "1"]}]
    with pytest.raises(PrometheusError, match="2 series, exactly one is required; for example sum"):
        await PrometheusSource(SITE, query=lambda *_: rows).value("x")
