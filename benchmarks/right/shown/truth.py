"""Numbers of a load, computed apart from Halcyon's code: from Triton's pages, HAProxy's statistics and the client's log."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from statistics import fmean
from typing import Literal

import aiohttp

from benchmarks.dataplane.tritons import Triton
from benchmarks.errors import BenchError
from benchmarks.open_loop import Sent
from demo.kube import samples, total

MAX_OFF = 0.05
BUCKETS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
COUNTERS = {
    "succeeded": "nv_inference_request_success",
    "queue_us": "nv_inference_queue_duration_us",
    "input_us": "nv_inference_compute_input_duration_us",
    "compute_us": "nv_inference_compute_infer_duration_us",
    "output_us": "nv_inference_compute_output_duration_us",
    "rows": "nv_inference_count",
    "executions": "nv_inference_exec_count",
}
_INTERVAL_S = 0.1
MAX_LATE_S, MAX_GAP_S = 0.3, 1.0
"""Maximum delay of a request behind its due time, and maximum time between two samples, in seconds."""
_OF_BACKENDS, _OF_SERVERS = 2, 4
"""Types of rows in HAProxy's statistics."""
_BACKENDS = ("http_", "grpc_")


@dataclass
class Apart:
    """Samples of Triton's pages and of HAProxy's statistics. Times are of the monotonic clock."""

    at: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    """Requests that wait in the balancer."""
    pending: list[float] = field(default_factory=list)
    """Requests that wait in Triton."""
    inside: list[float] = field(default_factory=list)
    """Requests that the balancer has sent to servers."""
    counters: list[dict[str, float]] = field(default_factory=list)

    def grown(self, name: str, begin: float, end: float) -> float:
        """Return the growth of a counter, interpolated between samples."""
        return self._value(name, end) - self._value(name, begin)

    def mean(self, values: Sequence[float], begin: float, end: float) -> float:
        """Return the mean of one of the gauges."""
        return fmean(values[bisect_left(self.at, begin) : bisect_left(self.at, end)])

    def mean_waiting(self, begin: float, end: float) -> float:
        """Return the mean of the waiting requests, in the balancer and in Triton."""
        return self.mean(self.queued, begin, end) + self.mean(self.pending, begin, end)

    def _value(self, name: str, at: float) -> float:
        after = min(max(bisect_left(self.at, at), 1), len(self.at) - 1)
        low, high = (self.counters[n][name] for n in (after - 1, after))
        begin, end = self.at[after - 1], self.at[after]
        return low + (high - low) * (at - begin) / (end - begin)


async def watch(apart: Apart, servers: Iterable[Triton], haproxy: str | None) -> None:
    """Sample until cancelled, ten times a second. `haproxy` is the path of HAProxy's socket."""
    async with aiohttp.ClientSession() as session:
        while True:
            began = time.monotonic()
            pages = [await _page(session, triton) for triton in servers]
            queued, inside = (0.0, 0.0) if haproxy is None else await asyncio.to_thread(_held, haproxy)
            parsed = [samples(page) for page in pages]
            apart.at.append((began + time.monotonic()) / 2)
            apart.queued.append(queued)
            apart.inside.append(inside)
            apart.pending.append(sum(total(page, "nv_inference_pending_request_count") for page in parsed))
            apart.counters.append(
                {name: sum(total(page, counter) for page in parsed) for name, counter in COUNTERS.items()}
            )
            await asyncio.sleep(max(began + _INTERVAL_S - time.monotonic(), 0.01))


async def _page(session: aiohttp.ClientSession, triton: Triton) -> str:
    async with session.get(f"http://{triton.address}:{triton.metrics_port}/metrics") as answer:
        return await answer.text()


