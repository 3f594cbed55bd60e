"""Numbers that programs show: the dashboard, the operator's metrics, the status, the command line, and Grafana's queries.

A published value of the status is compared with the operator's metric of the same time, since the status changes only if a
value has changed noticeably (docs/reference/numbers.md). What `top`, `get` and `explain` print is compared with the status.
"""

# | place                          | compared with                                                                    |
# | ------------------------------ | -------------------------------------------------------------------------------- |
# | the dashboard's documents      | the client's log, HAProxy's statistics and Triton's pages, as in `in_process`    |
# | the operator's metrics         | the same, over 15 s                                                              |
# | Grafana's panels               | the same, over the rate interval; a real Prometheus evaluates their queries      |
# | values in the status           | the operator's metrics within 2 s of the publication                             |
# | `top`, `get`, `explain`        | the status before or after the command                                           |
# | ready replicas, GPUs, starts   | the pods in the API server                                                       |

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from benchmarks import open_loop
from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import Work
from benchmarks.open_loop import Sent
from benchmarks.right.shown.in_process import LAG_S, busy_percent, rates
from benchmarks.right.shown.load import MODEL, PEAK_RPS, PER_ROW_MS, T0_MS, steady
from benchmarks.right.shown.scene import Scene, scene
from benchmarks.right.shown.truth import Apart, Pair, check_pace, client_counts, client_quantiles, means, watch
from demo.kube import is_ready, samples
from e2e.queries import values
from generators.monitoring import promql, queries
from halcyon.control.reporting.dashboard_source import WINDOW_S
from halcyon.dashboard.history import STEP_S
from halcyon.dashboard.ports import ModelNumbers
from halcyon.kube import kinds
from tests.integration.autoscaling.test_direct_scaling import servers

RATE_S = 60.0
"""Grafana's rate interval."""
SETTLE_S, MEASURE_S, LONG_S = 80.0, 60.0, 200.0
"""Seconds before a measurement, of one under overload, and of others."""
_PANELS_INTERVAL_S, _PROGRAMS_INTERVAL_S = 5.0, 20.0
_DELAY_S = 2.5
"""Maximum age of HAProxy's counters on a page of the agent that Prometheus has scraped, or in the dashboard."""
_QUANTILES = (0.5, 0.95, 0.99)
_FLEET, _MODEL = "Halcyon / Fleet", "Halcyon / Model"
_EACH = promql.NAME


@dataclass
class Shown:
    """Readings of each place, with the time on the monotonic clock before and after each."""

    dashboard: list[tuple[float, float, dict[str, Any]]] = field(default_factory=list)
    quantiles: list[tuple[float, float, float, tuple[float | None, ...]]] = field(default_factory=list)
    """(time of the last reading without the point, time of the first reading with it, time of the point, values in ms)."""
    metrics: list[tuple[float, float, dict[str, float]]] = field(default_factory=list)
    status: list[tuple[float, float, dict[str, Any]]] = field(default_factory=list)
    panels: list[tuple[float, float, dict[str, float]]] = field(default_factory=list)
    same: list[Pair] = field(default_factory=list)


async def measure(pods: int, share: float) -> list[Pair]:
    """Measure all places under one load.

    Raises:
        BenchError: the machine was too busy (`truth.check_pace`).
    """
    apart, shown = Apart(), Shown()
    profile = steady(pods, share, SETTLE_S + (MEASURE_S if share > 1 else LONG_S))
    with tritons.running([Work(MODEL, T0_MS, PER_ROW_MS)] * pods) as triton_servers:
        async with scene(triton_servers) as site:
            with open_loop.running(site.balancer.grpc, MODEL, profile, deadline_s=60.0, seed=1) as load:
                tasks = [
                    asyncio.create_task(work)
                    for work in (
                        watch(apart, triton_servers, site.haproxy),
                        _every(1.0, lambda: _read(site, shown)),
                        _every(_PANELS_INTERVAL_S, lambda: _query(site, shown)),
                        _run_programs(site, shown),
                    )
                ]
                await asyncio.sleep(load.began_s + profile.until_s - time.monotonic())
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                sent = [await asyncio.to_thread(load.result)]
                for end in ends:
                    if not isinstance(end, asyncio.CancelledError) and isinstance(end, BaseException):
                        raise end
            check_pace(apart, sent)
            shown.same += await asyncio.to_thread(_counts, site, pods)
    begin = load.began_s + SETTLE_S
    return [
        *_dashboard_pairs(shown, apart, sent, begin, pods),
        *_metric_pairs(shown, apart, begin, pods),
        *_panel_pairs(shown, apart, sent, begin, pods),
        *_status_pairs(shown, begin),
        *shown.same,
    ]


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        began = time.monotonic()
        await asyncio.to_thread(action)
        await asyncio.sleep(max(began + seconds - time.monotonic(), 0.0))


