"""Signals from a real Prometheus. What it scrapes is a stand-in: a page with the names and labels of NVIDIA's DCGM exporter."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path

import pytest
import pytest_asyncio

from halcyon.control.rollout.canary_queries import CanaryQueries, RunQuery
from halcyon.control.state.scope import CanaryResult
from halcyon.metricsapi.certificates import issue, make_ca
from halcyon.scaling.planner.forecast.season_models import DAY
from halcyon.scaling.planner.forecast.seasonality import BIN_S, forecast
from halcyon.signals.prometheus.client import PrometheusError, PrometheusSite
from halcyon.signals.prometheus.dcgm import MAX_AGE_S
from halcyon.signals.prometheus.source import PollInterval, PrometheusSource, Sampled
from tests.clocks import DrivenClock
from tests.integration.real_prometheus import Prometheus, TokenGate, prometheus, served
from tests.integration.waiting import PATIENCE
from tests.unit.control.rollout.test_canary_analysis import KEY
from tests.unit.control.rollout.test_canary_queries import Queried

pytestmark = pytest.mark.more

ACTIVE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
PAST_END = time.time() // BIN_S * BIN_S - 7200
PAST_BINS = 4 * DAY
HOLE = range(600, 612)


def gpu(metric: str, pod: str, value: str, *, index: int = 0, slice_id: str = "", at: str = "") -> str:
    """A line as DCGM's exporter writes it."""
    sliced = f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{slice_id}"' if slice_id else ""
    labels = f'gpu="{index}",UUID="GPU-{pod}-{index}",device="nvidia{index}",modelName="Stand-in",Hostname="n1"{sliced}'
    return f'{metric}{{{labels},container="server",namespace="ns",pod="{pod}"}} {value} {at}\n'


@dataclass
class Exporter:
    """The stand-in: pages by path."""

    pages: dict[str, str] = field(default_factory=dict)

    def __call__(self, path: str, _: Message) -> tuple[int, str]:
        page = self.pages.get(path)
        return (404, "gone\n") if page is None else (200, page)


@dataclass
class ScrapedPrometheus:
    exporter: Exporter
    prometheus: Prometheus


def wave(number: int) -> float:
    """Requests per second in a bin."""
    return 40 + 20 * math.sin(number / DAY * math.tau)


