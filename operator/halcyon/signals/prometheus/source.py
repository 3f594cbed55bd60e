"""The site's Prometheus as a data source: periodically for GPU utilisation, on request for arrivals and queries.

The address is a setting of the site, never a field of a ModelDeployment. Otherwise a tenant could make the operator call any
address.

A valid response replaces all values. If there is no valid response, the last values are used until they are `MAX_AGE_S`
old, and the intervals between attempts grow.

Only one request runs at a time, in a daemon thread, which does not delay the exit of the process. Out of scope:
building queries and parsing results (`dcgm`, `arrival_history`), the client (`client`), and how a value is used.
"""

# | event                                          | result                                                                 |
# | ---------------------------------------------- | ---------------------------------------------------------------------- |
# | a valid response                               | replaces all values; a pod without a value in it is unknown            |
# | no response, or an invalid one                 | the last values are used until they are `MAX_AGE_S` old; the intervals |
# |                                                | between attempts grow, with jitter                                     |
# | no response within `timeout_s`                 | the same; no other query is sent until the request has ended           |
# | a history query while Prometheus is unavailable | `PrometheusError` at once, so that models don't each wait for a timeout |

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry

from halcyon.monitoring import instruments, operator_metrics
from halcyon.scaling.planner.forecast.seasonality import BIN_S, History
from halcyon.signals.prometheus import arrival_history, dcgm
from halcyon.signals.prometheus.client import (
    PrometheusError,
    PrometheusSite,
    PrometheusUnavailable,
    QueryFunction,
    QueryRange,
    Rows,
    parsing_errors,
    query_prometheus,
)
from halcyon.signals.prometheus.dcgm import MAX_AGE_S, PodKey

SOURCE: Literal["prometheus"] = "prometheus"

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PollInterval:
    """Intervals and timeout of the queries for GPU utilisation, in seconds."""

    poll_s: float = 10.0
    max_pause_s: float = 60.0
    """Maximum time between two attempts while queries fail, in seconds."""
    timeout_s: float = 10.0
    """Timeout of one query, in seconds. With it, a `poll_s` of 10 and a scrape every 10 s, values are rarely older than
    `MAX_AGE_S`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """GPU utilisation of a pod, with the time of the sample and its source."""

    value: float
    """GPU utilisation in percent, 0 to 100."""
    at: float
    """Time at which Prometheus scraped the sample, on the caller's monotonic clock."""
    source: str
    """Name of the source, `prometheus`."""
    metric: str
    """Name of the DCGM metric, for example `DCGM_FI_DEV_GPU_UTIL`."""