def _held(path: str) -> tuple[float, float]:
    """Return the requests in HAProxy's queues, and those that are at servers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        connection.sendall(f"show stat -1 {_OF_BACKENDS | _OF_SERVERS} -1\n".encode())
        text = b""
        while part := connection.recv(65536):
            text += part
    head, *lines = text.decode().lstrip("# ").splitlines()
    names = head.split(",")
    rows = [dict(zip(names, line.split(","), strict=False)) for line in lines if line.startswith(_BACKENDS)]
    # The row of a backend has the requests without a server, and those of servers have the others.
    queued = sum(float(row["qcur"] or 0) for row in rows)
    return queued, sum(float(row["scur"] or 0) for row in rows if row["svname"] != "BACKEND")


def check_pace(apart: Apart, sent: Iterable[Sent]) -> None:
    """Check that client and sampler kept their pace. On a busy machine, both measure the machine.

    Raises:
        BenchError: requests were sent too late, or samples are too far apart.
    """
    late_s = max(load.late_sending_s for load in sent)
    if late_s > MAX_LATE_S:
        raise BenchError(
            f"a request was sent {late_s:.2f} s late, the limit is {MAX_LATE_S} s: measure on a quiet machine"
        )
    gap_s = max((end - begin for begin, end in pairwise(apart.at)), default=0.0)
    if gap_s > MAX_GAP_S:
        raise BenchError(f"samples are {gap_s:.2f} s apart, the limit is {MAX_GAP_S} s: measure on a quiet machine")


def client_counts(sent: Iterable[Sent], begin: float, end: float) -> tuple[int, int]:
    """Return the requests that clients sent in a time, and how many of them failed."""
    requests = failed = 0
    for load in sent:
        for at, latency in zip(load.at_s, load.latency_s, strict=True):
            if begin <= load.began_s + at < end:
                requests += 1
                failed += latency is None
    return requests, failed


Moment = tuple[float, ...]
"""Times at which something may have happened, from the earliest to the latest."""


def client_quantiles(sent: Sequence[Sent], begin: Moment, end: Moment, share: float) -> tuple[float, ...]:
    """Return what the quantile of the latency of responses in a time may be, in milliseconds.

    A response is in the time if it ended in it. The result has a value for each combination of a begin and an end, and is empty if
    there was no response.
    """
    ended = sorted(
        (load.began_s + at + latency, latency * 1000)
        for load in sent
        for at, latency in zip(load.at_s, load.latency_s, strict=True)
        if latency is not None
    )
    times = [at for at, _ in ended]
    quantiles = []
    for first, last in product(begin, end):
        values = sorted(latency for _, latency in ended[bisect_left(times, first) : bisect_left(times, last)])
        if values:
            # As in a histogram: the lowest value that `share` of all don't exceed.
            quantiles.append(values[max(math.ceil(share * len(values)) - 1, 0)])
    return tuple(quantiles)


def is_right(shown: float | None, true: float) -> bool:
    """Return whether a number is within 5 % of its value computed apart; below 1, within 0.05."""
    return shown is not None and abs(shown - true) <= MAX_OFF * max(abs(true), 1.0)


def is_right_quantile(shown: float | None, true: Iterable[float]) -> bool:
    """Return whether a quantile is in the bucket of one of the values that it may have, or within 5 % of the bucket's bounds."""
    if shown is None:
        return False
    buckets = [max(bisect_left(BUCKETS_MS, value_ms), 1) for value_ms in true]
    return any(
        BUCKETS_MS[bucket - 1] * (1 - MAX_OFF) <= shown <= BUCKETS_MS[min(bucket, len(BUCKETS_MS) - 1)] * (1 + MAX_OFF)
        for bucket in buckets
    )


Kind = Literal["value", "quantile", "same"]
"""How a number is compared. `value`: within 5 %. `quantile`: within the bucket. `same`: within 5 % of one of the numbers that
another place showed within 2 s."""


@dataclass(frozen=True)
class Pair:
    """A number that is shown, and computed apart."""

    name: str
    shown: float | None
    true: tuple[float, ...]
    """Value computed apart. A quantile has several, because it is not known to the millisecond when the counters were read."""
    kind: Kind = "value"

    @property
    def is_right(self) -> bool:
        """Return whether the number is within its bounds."""
        if self.kind == "quantile":
            return is_right_quantile(self.shown, self.true)
        return any(is_right(self.shown, value) for value in self.true)


def means(pairs: Iterable[tuple[str, float | None, float]]) -> list[Pair]:
    """Return the mean of each number over the times at which it is known. It is unknown if that is less than half of them.

    `pairs` has (name, shown, computed apart) for each time.
    """
    by_name: dict[str, list[tuple[float | None, float]]] = {}
    for name, shown, true in pairs:
        by_name.setdefault(name, []).append((shown, true))
    mean_pairs = []
    for name, values in by_name.items():
        known_values = [(shown, true) for shown, true in values if shown is not None]
        mean = fmean(number for number, _ in known_values) if 2 * len(known_values) > len(values) else None
        mean_pairs.append(Pair(name, mean, (fmean(true for _, true in (known_values or values)),)))
    return mean_pairs
