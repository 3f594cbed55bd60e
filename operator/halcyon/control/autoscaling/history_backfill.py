"""One-time import of models' past request rates from the site's Prometheus, for planners with little history.

Queries run in the background, one at a time.

Out of scope: the query (`signals.prometheus.arrival_history`), and which models need it (`decider`).
"""

# | response                     | effect                                                                       |
# | ---------------------------- | ---------------------------------------------------------------------------- |
# | a history                    | it is merged with the planner's own history                                  |
# | no data                      | none                                                                         |
# | no response                  | all queries wait for `RETRY_S`; then this model's comes last                 |
# | an unusable response         | this model is queried again after `UNUSABLE_RETRY_S`; other queries continue |

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
UNUSABLE_RETRY_S = 3600.0
"""Time after which a model's query is retried if its response was unusable, in seconds. It is long because the response
stays unusable until the query or the scraped metrics are changed."""

RunQuery = Callable[[str, str], Awaitable[History | None]]
"""Type of the function that queries a model's history, given its namespace and name. It returns None if there is no
data, and raises PrometheusError on failure."""


def merged(past: History, own: History) -> History:
    """Merge the imported history `past` and the planner's own history `own`, whose values win in common bins.

    The merge takes 30 us for each bin of `own` that is newer than `past`. If both have values for the same bins, the
    seasonal models are rebuilt, which takes up to 0.15 s.
    """
    return _extended(_with_own_bins(past, own), own)


def _with_own_bins(past: History, own: History) -> History:
    """Return the history `past`, with the values of `own` for the bins that are in both histories."""
    own_bins = _closed_bins(own)
    if all(number >= past.open for number in own_bins):
        return past
    bins = _closed_bins(past) | own_bins
    end = max(past.open, own.open)
    begin = max(min(bins), end - MAX_BINS)
    return History.of([bins.get(number) for number in range(begin, end)], end=end * BIN_S)


def _extended(past: History, own: History) -> History:
    """Return the history `past`, extended by the newer bins of `own`."""
    if past.open < 0:
        return own
    history = past
    for number, mean in _closed_bins(own).items():
        if number >= past.open:
            # Put the sample one second before the bin's end: at the end it could count for the next bin.
            observed_s = BIN_S - 1.0
            history = history.with_sample(number * BIN_S + observed_s, requests=mean * observed_s, seconds=observed_s)
    if own.seconds > 0 and own.until > history.until:
        history = history.with_sample(own.until, requests=own.requests, seconds=own.seconds)
    return history


def _closed_bins(history: History) -> dict[int, float]:
    """Return the mean rate of each complete bin by its number, oldest first. Bins with an unknown rate are left out."""
    first = history.open - len(history.bins)
    return {first + index: mean for index, mean in enumerate(history.bins) if mean is not None}


class HistoryBackfill:
    """Queue of models whose history must be imported, and the task that queries Prometheus. It is not thread-safe."""

    def __init__(self, run_query: RunQuery, *, clock: Clock) -> None:
        """Initialize with an empty queue. `run_query` is the function that runs a query."""
        self._run_query, self._clock = run_query, clock
        self._due: dict[Key, float] = {}
        """Monotonic time at which each queued model is queried next, in seconds."""
        self._changed = asyncio.Event()

    def enqueue(self, key: Key) -> None:
        """Add a model to the queue of imports."""
        self._due[key] = -math.inf
        self._changed.set()

    def forget(self, key: Key) -> None:
        """Drop a model for which the planner no longer decides. The response to a running query for it is ignored."""
        self._due.pop(key, None)

    async def run(self, own_history: Callable[[Key], History | None], learn: Callable[[Key, History], None]) -> None:
        """Run queries until cancelled.

        `own_history` returns the planner's own history of a model, or None if the planner doesn't decide for the model.
        `learn` replaces this history by the merged one.
        """
        while True:
            key = min(self._due, key=lambda queued: self._due[queued], default=None)
            wait_s = None if key is None else self._due[key] - self._clock.monotonic()
            if key is None or wait_s is None or wait_s > 0:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                continue
            try:
                past = await self._run_query(key.namespace, key.name)
            except PrometheusUnavailable:
                if key in self._due:  # the others first, in case only the query for this model takes too long
                    self._due[key] = self._clock.monotonic()
                await asyncio.sleep(RETRY_S)
                continue
            except PrometheusError as error:
                log.warning("cannot read the request history of %s from Prometheus: %s", key, error)
                if key in self._due:
                    self._due[key] = self._clock.monotonic() + UNUSABLE_RETRY_S
                continue
            if self._due.pop(key, None) is None or past is None:
                continue
            try:
                await self._merge(key, past, own_history, learn)
            except Exception:  # a bug that one model's history triggers must not end the operator
                log.exception("cannot merge the request history of %s from Prometheus with the recorded one", key)

    async def _merge(
        self, key: Key, past: History, own_of: Callable[[Key], History | None], learn: Callable[[Key, History], None]
    ) -> None:
        if (own := own_of(key)) is None:
            return
        # Run in a thread, because it may take as long as a thousand decisions. Add bins observed in the meantime afterwards.
        past = await asyncio.to_thread(_with_own_bins, past, own)
        if (own := own_of(key)) is not None:
            learn(key, _extended(past, own))
            log.info("loaded the request history of %s from Prometheus: %d bins", key, len(past.bins))