def _read(site: Scene, shown: Shown) -> None:
    """Read the dashboard, the operator's metrics and the status once."""
    began = time.monotonic()
    shown.dashboard.append((began, time.monotonic(), site.page("")))
    history = site.page("/history")
    point = tuple(history[f"p{share * 100:g}"][-1] if history["p50"] else None for share in _QUANTILES)
    last = shown.quantiles[-1] if shown.quantiles else None
    if last is None or last[2] != history["end"]:
        shown.quantiles.append((shown.dashboard[-2][0] if last else began, time.monotonic(), history["end"], point))
    began = time.monotonic()
    page = samples(site.operator.fetch("/metrics"))
    model_samples = [sample for sample in page if sample.labels.get("namespace") == site.space.namespace]
    shown.metrics.append((began, time.monotonic(), {sample.name: sample.value for sample in model_samples}))
    began = time.monotonic()
    shown.status.append((began, time.monotonic(), site.space.status()))


def variables(namespace: str) -> dict[str, str]:
    """Return the value of each variable of Grafana's dashboards."""
    return {
        "cluster": ".*",
        "namespace": namespace,
        "model": ".*",
        "job": "halcyon-metrics",
        "__rate_interval": f"{RATE_S:.0f}s",
    }


def _query(site: Scene, shown: Shown) -> None:
    """Evaluate Grafana's queries once."""
    chosen = variables(site.space.namespace)
    began = time.monotonic()
    panels = {
        panel.location: sum(series)
        for panel in queries.panels(chosen)
        if panel.location in EXPECTED and (series := values(site.site.address, panel.expression))
    }
    shown.panels.append((began, time.monotonic(), panels))


async def _run_programs(site: Scene, shown: Shown) -> None:
    """Run the command line now and then, and compare what it prints with the status."""
    await asyncio.sleep(SETTLE_S)
    while True:
        before = await asyncio.to_thread(site.space.status)
        [top] = json.loads(await site.program("top", "-o", "json"))
        [listed] = json.loads(await site.program("get", "-o", "report"))
        explained = json.loads(await site.program("explain", MODEL, "-o", "json"))
        report = json.loads(await site.program("status", MODEL, "-o", "json"))
        statuses = before, await asyncio.to_thread(site.space.status)
        for name in ("queue", "gpu", "batch"):
            true = tuple(value for status in statuses if (value := _number(status["summary"].get(name))) is not None)
            for program, row in (("top", top), ("get", listed)):
                if true or _number(row[name]) is not None:
                    shown.same.append(Pair(f"{name}, {program}", _number(row[name]), true, "same"))
        for signal in explained["signals"]:
            true = tuple(value for status in statuses if (value := _signal(status, signal["name"])) is not None)
            if true or signal["value"] is not None:
                shown.same.append(Pair(f"{signal['name']}, explain", _number(signal["value"]), true, "same"))
        for name in ("requestsPerSecond", "sustainedRequestsPerSecond"):
            capacity = explained["capacity"] or {}
            true = tuple(float(status["capacity"][name]) for status in statuses if name in status.get("capacity", {}))
            if true:
                shown.same.append(Pair(f"capacity, {name}, explain", _number(capacity.get(name)), true, "same"))
        ready = tuple(float(status["readyReplicas"]) for status in statuses)
        shown.same.append(Pair("ready replicas, top", _number(top["replicas"]), ready, "same"))
        shown.same.append(
            Pair("ready replicas, status", _number(report["text"].partition(": ")[2].split(" ")[0]), ready, "same")
        )
        await asyncio.sleep(_PROGRAMS_INTERVAL_S)


def _counts(site: Scene, pods: int) -> list[Pair]:
    """Compare ready replicas, GPUs and the start time with the pods in the API server, as KWOK reports them."""
    model_pods = [pod for pod in site.space.every(kinds.POD) if pod["metadata"]["name"] in servers(site.space)]
    ready = float(sum(map(is_ready, model_pods)))
    placed = float(sum("nodeName" in pod["spec"] for pod in model_pods))
    status, page = site.space.status(), site.page("")
    starts = tuple(map(_start_s, model_pods))
    started = _number((status.get("coldStart") or {}).get("seconds"))
    return [
        Pair("start time, status field", started, starts, "same"),
        Pair("ready replicas, status field", float(status["readyReplicas"]), (ready,)),
        Pair("ready replicas, dashboard", float(page["model"]["ready"]), (ready,)),
        Pair("GPUs, dashboard", float(page["model"]["gpus"]), (placed,)),
        Pair("existing pods, status field", float(status["replicas"]), (float(pods),)),
    ]


