"""One-time import of a model's past arrivals from the site's Prometheus, for planners that know little of it themselves.

Queries run in the background, one at a time.

| answer                       | effect                                                                 |
| ---------------------------- | ---------------------------------------------------------------------- |
| a history                    | it is merged with what was learnt here                                 |
| no data                      | nothing                                                                |
| no answer                    | all models wait for `RETRY_S`; the source itself reports the failure   |
| an unusable answer           | the others go on; this model is queried again after `REFUSED_S`        |

Out of scope: the query (`signals.prometheus.arrival_history`), which models need it (`decider`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable

from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, History
from halcyon.signals.prometheus.client import PrometheusError, PrometheusUnavailable

log = logging.getLogger(__name__)

RETRY_S = 60.0
REFUSED_S = 3600.0
"""Retry interval after an unusable answer: it stays unusable until the query, or what Prometheus scrapes, is changed."""

Ask = Callable[[str, str], Awaitable[History | None]]
"""Query for a model's history by namespace and name; None if there is none. Raises PrometheusError if the query fails."""


def merged(past: History, ours: History) -> History:
    """Return both as one history; where both know a bin, ours wins.

    Takes 30 us for each bin of ours that is newer than the past. Takes up to 0.15 s in total if both know the same bins, since
    the seasonal models are then rebuilt.
    """
    return _continued(_grounded(past, ours), ours)


def _grounded(past: History, ours: History) -> History:
    """Return the past, with our values for the bins that we know too."""
    known = _closed_bins(ours)
    if all(number >= past.open for number in known):
        return past
    bins = _closed_bins(past) | known
    end = max(past.open, ours.open)
    begin = max(min(bins), end - MAX_BINS)
    return History.of([bins.get(number) for number in range(begin, end)], end=end * BIN_S)


def _continued(past: History, ours: History) -> History:
    """Return the past, extended by what we have seen since its end."""
    if past.open < 0:
        return ours
    history = past
    for number, mean in _closed_bins(ours).items():
        if number >= past.open:
            # A second short of the bin's end, or it would count for the next one if the bin before is not known.
            seen_s = BIN_S - 1.0
            history = history.with_sample(number * BIN_S + seen_s, requests=mean * seen_s, seconds=seen_s)
    if ours.seconds > 0 and ours.until > history.until:
        history = history.with_sample(ours.until, requests=ours.requests, seconds=ours.seconds)
    return history


def _closed_bins(history: History) -> dict[int, float]:
    """Return the known mean rates by bin number, oldest first."""
    first = history.open - len(history.bins)
    return {first + index: mean for index, mean in enumerate(history.bins) if mean is not None}


class HistoryBackfill:
    """Queue of models whose past is needed, and the task that queries for it. All methods belong to one event loop."""

    def __init__(self, ask: Ask, *, clock: Clock) -> None:
        """Start with an empty queue. `clock`: monotonic, in seconds."""
        self._ask, self._clock = ask, clock
        self._due: dict[Key, float] = {}
        """Time of the next query, monotonic."""
        self._news = asyncio.Event()

    def want(self, key: Key) -> None:
        """Queue this model: little is known of its past."""
        self._due[key] = -math.inf
        self._news.set()

    def forget(self, key: Key) -> None:
        """Drop a model that is no longer planned for, and any answer still under way for it."""
        self._due.pop(key, None)

    async def run(self, known: Callable[[Key], History | None], learn: Callable[[Key, History], None]) -> None:
        """Run queries until cancelled.

        Args:
            known: returns what the model's planner has seen itself so far; None if the model is not planned for.
            learn: takes the merged history, which replaces it.
        """
        while True:
            key = min(self._due, key=lambda one: self._due[one], default=None)
            wait_s = None if key is None else self._due[key] - self._clock.monotonic()
            if key is None or wait_s is None or wait_s > 0:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                continue
            try:
                past = await self._ask(key.namespace, key.name)
            except PrometheusUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            except PrometheusError as error:
                log.warning("no history of %s: %s", key, error)
                if key in self._due:
                    self._due[key] = self._clock.monotonic() + REFUSED_S
                continue
            if self._due.pop(key, None) is None or past is None:
                continue
            try:
                await self._join(key, past, known, learn)
            except Exception:  # a fault of ours: one model's odd past must not end the operator
                log.exception("the past of %s can't be joined with what is known of it", key)

    async def _join(
        self, key: Key, past: History, known: Callable[[Key], History | None], learn: Callable[[Key, History], None]
    ) -> None:
        if (ours := known(key)) is None:
            return
        # In a thread, since it may take as long as a thousand decisions. What is seen meanwhile is then added at once.
        past = await asyncio.to_thread(_grounded, past, ours)
        if (ours := known(key)) is not None:
            learn(key, _continued(past, ours))
            log.info("the past of %s is known from Prometheus: %d bins", key, len(past.bins))