class PrometheusSource:
    """Data source that queries one Prometheus. All methods must be called from the same event loop."""

    def __init__(
        self,
        site: PrometheusSite,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        intervals: PollInterval = PollInterval(),
        query: QueryFunction = query_prometheus,
        registry: CollectorRegistry | None = None,
        kind: str = "canary",
    ) -> None:
        """Create the source; the first query is sent by `run`.

        Args:
            site: address and settings of Prometheus.
            monotonic: clock for the times in `Sampled.at`.
            wall: clock in seconds since the epoch, which determines the complete bins of a history.
            intervals: intervals between queries, and their timeout.
            query: function that runs one query; it is called in a thread.
            registry: registry for the metrics of this source.
            kind: label `kind` in these metrics for the queries of `value`.
        """
        self._site, self._monotonic, self._wall, self._intervals, self._query = site, monotonic, wall, intervals, query
        self.site, self._kind = site, kind
        self._pods: Mapping[PodKey, Sampled] = {}
        self._left_out = 0
        self._answered_at: float | None = None
        self._failure: PrometheusError | None = None
        self._failures = 0
        self._query_lock = asyncio.Lock()
        self._history_lock = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        registry = registry or CollectorRegistry()
        self.requests = instruments.counter(operator_metrics.PROMETHEUS_REQUESTS, registry)
        self.known = instruments.gauge(operator_metrics.PROMETHEUS_PODS, registry)

    async def run(self) -> None:
        """Query the GPU utilisation of all pods periodically until cancelled. The method never raises an error."""
        while True:
            pause_s = await self.poll()
            await asyncio.sleep(pause_s)

    async def poll(self) -> float:
        """Query the GPU utilisation of all pods once, and return the seconds until the next query."""
        sent = self._monotonic()
        try:
            samples = await self._run_query("gpu", self._read_gpu)
        except PrometheusError as error:
            self._failures += 1
            if str(error) != str(self._failure):
                _log.warning("%s", error)
            self._failure = error
            growing_s = self._intervals.poll_s * 2.0 ** min(self._failures - 1, 16)
            # Jitter: operators of many clusters may use the same Prometheus and must not retry at the same time.
            return min(growing_s, self._intervals.max_pause_s) * random.uniform(0.75, 1.25)  # noqa: S311  # no secret
        if self._failure is not None:
            _log.info("Prometheus at %s responds again", self._site.shown)
        self._failure, self._failures = None, 0
        # Ages count from the time of sending, because the evaluation time is unknown. This errs towards older values.
        self._pods = {
            pod: Sampled(used.percent, sent - used.age_s, SOURCE, used.metric) for pod, used in samples.pods.items()
        }
        self._left_out, self._answered_at = samples.ignored, self._monotonic()
        self.known.set(len(self._pods))
        return self._intervals.poll_s

    def gpu(self, namespace: str, pod: str) -> Sampled | None:
        """Return the mean GPU utilisation of a pod's GPUs or MIG slices; None if it is unknown or too old."""
        sample = self._pods.get((namespace, pod))
        return None if sample is None or self._monotonic() - sample.at > MAX_AGE_S else sample

    async def history(self, namespace: str, name: str) -> History | None:
        """Return the history of a model's request rate over the last 15 days; None if Prometheus has no data.

        Raises:
            PrometheusError: the query failed; retry later.
        """
        if isinstance(self._failure, PrometheusUnavailable):
            raise self._failure
        # One history query at a time competes for the query lock, so many models at startup don't delay the GPU queries.
        async with self._history_lock:
            return await self._run_query("history", partial(self._read_history, namespace, name))

    async def value(self, query: str) -> float | None:
        """Return the result of a query; None if the result has no series, or its value is not finite.

        Raises:
            PrometheusError: the query failed, or there are several series.
        """
        return await self._run_query(self._kind, partial(self._read_value, query))

    async def rows(self, query: str, over: QueryRange) -> Rows:
        """Return the series of a range query.

        Raises:
            PrometheusError: the query failed.
        """
        return await self._run_query(
            "dashboard", lambda: self._query(self._site, query, over, self._intervals.timeout_s)
        )

    def beside(self, timeout_s: float, *, kind: str = "canary") -> PrometheusSource:
        """Return a second source for the same Prometheus, whose queries never delay those of this source.

        Both sources count their requests in the same metrics. Requests by the second source's `value` have the label
        `kind`.
        """
        intervals = replace(self._intervals, timeout_s=timeout_s)
        other = PrometheusSource(
            self._site, monotonic=self._monotonic, wall=self._wall, intervals=intervals, query=self._query, kind=kind
        )
        other.requests = self.requests
        return other

    def status(self) -> str:
        """Describe the state of this source in one sentence, without secrets."""
        source = f"Prometheus at {self._site.shown}"
        if self._answered_at is None:
            return (
                f"{self._failure}; there are no values from it yet" if self._failure else f"{source}: not queried yet"
            )
        ago_s = self._monotonic() - self._answered_at
        if self._failure is not None:
            return f"{self._failure}; its last response is {ago_s:.0f} s old, and values count until they are {MAX_AGE_S:.0f} s old"
        ignored = f", {self._left_out} samples left out (NaN, out of range or stale)" if self._left_out else ""
        return f"{source}: GPU utilisation of {len(self._pods)} pods, queried {ago_s:.0f} s ago{ignored}"

    def _read_gpu(self) -> dcgm.GpuSamples:
        query = dcgm.query(self._site.gpu_matchers)
        rows = self._query(self._site, query, None, self._intervals.timeout_s)
        with parsing_errors(self._site, query):
            return dcgm.parse(rows)

    def _read_value(self, query: str) -> float | None:
        rows = self._query(self._site, query, None, self._intervals.timeout_s)
        with parsing_errors(self._site, query):
            first: object = rows[0] if rows else None
            if isinstance(first, int | float):
                raise TypeError("a scalar, one series is required; for example vector(EXPRESSION)")
            if len(rows) > 1:
                raise ValueError(f"{len(rows)} series, exactly one is required; for example sum(NAME)")
            values = [float(row["value"][1]) for row in rows]
        return values[0] if values and math.isfinite(values[0]) else None

    def _read_history(self, namespace: str, name: str) -> History | None:
        template, cluster = self._site.arrivals, self._site.cluster
        query = arrival_history.query(template, namespace=namespace, name=name, cluster=cluster)
        begin, end = arrival_history.query_span(self._wall())
        rows = self._query(self._site, query, QueryRange(begin, end, BIN_S), self._intervals.timeout_s)
        with parsing_errors(self._site, query):
            # Runs in the thread, because fitting the seasonal models takes more than 0.1 s.
            return arrival_history.history(arrival_history.parse(rows))

    async def _run_query(self, kind: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread, only one at a time, and return its result.

        Raises:
            PrometheusError: `work` raised an exception or timed out.
        """
        async with self._query_lock:
            try:
                result = await self._in_thread(work)
            except Exception as error:
                self.requests.labels(kind, "failed").inc()
                if isinstance(error, PrometheusError):
                    raise
                # A bug in the operator. It must not stop scaling, which also works without Prometheus.
                _log.exception("a response of Prometheus at %s could not be processed", self._site.shown)
                raise PrometheusError(
                    f"Prometheus at {self._site.shown}: {type(error).__name__}, see the log"
                ) from error
        self.requests.labels(kind, "answered").inc()
        return result

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(deliver: Callable[[], None]) -> None:
            self._idle.set()
            if not done.done():
                deliver()

        def body() -> None:
            deliver: Callable[[], None]
            try:
                deliver = partial(done.set_result, work())
            except Exception as error:  # noqa: BLE001  # goes to the caller
                deliver = partial(done.set_exception, error)
            with suppress(RuntimeError):  # the event loop is closed, so no caller waits
                loop.call_soon_threadsafe(settle, deliver)

        try:
            async with asyncio.timeout(self._intervals.timeout_s):
                # A request that timed out may still run, because a thread can't be stopped from outside. Wait for its end.
                await self._idle.wait()
                self._idle.clear()
                # A daemon thread, because the process waits for all other threads when it exits.
                threading.Thread(target=body, name="prometheus", daemon=True).start()
                return await done
        except TimeoutError:
            raise PrometheusUnavailable(
                f"Prometheus at {self._site.shown}: no response within {self._intervals.timeout_s:g} s; is it overloaded?"
            ) from None