def _start_s(pod: dict[str, Any]) -> float:
    """Return the seconds from a pod's creation until it was ready."""
    conditions = {condition["type"]: condition["lastTransitionTime"] for condition in pod["status"]["conditions"]}
    begun, ended = (datetime.fromisoformat(at) for at in (pod["metadata"]["creationTimestamp"], conditions["Ready"]))
    return (ended - begun).total_seconds()


def _dashboard_pairs(shown: Shown, apart: Apart, sent: Sequence[Sent], begin: float, pods: int) -> Iterator[Pair]:
    pairs = []
    for _, at, page in shown.dashboard:
        if at < begin:
            continue
        now = {name: value for name, value in page["now"].items() if name != "errors"}
        numbers = ModelNumbers(**now)
        pairs += rates(numbers, apart, sent, at, pods=pods, balanced=True)
        pairs.append(("waiting", numbers.waiting, apart.mean_waiting(at - WINDOW_S, at)))
    for pair in means(pairs):
        yield Pair(f"{pair.name}, dashboard", pair.shown, pair.true)
    for before, after in zip(shown.quantiles[1:], shown.quantiles[2:], strict=False):
        if before[0] < begin or after[2] != before[2] + STEP_S:
            continue
        for share, value in zip(_QUANTILES, after[3], strict=True):
            true = client_quantiles(sent, _times(*before[:2]), _times(*after[:2]), share)
            yield Pair(
                f"latency p{share * 100:g} at {after[1] - apart.at[0]:.0f} s, dashboard", value, true, "quantile"
            )


def _times(first: float, last: float) -> tuple[float, ...]:
    """Return times at which HAProxy's counters may have been read that were shown between `first` and `last`."""
    begin, count = first - _DELAY_S, 6
    return tuple(begin + (last - begin) * n / count for n in range(count + 1))


_METRIC_NUMBERS = {
    "halcyon_model_queue_requests": "waiting",
    "halcyon_model_gpu_utilization_ratio": "GPU in percent",
    "halcyon_model_replica_capacity_requests_per_second": "capacity of a replica",
    "halcyon_model_replicas_ready": "ready replicas",
    "halcyon_model_gpus": "GPUs",
}


def _metric_pairs(shown: Shown, apart: Apart, begin: float, pods: int) -> Iterator[Pair]:
    pairs = []
    for _, at, page in shown.metrics:
        if at < begin:
            continue
        low, high = at - WINDOW_S, at
        true = {
            "waiting": apart.mean_waiting(low, high),
            "GPU in percent": busy_percent(apart, low - LAG_S, high - LAG_S, pods),
            "capacity of a replica": PEAK_RPS,
            "ready replicas": float(pods),
            "GPUs": float(pods),
        }
        for name, number in _METRIC_NUMBERS.items():
            value = page.get(name)
            if value is not None and name.endswith("_ratio"):
                value *= 100
            pairs.append((f"{number}, {name}", value, true[number]))
    yield from means(pairs)


@dataclass(frozen=True)
class _Window:
    """The rate interval of one evaluation of Grafana's queries, with the samples of that time."""

    apart: Apart
    sent: Sequence[Sent]
    at: float
    """Time of the evaluation."""
    pods: int

    @property
    def _times(self) -> tuple[float, float]:
        return self.at - LAG_S - RATE_S, self.at - LAG_S

    @property
    def received(self) -> float:
        """Requests per second that the client sent."""
        return client_counts(self.sent, *self._times)[0] / RATE_S

    @property
    def failed(self) -> float:
        """Requests per second that failed at the client."""
        return client_counts(self.sent, *self._times)[1] / RATE_S

    @property
    def waiting(self) -> float:
        """Mean of the waiting requests over the 15 s of the operator's metric."""
        return self.apart.mean_waiting(self.at - WINDOW_S, self.at)

    @property
    def busy(self) -> float:
        """Busy share of the instances in percent."""
        return busy_percent(self.apart, self.at - WINDOW_S - LAG_S, self.at - LAG_S, self.pods)

    @property
    def batch(self) -> float:
        """Mean rows of a batch."""
        return self.apart.grown("rows", *self._times) / self.apart.grown("executions", *self._times)

    def now(self, values: Sequence[float]) -> float:
        """Return the mean of a gauge in the last second."""
        return self.apart.mean(values, self.at - 1, self.at)

    def ms(self, counter: str) -> float:
        """Return the mean milliseconds of a request by a counter of microseconds."""
        return self.apart.grown(counter, *self._times) / self.apart.grown("succeeded", *self._times) / 1e3


