"""An existing Prometheus as a source: GPU utilisation of all pods every 10 s, a model's past arrivals when asked.

Where it is, is the site's to say: never a ModelDeployment's, or a tenant could have the operator call any address.

| what happens                              | what follows                                                                   |
| ----------------------------------------- | ------------------------------------------------------------------------------ |
| an answer                                 | it replaces all that was known; a pod that isn't in it is not known            |
| none, or one that is none                 | the last values count until they are `STALE_S` old; pauses grow, with jitter   |
| no answer within `limit_s`                | the same; nothing is asked until the request has ended                         |
| a history is asked for while none answers | `PrometheusError` at once: a thousand models wait for no time-outs             |

One request at a time, in a thread that nothing waits for at the end of the process. Not here: what is asked and what it means
(`dcgm`, `recorded`), the client (`prometheus_site`), what follows from a value.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry

from halcyon.monitoring import instruments, operator_metrics
from halcyon.scaling.planner.forecast.seasonality import BIN_S, History
from halcyon.signals.prometheus import arrival_history, dcgm
from halcyon.signals.prometheus.client import (
    Ask,
    PrometheusError,
    PrometheusSite,
    QueryRange,
    Unanswered,
    ask_prometheus,
    not_understood,
)
from halcyon.signals.prometheus.dcgm import STALE_S, PodKey

SOURCE: Literal["prometheus"] = "prometheus"

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PollInterval:
    """How often it is asked, in seconds."""

    poll_s: float = 10.0
    longest_pause_s: float = 60.0
    """Between attempts while they fail."""
    limit_s: float = 10.0
    """For one request; with `poll_s`, and a scrape every 10 s, a value is seldom older than `STALE_S`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A value with its time and where it comes from."""

    value: float
    """GPU utilisation in percent, 0 to 100."""
    at: float
    """When it was sampled, by the caller's monotonic clock: the scrape, not the query."""
    source: str
    """`prometheus`."""
    metric: str
    """DCGM's name for it, for example `DCGM_FI_DEV_GPU_UTIL`."""


