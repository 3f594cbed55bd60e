"""Mean durations of the phases of a request, from its due time to the end of its processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon_measure.results import statistics
from halcyon_measure.results.durations import SOURCE, Durations
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.observations import Counters
from halcyon_measure.results.sections.phases import Phase, PhaseName, Phases, Side

ADDS_UP = 0.02
"""Maximum difference between the sum of the phases and the mean latency, as a share of the mean latency."""
_MEANS = "a mean of counters has no percentiles"


@dataclass(frozen=True)
class Means:
    """Mean times from the counters of server and balancers, in seconds; None with a reason if they weren't measured."""

    server: Counters | None = None
    no_server: str = ""
    held_s: float | None = None
    queued_s: float | None = None
    no_balancer: str = ""
    balancer_source: str = ""


@dataclass(frozen=True)
class ClientFacts:
    """Facts about the client that determine which phases a request has."""

    prepares: bool
    """Whether requests are prepared when they are due."""
    finishes: bool
    has_first_byte: bool = True
    """Whether the times of the first and the last byte of an answer are known separately."""
    encode_each_s: float | None = None
    """Mean time to serialise one request before the run, in seconds."""


def build(answered: Mapping[str, Durations], client: ClientFacts, means: Means) -> Phases:
    """Return the phases of answered requests. `answered` contains their durations by the names in `folded.PARTS`."""
    count, mean = answered["latency"].n, answered["latency"].mean
    if mean is None:
        reason = "no request was answered"
        return Phases(
            end_to_end=unmeasured("ms", reason), parts=(), total=unmeasured("ms", reason), adds_up=False, reason=reason
        )
    parts = [*_before(answered, client), *_balancer(means, count), *_server(means), *_after(answered, client)]
    measured = sum(part.mean.value for part in parts if part.mean.value is not None) / 1000
    # Times from counters can't exceed the latency that contains them. If they do, the sum of the phases shows it.
    rest = max(mean - measured, 0.0)
    missing = [part.name for part in parts if part.mean.value is None]
    parts.append(
        Phase(
            name="rest",
            side="remainder",
            mean=Figure(
                value=1000 * rest,
                unit="ms",
                n=count,
                source="latency without the measured parts",
                reason=f"it contains what wasn't measured: {', '.join(missing)}" if missing else "",
            ),
            p99=unmeasured("ms", "a remainder of means"),
        )
    )
    total = measured + rest
    adds_up = abs(total - mean) <= ADDS_UP * mean
    reason = means.no_server
    if not adds_up:
        reason = (
            f"the parts sum up to {1000 * total:.2f} ms, the mean latency is {1000 * mean:.2f} ms: the counters include "
            "other requests, or requests of the warm-up"
        )
    return Phases(
        end_to_end=Figure(value=1000 * mean, unit="ms", n=count, source="due to finished"),
        parts=tuple(parts),
        total=Figure(value=1000 * total, unit="ms", n=count, source="sum of the parts"),
        adds_up=adds_up,
        reason=reason,
    )


def _before(answered: Mapping[str, Durations], client: ClientFacts) -> list[Phase]:
    encode_text = "" if client.encode_each_s is None else f", in {1e6 * client.encode_each_s:.0f} us each"
    reason = "" if client.prepares else f"requests were serialised before the run{encode_text}"
    preparing = (
        _client("prepare", answered["prepare"], "due to prepared, without serialising")
        if client.prepares
        else _absent("prepare", "requests were prepared before the run")
    )
    serialising = (
        _client("serialise", answered["serialise"], "encoding in the process of the function")
        if client.prepares
        else _absent("serialise", reason)
    )
    late = _client("late", answered["late"], "prepared to sent")
    return [preparing, serialising, late, _send(answered)]


def _send(answered: Mapping[str, Durations]) -> Phase:
    if answered["send"].is_known:
        return _client("send", answered["send"], "sent to the last byte in the socket")
    return _unknown("send", "client", "gRPC's client doesn't report when a request is written")


def _balancer(means: Means, count: int) -> list[Phase]:
    phases = []
    held: PhaseName = "balancer_held"
    queued: PhaseName = "balancer_queued"
    for name, value in ((held, means.held_s), (queued, means.queued_s)):
        if value is None:
            phases.append(_unknown(name, "balancer", means.no_balancer))
        else:
            phases.append(_mean(name, "balancer", value, count, means.balancer_source))
    return phases


def _server(means: Means) -> list[Phase]:
    server = means.server
    names: tuple[PhaseName, ...] = ("queue", "input", "model", "output")
    if server is None or server.requests <= 0:
        return [_unknown(name, "server", means.no_server) for name in names]
    times = (server.queue_s, server.input_s, server.model_s, server.output_s)
    source = "Triton's counters of requests in the measured part"
    return [
        _mean(name, "server", seconds / server.requests, int(server.requests), source)
        for name, seconds in zip(names, times, strict=True)
    ]


def _after(answered: Mapping[str, Durations], client: ClientFacts) -> list[Phase]:
    parts = [
        _client("receive", answered["receive"], "first byte to done")
        if client.has_first_byte
        else _unknown("receive", "client", "gRPC's client reports the whole answer only; --pod-header separates them")
    ]
    if not client.finishes:
        reason = "answers are not decoded without --finish"
        return [*parts, _absent("decode", reason), _absent("finish", reason)]
    return [
        *parts,
        _client("decode", answered["decode"], "decoding in the process of the function"),
        _client("finish", answered["finish"], "done to finished, without decoding"),
    ]


def _client(name: PhaseName, seconds: Durations, source: str) -> Phase:
    p99, mean = seconds.percentile(0.99), seconds.mean
    uncertainty = "" if statistics.supports(seconds.n, 0.99) else "fewer than ten requests lie above it"
    source = f"{source}; {SOURCE}" if seconds.is_counted else source
    return Phase(
        name=name,
        side="client",
        mean=Figure(value=None if mean is None else 1000 * mean, unit="ms", n=seconds.n, source=source),
        p99=Figure(
            value=None if p99 is None else 1000 * p99, unit="ms", n=seconds.n, source=source, reason=uncertainty
        ),
    )


def _absent(name: PhaseName, reason: str) -> Phase:
    """Return a phase that doesn't occur in these requests. Its time is 0, and it contains the reason."""
    figure = Figure(value=0.0, unit="ms", n=0, source="the options of the run", reason=reason)
    return Phase(name=name, side="client", mean=figure, p99=figure)


def _mean(name: PhaseName, side: Side, seconds: float, count: int, source: str) -> Phase:
    return Phase(
        name=name,
        side=side,
        mean=Figure(value=1000 * seconds, unit="ms", n=count, source=source),
        p99=unmeasured("ms", _MEANS),
    )


def _unknown(name: PhaseName, side: Side, reason: str) -> Phase:
    return Phase(name=name, side=side, mean=unmeasured("ms", reason), p99=unmeasured("ms", reason))