def past() -> str:
    """Four days of a balancer's counters each minute, an hour of them lost, in the format that promtool reads."""
    first = int(PAST_END / BIN_S) - PAST_BINS
    name = "haproxy_frontend_http_requests"
    series = {
        'namespace="ns",pod="m-balancer-7d9f4-abcde",proxy="http"': 0.75,
        'namespace="ns",pod="m-balancer-7d9f4-fghij",proxy="grpc"': 0.25,
        'namespace="ns",pod="m-balancer-7d9f4-fghij",proxy="metrics"': 9.0,
        'namespace="ns",pod="m-balancer-x-balancer-7d9f4-abcde",proxy="http"': 9.0,
        'namespace="other",pod="m-balancer-7d9f4-abcde",proxy="http"': 9.0,
        'namespace="ns",pod="batches-balancer-7d9f4-abcde",proxy="http"': 9.0,
    }
    lines = [f"# TYPE {name} counter"]
    for labels, share in series.items():
        total = 0.0
        for minute in range(5 * PAST_BINS + 1):
            if minute // 5 not in HOLE:
                lines.append(f"{name}_total{{{labels}}} {total:.1f} {first * BIN_S + 60 * minute:.0f}")
            total += 60 * share * wave(first + minute // 5)
    return "\n".join([*lines, *counted(), "# EOF", ""])


def counted() -> list[str]:
    """An hour of agents' counters that grow evenly."""
    here, far = (f'namespace="ns",pod="far-balancer-7d9f4-abcde",cluster="{name}"' for name in ("a.b", "aXb"))
    batches = 'namespace="ns",pod="batches-balancer-7d9f4-abcde"'
    by_name = {
        "halcyon_agent_requests": {batches: 10.0, here: 6.0, far: 30.0},
        "halcyon_agent_client_retries": {batches: 2.0, here: 0.0, far: 5.0},
    }
    lines = []
    for name, series in by_name.items():
        lines.append(f"# TYPE {name} counter")
        for labels, rate in series.items():
            times = [PAST_END - 3600 + 60 * minute for minute in range(61)]
            lines += [f"{name}_total{{{labels}}} {rate * (at - times[0]):.1f} {at:.0f}" for at in times]
    return lines


def job(address: str, name: str, *, honor_labels: bool = False) -> dict[str, object]:
    labels = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x"}
    return {
        "job_name": name,
        "metrics_path": f"/{name}",
        "honor_labels": honor_labels,
        "static_configs": [{"targets": [address], "labels": labels}],
    }


@pytest.fixture(scope="module")
def scene() -> Iterator[ScrapedPrometheus]:
    exporter = Exporter({"/dcgm": "", "/honest": "", "/ending": ""})
    with served(exporter) as address:
        jobs = [job(address, "dcgm"), job(address, "honest", honor_labels=True), job(address, "ending")]
        with prometheus(jobs, past=past()) as running:
            yield ScrapedPrometheus(exporter, running)


@pytest.fixture
def source(scene: ScrapedPrometheus) -> PrometheusSource:
    return PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"))


async def reach(source: PrometheusSource, good: Callable[[], bool], *, description: str) -> None:
    """Ask until it is so: Prometheus tells nobody when it has scraped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(15 * PATIENCE):
            while not good():
                await source.poll()
                await asyncio.sleep(0.1)
    assert good(), f"{description}; {source.status()}"


def percent(source: PrometheusSource, pod: str) -> float | None:
    sample = source.gpu("ns", pod)
    return None if sample is None else sample.value


async def test_the_exporters_values_are_percentages_by_pod_and_nonsense_is_unknown(
    scene: ScrapedPrometheus, source: PrometheusSource
) -> None:
    late_at, old_at = time.time() - 8, time.time() - MAX_AGE_S - 5
    scene.exporter.pages["/dcgm"] = "".join(
        (
            gpu(ACTIVE, "both", "0.25") + gpu(ACTIVE, "both", "0.75", index=1) + gpu(UTIL, "both", "99"),
            gpu(ACTIVE, "slices", "0.2", slice_id="1") + gpu(ACTIVE, "slices", "0.4", slice_id="2"),
            gpu(UTIL, "slices", "0", slice_id="1"),
            gpu(UTIL, "silent-slice", "0", slice_id="3"),
            gpu(UTIL, "plain", "80") + gpu(ACTIVE, "idle", "0") + gpu(UTIL, "percent-of-one", "1"),
            gpu(ACTIVE, "one-known", "NaN") + gpu(ACTIVE, "one-known", "0.5", index=1),
            gpu(ACTIVE, "nan", "NaN") + gpu(UTIL, "negative", "-1") + gpu(UTIL, "absurd", "4000"),
            gpu(ACTIVE, "percent-as-share", "55") + gpu(UTIL, "infinite", "+Inf"),
            gpu(UTIL, "late", "60", at=f"{late_at * 1000:.0f}") + gpu(UTIL, "old", "60", at=f"{old_at * 1000:.0f}"),
            gpu(UTIL, "", "70"),
        )
    )
    scene.exporter.pages["/honest"] = gpu(UTIL, "honest", "10")
    pods = {
        "both": 50,
        "slices": 30,
        "plain": 80,
        "idle": 0,
        "percent-of-one": 1,
        "one-known": 50,
        "late": 60,
        "honest": 10,
    }
    await reach(source, lambda: None not in {percent(source, pod) for pod in pods}, description="all pods are known")
    percentages = {pod: percent(source, pod) for pod in pods}
    assert percentages == pytest.approx(pods)
    unknown = ("silent-slice", "nan", "negative", "absurd", "percent-as-share", "infinite", "old", "absent", "")
    assert {pod: percent(source, pod) for pod in unknown} == dict.fromkeys(unknown)
    both, plain, late = (source.gpu("ns", pod) for pod in ("both", "plain", "late"))
    assert isinstance(both, Sampled)
    assert isinstance(plain, Sampled)
    assert isinstance(late, Sampled)
    assert (both.source, both.metric, plain.metric) == ("prometheus", ACTIVE, UTIL)
    now = time.monotonic()
    # What the answer takes makes it older, never younger.
    assert -0.5 < now - late.at - (time.time() - late_at) < 5 * PATIENCE, "its time is the sample's own"
    assert now - plain.at < 4 * PATIENCE
    assert "samples left out" in source.status()


async def test_matchers_keep_out_what_others_expose_under_the_same_names(scene: ScrapedPrometheus) -> None:
    scene.exporter.pages["/ending"] = gpu(UTIL, "victim", "100")
    open_to_all = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"))
    await reach(open_to_all, lambda: percent(open_to_all, "victim") == 100, description="the series is there")
    guarded = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}", gpu_matchers='job="dcgm"'))
    await guarded.poll()
    assert guarded.gpu("ns", "victim") is None
    assert "GPU utilisation of" in guarded.status()


async def test_an_exporter_that_ends_leaves_its_pods_unknown_not_idle(
    scene: ScrapedPrometheus, source: PrometheusSource
) -> None:
    scene.exporter.pages["/ending"] = gpu(UTIL, "ending", "50")
    await reach(source, lambda: percent(source, "ending") == 50, description="the pod is known")
    del scene.exporter.pages["/ending"]
    seen = set()

    def is_unknown() -> bool:
        seen.add(percent(source, "ending"))
        return None in seen

    await reach(source, is_unknown, description="the pod is not known any more")
    assert seen == {50.0, None}


@dataclass
class Clock:
    """The monotonic clock, and how far it was put on."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


async def test_values_hold_until_stale_while_prometheus_is_away_and_then_return(scene: ScrapedPrometheus) -> None:
    clock = Clock()
    source = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"), monotonic=clock)
    scene.exporter.pages["/ending"] = gpu(UTIL, "held", "50")
    await reach(source, lambda: percent(source, "held") == 50, description="the pod is known")
    scene.prometheus.kill()
    try:
        pauses = [await source.poll() for _ in range(3)]
        assert percent(source, "held") == 50
        assert [7.5 <= pauses[0] <= 12.5, 15 <= pauses[1] <= 25, 30 <= pauses[2] <= 50] == [True] * 3
        assert scene.prometheus.address in source.status()
        assert "Connection refused" in source.status()
        with pytest.raises(PrometheusError, match="Connection refused"):
            await source.history("ns", "m")
        clock.ahead_s = MAX_AGE_S
        assert source.gpu("ns", "held") is None
    finally:
        scene.prometheus.start()
    await reach(source, lambda: percent(source, "held") == 50, description="the pod is known again")
    assert "Connection refused" not in source.status()


async def test_the_source_polls_by_itself_until_it_is_cancelled(scene: ScrapedPrometheus) -> None:
    source = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"), intervals=PollInterval(poll_s=0.1))
    running = asyncio.create_task(source.run())
    for value in (50.0, 60.0):
        scene.exporter.pages["/ending"] = gpu(UTIL, "polled", f"{value}")
        async with asyncio.timeout(15 * PATIENCE):
            while percent(source, "polled") != value:
                assert not running.done()
                await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_arrivals_of_the_past_become_the_history_of_the_season(scene: ScrapedPrometheus) -> None:
    source = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"), wall=lambda: PAST_END + 10)
    history = await source.history("ns", "m")
    assert history is not None
    assert (history.open, history.until) == (PAST_END / BIN_S, PAST_END)
    first = history.open - len(history.bins)
    assert len(history.bins) >= PAST_BINS
    expected = {first + index: mean for index, mean in enumerate(history.bins) if mean is not None}
    assert expected == pytest.approx({number: wave(number) for number in expected}, rel=0.05)
    unknown = [PAST_BINS + number - history.open for number in range(first, history.open) if number not in expected]
    assert len(unknown) >= len(HOLE) - 2
    assert set(unknown) <= {HOLE.start - 1, *HOLE, HOLE.stop}
    now = PAST_END + 10
    ahead = forecast(history, now, now + 900)
    assert ahead is not None
    assert ahead.rate == pytest.approx(max(wave(history.open + lead) for lead in range(4)), rel=0.1)
    assert await source.history("ns", "nobody") is None


async def test_arrivals_are_those_that_the_agents_count(scene: ScrapedPrometheus) -> None:
    """HAProxy also counts batch inference, which is no demand, and a request that its client sends again counts twice."""
    source = PrometheusSource(PrometheusSite(f"http://{scene.prometheus.address}"), wall=lambda: PAST_END)
    history = await source.history("ns", "batches")
    assert history is not None
    assert history.bins[-1] == pytest.approx(8.0, rel=0.01)


@pytest.mark.parametrize(("cluster", "rate"), [("", 31.0), ("a.b", 6.0), ("elsewhere", None)])
async def test_arrivals_of_other_clusters_are_left_out(
    cluster: str, rate: float | None, scene: ScrapedPrometheus
) -> None:
    site = PrometheusSite(f"http://{scene.prometheus.address}", cluster=cluster)
    history = await PrometheusSource(site, wall=lambda: PAST_END).history("ns", "far")
    assert (history and history.bins[-1]) == (rate and pytest.approx(rate, rel=0.01))


async def test_series_without_a_cluster_are_those_of_the_only_one(scene: ScrapedPrometheus) -> None:
    site = PrometheusSite(f"http://{scene.prometheus.address}", cluster="a.b")
    history = await PrometheusSource(site, wall=lambda: PAST_END).history("ns", "batches")
    assert history is not None
    assert history.bins[-1] == pytest.approx(8.0, rel=0.01)


async def test_a_sites_own_query_for_arrivals_has_namespace_and_name(scene: ScrapedPrometheus) -> None:
    url = f"http://{scene.prometheus.address}"
    query = 'sum(rate(haproxy_frontend_http_requests_total{namespace="$namespace",pod=~"$name-.*",proxy="grpc"}[5m]))'
    own = PrometheusSource(PrometheusSite(url, arrivals=query), wall=lambda: PAST_END)
    history = await own.history("ns", "m")
    assert history is not None
    assert history.bins[-1] == pytest.approx(wave(history.open - 1) / 4, rel=0.05)
    both = query.replace('proxy="grpc"', 'proxy=~"http|grpc"').removeprefix("sum(")[:-1]
    several = PrometheusSource(PrometheusSite(url, arrivals=both), wall=lambda: PAST_END)
    with pytest.raises(PrometheusError, match=r"series, exactly one is required; for example sum\(rate"):
        await several.history("ns", "m")


async def test_a_query_that_prometheus_refuses_is_named_and_stops_no_other(scene: ScrapedPrometheus) -> None:
    wrong = PrometheusSite(f"http://{scene.prometheus.address}", gpu_matchers="job=dcgm", arrivals="sum(")
    source = PrometheusSource(wrong, wall=lambda: PAST_END)
    await source.poll()
    for part in ("HTTP Status Code 400", "correct the query", "job=dcgm", scene.prometheus.address):
        assert part in source.status()
    with pytest.raises(PrometheusError, match=r"correct the query\. Query: sum"):
        await source.history("ns", "m")


async def test_a_token_is_reread_when_it_rotates_and_is_never_shown(scene: ScrapedPrometheus, tmp_path: Path) -> None:
    gate, file = TokenGate(scene.prometheus.address, "first-token"), tmp_path / "token"
    file.write_text("first-token\n")
    with served(gate) as address:
        source = PrometheusSource(PrometheusSite(f"http://{address}", token_file=file))
        await source.poll()
        assert "GPU utilisation of" in source.status()
        gate.token = "second-token"
        await source.poll()
        assert "Status Code 401" in source.status()
        assert "a token that it accepts" in source.status()
        assert "first-token" not in source.status()
        file.write_text("second-token\n")
        await source.poll()
        assert "Status Code 401" not in source.status()
        file.unlink()
        await source.poll()
        assert f"the token file {file} can't be read" in source.status()


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """Address and CA file of a Prometheus with TLS, and a password for `ml`: `secret`."""
    ca = make_ca(datetime.now(UTC))
    pair = issue(ca, ["127.0.0.1"], datetime.now(UTC))
    for name, text in {"ca.crt": ca.cert_pem, "tls.crt": pair.cert_pem, "tls.key": pair.key_pem}.items():
        (tmp_path / name).write_text(text)
    web = {
        "tls_server_config": {"cert_file": f"{tmp_path}/tls.crt", "key_file": f"{tmp_path}/tls.key"},
        "basic_auth_users": {"ml": "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"},
    }
    with prometheus([], web=web) as running:
        yield running.address, tmp_path / "ca.crt"


async def test_tls_needs_the_sites_ca_and_passwords_in_urls_stay_hidden(guarded: tuple[str, Path]) -> None:
    address, ca_file = guarded
    good = PrometheusSource(PrometheusSite(f"https://ml:secret@{address}", ca_file=ca_file))
    await good.poll()
    assert good.status().startswith(f"Prometheus at https://{address}: GPU utilisation of 0 pods")
    statuses = []
    for site in (
        PrometheusSite(f"https://ml:secret@{address}"),
        PrometheusSite(f"https://ml:secret@{address}", ca_file=ca_file.with_name("none")),
        PrometheusSite(f"https://ml:wrong-secret@{address}", ca_file=ca_file),
    ):
        source = PrometheusSource(site)
        await source.poll()
        statuses.append(source.status())
    assert [
        "unable to get local issuer certificate" in statuses[0],
        "CA file" in statuses[1],
        "401" in statuses[2],
    ] == [True] * 3, statuses
    assert not [text for text in statuses if "secret" in text]


async def judged(ask: RunQuery, metric: object) -> CanaryResult:
    """The verdict on a canary that is as good as the stable one, once its metric has a value."""
    queried = Queried(metric=metric)
    queried.queries = CanaryQueries(ask, DrivenClock(lambda: queried.now))
    queried.queries.planned(KEY, queried.spec, queried.rollout)
    queried.now += 60
    task = asyncio.ensure_future(queried.queries.run())
    async with asyncio.timeout(15 * PATIENCE):
        verdict = None
        while verdict is None or "no value yet" in verdict.why:
            await asyncio.sleep(0.05)
            verdict = queried.verdict()
    task.cancel()
    return verdict


async def test_a_canary_is_judged_by_a_query_of_the_real_one(
    scene: ScrapedPrometheus, source: PrometheusSource
) -> None:
    lines = {"orders": ("8", "19"), "visits": ("20", "20")}
    scene.exporter.pages["/dcgm"] = "".join(
        f'{name}{{namespace="team",deployment="digits-{slot}"}} {value}\n'
        for name, values in lines.items()
        for slot, value in zip("ba", values, strict=True)
    )
    labels = '{exported_namespace="{{namespace}}",deployment="{{deployment}}"}'
    query = f"sum(orders{labels}) / sum(visits{labels})"
    ask = source.beside(5.0).value
    async with asyncio.timeout(15 * PATIENCE):
        known = None
        while known is None:
            known = await ask('orders{deployment="digits-b"}')
    for limit, action in (("0.5", "rollback"), ("0.25", "promote")):
        verdict = await judged(ask, {"name": "conversion", "query": query, "min": limit, "failureLimit": 1})
        assert (verdict.action, f"metric conversion is 0.4 (at least {limit}" in verdict.why) == (action, True)
    with pytest.raises(PrometheusError, match="4 series, exactly one is required"):
        await ask('{__name__=~"orders|visits"}')
    with pytest.raises(PrometheusError, match="correct the query"):
        await ask("sum(")
    assert await ask("absent_series") is None