@dataclass(frozen=True)
class _Panel:
    """Expected number of a panel: the number computed apart, and the factor from the panel's unit to that of the number."""

    true: Callable[[_Window], float]
    factor: float = 1.0


EXPECTED: Mapping[str, _Panel | float] = {
    f"{_MODEL}, Requests: received": _Panel(lambda window: window.received),
    f"{_MODEL}, Requests: rejected": _Panel(lambda window: window.failed),
    f"{_FLEET}, Requests: {_EACH}": _Panel(lambda window: window.received),
    f"{_FLEET}, Rejected or lost: {_EACH}": _Panel(lambda window: window.failed),
    f"{_FLEET}, Waiting: {_EACH}": _Panel(lambda window: window.waiting),
    f"{_MODEL}, Queued: for a server's free capacity": _Panel(lambda window: window.now(window.apart.queued)),
    f"{_MODEL}, Queued: in Triton": _Panel(lambda window: window.now(window.apart.pending)),
    f"{_MODEL}, Requests in progress, by pod: {{{{server_pod}}}}": _Panel(
        lambda window: window.now(window.apart.inside)
    ),
    f"{_MODEL}, Latency breakdown in Triton: queue": _Panel(lambda window: window.ms("queue_us"), 1000.0),
    f"{_MODEL}, Latency breakdown in Triton: input": _Panel(lambda window: window.ms("input_us"), 1000.0),
    f"{_MODEL}, Latency breakdown in Triton: model": _Panel(lambda window: window.ms("compute_us"), 1000.0),
    f"{_MODEL}, Latency breakdown in Triton: output": _Panel(lambda window: window.ms("output_us"), 1000.0),
    f"{_MODEL}, Batch size: items": _Panel(lambda window: window.batch),
    f"{_MODEL}, GPU utilisation: mean used by scaling": _Panel(lambda window: window.busy, 100.0),
    f"{_FLEET}, GPU utilisation: {_EACH}": _Panel(lambda window: window.busy, 100.0),
    f"{_MODEL}, Error ratio in Triton: failed": _Panel(lambda _: 0.0, 100.0),
    f"{_MODEL}, Replicas: ready": _Panel(lambda window: float(window.pods)),
    f"{_FLEET}, Client latency, p95: {_EACH}": 0.95,
    **{f"{_MODEL}, Client latency: p{share * 100:g}": share for share in _QUANTILES},
}
"""What panels show: a number, or a quantile of the clients' latency."""


def _panel_pairs(shown: Shown, apart: Apart, sent: Sequence[Sent], begin: float, pods: int) -> Iterator[Pair]:
    pairs = []
    for first, at, panel_values in shown.panels:
        if first < begin:
            continue
        for panel, expected in EXPECTED.items():
            value = panel_values.get(panel)
            if isinstance(expected, _Panel):
                scaled = None if value is None else value * expected.factor
                pairs.append((f"{panel}, Grafana", scaled, expected.true(_Window(apart, sent, at, pods))))
                continue
            true = client_quantiles(sent, _times(first - RATE_S, at - RATE_S), _times(first, at), expected)
            name = f"{panel} at {at - apart.at[0]:.0f} s, Grafana"
            yield Pair(name, None if value is None else value * 1000, true, "quantile")
    yield from means(pairs)


def _status_pairs(shown: Shown, begin: float) -> Iterator[Pair]:
    """Compare values that the status newly has with the operator's metrics of the same time."""
    metric_of = {
        "queueDepth": ("halcyon_model_queue_requests", 1.0),
        "gpuUtilization": ("halcyon_model_gpu_utilization_ratio", 100.0),
        "requestRate": ("halcyon_model_requests_per_second", 1.0),
    }
    for (before, _, old), (_, after, new) in zip(shown.status, shown.status[1:], strict=False):
        if before < begin or old.get("scaling", {}).get("decidedAt") == new.get("scaling", {}).get("decidedAt"):
            continue
        for signal, (metric, factor) in metric_of.items():
            value = _signal(new, signal)
            near = [
                page[metric] * factor
                for first, last, page in shown.metrics
                if metric in page and first >= before - 2 and last <= after + 2
            ]
            if value is None or not near:
                continue
            pods = new["readyReplicas"] if signal == "gpuUtilization" else 1
            yield Pair(f"{signal} at {after - shown.status[0][0]:.0f} s, status", value / pods, tuple(near), "same")


def _signal(status: Mapping[str, Any], name: str) -> float | None:
    signals = status.get("scaling", {}).get("signals") or ()
    return next((_number(signal.get("value")) for signal in signals if signal["name"] == name), None)


def _number(text: object) -> float | None:
    """Return the number in a text such as `12/64`; None if there is none."""
    with contextlib.suppress(ValueError):
        return float(str(text).partition("/")[0])
    return None
