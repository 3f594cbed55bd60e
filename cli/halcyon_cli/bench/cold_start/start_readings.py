"""Readings of a model's pods and of the Events of pods, each with the time at which it arrived.

Two threads watch the pods and the Events. If a watch ends or is forbidden, its objects are listed ten times a second
instead.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster

POLL_S = 0.1
"""Interval between two lists of objects that can't be watched, in seconds."""
_RETRY_S = 1.0
OUTAGE_S = 100.0
"""Maximum time in seconds for which lists may fail after one has succeeded. It is as long as for other measurements."""
_EVENTS_OF_PODS = "regarding.kind=Pod"


class SeenObject(NamedTuple):
    """State of an object at a certain time, in seconds since the epoch."""

    at: float
    kind: Kind
    obj: Mapping[str, Any]


@dataclass
class StartReadings:
    """Readings of the pods that a selector matches, and of the Events of all pods in the namespace.

    As a context manager, it starts the threads. They end with their watches, because a thread that waits for the API
    server can't be interrupted.
    """

    cluster: Cluster
    selector: str
    _readings: queue.SimpleQueue[SeenObject | ClusterError] = field(default_factory=queue.SimpleQueue)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        for kind in (kinds.POD, kinds.EVENT):
            threading.Thread(target=self._keep, args=(kind,), name=f"watch-{kind.plural}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def next(self, limit_s: float) -> SeenObject | None:
        """Return the next reading; None if none arrives within `limit_s` seconds.

        Raises:
            ClusterError: the user may not list the pods, or the API server has been unreachable for `OUTAGE_S`.
        """
        try:
            reading = self._readings.get(timeout=limit_s)
        except queue.Empty:
            return None
        if isinstance(reading, ClusterError):
            raise reading
        return reading

    def _keep(self, kind: Kind) -> None:
        selector, fields = (self.selector, "") if kind == kinds.POD else ("", _EVENTS_OF_PODS)
        has_listed, failing_since_s = False, math.inf
        while not self._ended.is_set():
            now = time.time()
            try:
                objects, version = self.cluster.listing(kind, selector=selector, fields=fields) or ([], "")
            except ClusterError as error:
                failing_since_s = min(failing_since_s, time.monotonic())
                if has_listed and time.monotonic() - failing_since_s < OUTAGE_S:
                    time.sleep(_RETRY_S)
                    continue
                if kind == kinds.POD:
                    self._readings.put(error)
                # Without the right to read Events, the pod's status shows the steps, later.
                return
            has_listed, failing_since_s = True, math.inf
            for obj in objects:
                self._readings.put(SeenObject(now, kind, obj))
            try:
                for event, obj in self.cluster.watch(kind, since=version, selector=selector, fields=fields):
                    if event in {"ADDED", "MODIFIED"}:
                        self._readings.put(SeenObject(time.time(), kind, obj))
                    if self._ended.is_set():
                        break
            except ClusterError:
                # The next list shows whether the server can be reached.
                pass
            time.sleep(POLL_S)
