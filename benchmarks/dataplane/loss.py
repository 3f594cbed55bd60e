"""Parts `loss` and `single`: requests lost during scaling, rollouts, evictions, and restarts of balancers and operator.

The load is 100,000 requests, half over HTTP keep-alive and half over gRPC channels that stay open for the whole load.
The same load measures how long a ready pod waits for its first request, and how long a terminating pod still receives
new ones.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.dataplane import events, sender, stage
from benchmarks.dataplane.events import Event, Subject
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.sender import Sent, Steady
from benchmarks.dataplane.stage import PodTimes
from benchmarks.errors import BenchError
from benchmarks.rows import quantile
from demo.errors import DemoError
from demo.kube import Kube
from e2e.cluster.progress import say

_SETTLE_S = 3.0
_REQUEST_TIMEOUT_S = 30
STAND_INS = ("the pods run Triton on CPUs and serve the example model `digits`; the cluster has one node",)


@dataclass(frozen=True)
class Window:
    """The period from the start of an event to the start of the next event."""

    event: str
    from_s: float
    until_s: float


def run(kube: Kube, *, short: bool) -> PartResults:
    """Run the part. Full: 100,000 requests at 400/s, 5 minutes. Short: 10,000 at 60/s, 3 minutes for the events."""
    rate, count = (60.0, 10_000) if short else (400.0, 100_000)
    model = stage.digits(
        "loss", replicas=2, balancers=2, queueTimeout=f"{_REQUEST_TIMEOUT_S}s", responseTimeout=f"{_REQUEST_TIMEOUT_S}s"
    )
    with stage.served(kube, model, replicas=2) as name:
        subject = Subject(kube, name, replicas=2, balancers=2)
        sent, windows, times, broken = asyncio.run(_under_load(subject, events.ALL, rate, count, most_s=480))
    pod_waits = waits(sent, times)
    first_sent, first_answer, last_sent = pod_waits.first_sent, pod_waits.first_answer, pod_waits.last_sent
    return PartResults(
        figures={
            "loss": lost(sent, windows),
            "ready_to_first_request_s": quantile(first_sent.values(), 0.99),
            "terminating_to_last_request_s": quantile(last_sent.values(), 0.99),
        },
        details={
            **details(sent, broken),
            "balancers": 2,
            "pods_that_came": len(first_sent),
            "pods_that_went": len(last_sent),
            "ready_to_first_request_s_p50": quantile(first_sent.values(), 0.5),
            "ready_to_first_request_s": by_event(first_sent, times.ready_s, windows),
            "ready_to_first_answer_s_p50": quantile(first_answer.values(), 0.5),
            "ready_to_first_answer_s_p99": quantile(first_answer.values(), 0.99),
            "ready_to_first_answer_s": by_event(first_answer, times.ready_s, windows),
            "terminating_to_last_request_s_p50": quantile(last_sent.values(), 0.5),
            "terminating_to_last_request_s": by_event(last_sent, times.leaving_s, windows),
            "terminating_to_gone_s_p50": quantile(ends_s(times), 0.5),
            "terminating_to_gone_s_p99": quantile(ends_s(times), 0.99),
        },
        stand_ins=STAND_INS,
    )


def run_single(kube: Kube, *, short: bool) -> PartResults:
    """Run the part with one replica: 2,000 requests at 20/s, 1.5 minutes. Requests wait while a pod starts."""
    rate, count = (10.0, 200) if short else (20.0, 2_000)
    model = stage.digits(
        "single",
        replicas=1,
        balancers=1,
        queueTimeout=f"{_REQUEST_TIMEOUT_S}s",
        responseTimeout=f"{_REQUEST_TIMEOUT_S}s",
    )
    with stage.served(kube, model, replicas=1) as name:
        subject = Subject(kube, name, replicas=1, balancers=1)
        sent, windows, _, broken = asyncio.run(_under_load(subject, events.SINGLE_REPLICA, rate, count, most_s=240))
    return PartResults(
        figures={"loss_one_replica": lost(sent, windows)},
        details={**details(sent, broken), "balancers": 1},
        stand_ins=STAND_INS,
    )


async def _under_load(
    subject: Subject, named_events: Mapping[str, Event], rate_rps: float, count: int, *, most_s: float
) -> tuple[Sent, list[Window], PodTimes, dict[str, str]]:
    load = Steady(
        addresses=stage.addresses(subject.kube, subject.name),
        model=subject.name,
        rate_rps=rate_rps,
        most_s=most_s,
        timeout_s=_REQUEST_TIMEOUT_S + 5.0,
    )
    began: list[tuple[str, float]] = []
    broken: dict[str, str] = {}
    async with stage.pod_times(subject.kube, subject.name) as times:
        with sender.running(load) as running:
            began.append(("at rest", running.began_s))
            await asyncio.sleep(_SETTLE_S)
            for event, happen in named_events.items():
                began.append((event, time.monotonic()))
                try:
                    await happen(subject)
                except (DemoError, BenchError) as error:
                    broken[event] = str(error)
                    say(f"bench: {event}: {error}")
                await asyncio.sleep(_SETTLE_S)
                say(f"bench: {event}: {time.monotonic() - began[-1][1]:.0f} s; {running.requests} requests so far")
            began.append(("at rest after it", time.monotonic()))
            await asyncio.to_thread(running.until, count, running.began_s + most_s)
            sent = await asyncio.to_thread(running.stop)
    ends = [*(at for _, at in began[1:]), sent.ended_s + 1.0]
    return sent, [Window(event, at, end) for (event, at), end in zip(began, ends, strict=True)], times, broken


def lost(sent: Sent, windows: Sequence[Window]) -> dict[str, object]:
    """Return the requests and failures in total and by event. A failure belongs to the event in which it was sent."""
    counts_by_event: dict[str, object] = {}
    for window in windows:
        begin, end = (int(at - sent.began_s) for at in (window.from_s, window.until_s))
        counts_by_event[window.event] = {
            "requests": sum(count for second, count in sent.by_second.items() if begin <= second < end),
            "failed": sum(window.from_s <= failure.sent_s < window.until_s for failure in sent.failures),
            "seconds": round(window.until_s - window.from_s, 1),
        }
    return {
        "requests": sent.requests,
        "failed": len(sent.failures),
        "by_event": counts_by_event,
    }


@dataclass(frozen=True)
class Waits:
    """Waiting times of pods that started or terminated under the load, in seconds, at least 0.

    Pods that never sent a response are left out.
    """

    first_sent: dict[str, float]
    """Time from readiness until the first request that the pod answered was sent."""
    first_answer: dict[str, float]
    """Time from readiness until the first response. It includes the duration of that request, and a server's first
    request is slow."""
    last_sent: dict[str, float]
    """Time from the start of termination until the last request that the pod answered was sent."""


def waits(sent: Sent, times: PodTimes) -> Waits:
    """Return how soon pods received their first request, and how long they received new ones.

    A request sent before a pod was ready may still be answered by it. It counts as 0.
    """
    started = {pod: at for pod, at in times.ready_s.items() if at > sent.began_s}
    return Waits(
        _since(started, sent.first_sent_s),
        _since(started, sent.first_answer_s),
        _since(times.leaving_s, sent.last_sent_s),
    )


def _since(at_s: Mapping[str, float], then_s: Mapping[str, float]) -> dict[str, float]:
    return {pod: round(max(then_s[pod] - at, 0.0), 3) for pod, at in at_s.items() if pod in then_s}


def by_event(
    waited: Mapping[str, float], at_s: Mapping[str, float], windows: Sequence[Window]
) -> dict[str, list[float]]:
    """Return the waiting times of pods by the event in which each pod started or terminated, longest first."""
    seconds_by_event: dict[str, list[float]] = {}
    for pod, seconds in sorted(waited.items(), key=lambda item: -item[1]):
        event = next((w.event for w in windows if w.from_s <= at_s[pod] < w.until_s), "after the load")
        seconds_by_event.setdefault(event, []).append(seconds)
    return seconds_by_event


def ends_s(times: PodTimes) -> list[float]:
    """Return the seconds from the start of termination until the pod was deleted, for each pod whose end was observed."""
    return [
        round(deleted_s - times.leaving_s[pod], 1)
        for pod, deleted_s in times.deleted_s.items()
        if pod in times.leaving_s
    ]


def details(sent: Sent, broken: Mapping[str, str]) -> dict[str, object]:
    """Return details that explain a loss."""
    return {
        "seconds": round(sent.ended_s - sent.began_s, 1),
        "answered": sent.answered,
        "longest_s": round(sent.longest_s, 2),
        "failures": dict(Counter(f"{f.protocol} {f.kind}" for f in sent.failures).most_common(8)),
        "events_not_done": dict(broken),
    }