class PrometheusSource:
    """Asks one Prometheus. All methods belong to one event loop."""

    def __init__(
        self,
        site: PrometheusSite,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pace: PollInterval = PollInterval(),
        ask: Ask = ask_prometheus,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Nothing is asked before `run`.

        Args:
            site: which Prometheus, and what for.
            monotonic: the clock of `Sampled.at`.
            wall: seconds since the epoch: which bins of history are closed.
            pace: times.
            ask: puts one question; called in a thread.
            registry: where the counters go.
        """
        self._site, self._monotonic, self._wall, self._pace, self._ask = site, monotonic, wall, pace, ask
        self._pods: Mapping[PodKey, Sampled] = {}
        self._left_out = 0
        self._answered_at: float | None = None
        self._failing: PrometheusError | None = None
        self._failures = 0
        self._turn = asyncio.Lock()
        self._histories = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        registry = registry or CollectorRegistry()
        self.requests = instruments.counter(operator_metrics.PROMETHEUS_REQUESTS, registry)
        self.known = instruments.gauge(operator_metrics.PROMETHEUS_PODS, registry)

    async def run(self) -> None:
        """Ask for the GPU utilisation of all pods again and again until cancelled. Never fails."""
        while True:
            pause_s = await self.poll()
            await asyncio.sleep(pause_s)

    async def poll(self) -> float:
        """Ask for it once.

        Returns:
            Seconds until it should be asked again.
        """
        sent = self._monotonic()
        try:
            answer = await self._in_turn("gpu", self._read_gpu)
        except PrometheusError as error:
            self._failures += 1
            if str(error) != str(self._failing):
                _log.warning("%s", error)
            self._failing = error
            growing_s = self._pace.poll_s * 2.0 ** min(self._failures - 1, 16)
            # Two replicas of the operator, and of many clusters, must not come back all at once.
            return min(growing_s, self._pace.longest_pause_s) * random.uniform(0.75, 1.25)  # noqa: S311  # no secret
        if self._failing is not None:
            _log.info("Prometheus at %s answers again", self._site.shown)
        self._failing, self._failures = None, 0
        # As old as at the time of asking: when exactly Prometheus looked isn't known, and older is the safer side.
        self._pods = {
            pod: Sampled(used.percent, sent - used.age_s, SOURCE, used.metric) for pod, used in answer.pods.items()
        }
        self._left_out, self._answered_at = answer.left_out, self._monotonic()
        self.known.set(len(self._pods))
        return self._pace.poll_s

    def gpu(self, namespace: str, pod: str) -> Sampled | None:
        """GPU utilisation of a pod, the mean of its GPUs or MIG slices; None where it is not known, or stale."""
        found = self._pods.get((namespace, pod))
        return None if found is None or self._monotonic() - found.at > STALE_S else found

    async def history(self, namespace: str, name: str) -> History | None:
        """A model's arrivals in the last 15 days; None where Prometheus knows none.

        Raises:
            PrometheusError: it couldn't be asked, which says nothing of the past: try again later.
        """
        if isinstance(self._failing, Unanswered):
            raise self._failing
        # One history at a time in the line for the turn, or a start with many models would keep the GPUs waiting.
        async with self._histories:
            return await self._in_turn("history", partial(self._read_history, namespace, name))

    def status(self) -> str:
        """What there is to know about this source, in a sentence without secrets."""
        said = f"Prometheus at {self._site.shown}"
        if self._answered_at is None:
            return f"{self._failing}; nothing is known from it yet" if self._failing else f"{said}: not asked yet"
        ago_s = self._monotonic() - self._answered_at
        if self._failing is not None:
            return f"{self._failing}; its last answer is {ago_s:.0f} s old, and values count until they are {STALE_S:.0f} s old"
        left_out = f", {self._left_out} samples left out (NaN, out of range or stale)" if self._left_out else ""
        return f"{said}: GPU utilisation of {len(self._pods)} pods, asked {ago_s:.0f} s ago{left_out}"

    def _read_gpu(self) -> dcgm.GpuSamples:
        question = dcgm.question(self._site.gpu_matchers)
        rows = self._ask(self._site, question, None, self._pace.limit_s)
        with not_understood(self._site, question):
            return dcgm.answered(rows)

    def _read_history(self, namespace: str, name: str) -> History | None:
        question = arrival_history.question(self._site.arrivals, namespace=namespace, name=name)
        begin, end = arrival_history.span(self._wall())
        rows = self._ask(self._site, question, QueryRange(begin, end, BIN_S), self._pace.limit_s)
        with not_understood(self._site, question):
            # Here, in the thread: the models of a season are a good tenth of a second of work.
            return arrival_history.history(arrival_history.samples(rows))

    async def _in_turn(self, kind: str, work: Callable[[], T]) -> T:
        """The result of `work`, done in a thread, never beside another.

        Raises:
            PrometheusError: `work` raised it, or it wasn't done in time.
        """
        async with self._turn:
            try:
                result = await self._in_thread(work)
            except Exception as error:
                self.requests.labels(kind, "failed").inc()
                if isinstance(error, PrometheusError):
                    raise
                # A fault of ours. The source goes on: nothing that it lacks may end those who decide without it.
                _log.exception("an answer of Prometheus at %s was not handled", self._site.shown)
                raise PrometheusError(
                    f"Prometheus at {self._site.shown}: {type(error).__name__}, see the log"
                ) from error
        self.requests.labels(kind, "answered").inc()
        return result

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(give: Callable[[], None]) -> None:
            self._idle.set()
            if not done.done():
                give()

        def body() -> None:
            give: Callable[[], None]
            try:
                give = partial(done.set_result, work())
            except Exception as error:  # noqa: BLE001  # goes to the one who waits
                give = partial(done.set_exception, error)
            with suppress(RuntimeError):  # the loop has closed: nobody waits
                loop.call_soon_threadsafe(settle, give)

        try:
            async with asyncio.timeout(self._pace.limit_s):
                # One whose asker has given up still runs: a thread can't be ended from outside.
                await self._idle.wait()
                self._idle.clear()
                # A daemon, since the end of the process waits for every other kind of thread.
                threading.Thread(target=body, name="prometheus", daemon=True).start()
                return await done
        except TimeoutError:
            raise Unanswered(
                f"Prometheus at {self._site.shown}: no answer within {self._pace.limit_s:g} s; is it overloaded?"
            ) from None
