"""Workers that take keys from the queue, reconcile the ModelDeployments, and report the results to the queue."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from halcyon.control.reconcile.reconciler import Reconciler
from halcyon.kube import errors
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.work_queue import WorkQueue
from halcyon.monitoring import instruments, operator_metrics

log = logging.getLogger(__name__)

MAX_CONFLICTS = 3
"""Number of conflicts in a row from which they count as errors: another writer changes the object all the time."""
MAX_BEGUN_AT_ONCE = 4
"""Maximum number of reconciles that begin in one iteration of the event loop.

After a restart all models are queued. A reconcile without writes takes some milliseconds of CPU and hardly waits, so 16 workers would
take most of each iteration. Agents that come back need several iterations each.
"""
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass
class Workers:
    """Workers that take keys from one queue. Each worker reconciles one ModelDeployment at a time."""

    queue: WorkQueue
    reconciler: Reconciler
    registry: CollectorRegistry
    clock: Clock

    def __post_init__(self) -> None:
        """Register the metrics of reconciles, and start the idle timer."""
        self._moved_at = self.clock.monotonic()
        self._begun = 0
        """Number of reconciles that began in this iteration of the event loop."""
        self._line: deque[Key] = deque()
        """Keys whose reconciles wait for their turn, in order."""
        self._results = instruments.counter(operator_metrics.RECONCILES, self.registry)
        self._seconds = instruments.histogram(operator_metrics.RECONCILE, self.registry, buckets=_BUCKETS)

    def idle_s(self) -> float:
        """Return the seconds since any reconcile began or ended. The liveness probe uses this time."""
        return self.clock.monotonic() - self._moved_at

    def reset_idle(self) -> None:
        """Reset the idle timer. A new leader calls this, because its workers did nothing while it was a standby."""
        self._moved_at = self.clock.monotonic()

    async def run(self, count: int) -> None:
        """Run `count` workers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                group.create_task(self._work(), name=f"worker-{n}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            started_at = self._moved_at = self.clock.monotonic()
            try:
                await self._take_turn(key)
                await self._reconcile(key)
            finally:
                self.queue.done(key)
                self._moved_at = self.clock.monotonic()
                self._seconds.observe(self._moved_at - started_at)

    async def _take_turn(self, key: Key) -> None:
        """Wait until another reconcile may begin in this iteration of the event loop.

        Without an order, one worker whose reconciles wait for nothing would take all turns, while others keep their keys.
        """
        self._line.append(key)
        try:
            while self._begun >= MAX_BEGUN_AT_ONCE or self._line[0] != key:  # noqa: ASYNC110  # some iterations at most
                await asyncio.sleep(0)
        finally:
            self._line.remove(key)
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._end_turns)
        self._begun += 1

    def _end_turns(self) -> None:
        self._begun = 0

    async def _reconcile(self, key: Key) -> None:
        try:
            outcome = await self.reconciler.reconcile(key)
        except errors.LeaseLost:
            raise
        except (errors.ApiError, errors.Unreachable) as error:
            min_delay_s = getattr(error, "retry_after_s", None) or 0.0
            delay = self.queue.fail(key, min_delay_s)
            # A conflict is normal: an object has changed since it was seen.
            is_normal = isinstance(error, errors.Conflicted) and self.queue.failures(key) < MAX_CONFLICTS
            self._results.labels("conflict" if is_normal else "error").inc()
            level = logging.INFO if is_normal else logging.WARNING
            fields = {"key": str(key), "error": str(error), "retry_s": round(delay, 1)}
            log.log(level, "reconcile failed", extra=fields)
            return
        except Exception:
            # An unforeseen object must not end the worker, which reconciles other models too.
            delay = self.queue.fail(key)
            self._results.labels("error").inc()
            log.exception("unexpected error during reconciliation", extra={"key": str(key), "retry_s": round(delay, 1)})
            return
        if not outcome.postponed:  # a postponed key keeps its backoff
            self.queue.succeed(key)
        self._results.labels("done" if outcome.requeue_s is None else "requeue").inc()
        if outcome.requeue_s is not None:
            again = self.queue.postpone if outcome.postponed else self.queue.add_after
            again(key, outcome.requeue_s)
