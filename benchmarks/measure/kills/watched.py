"""Measurements that were killed, watched until nothing is left of them."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from benchmarks.measure.kills.killed import Killed, object_kinds
from tests.integration.operator_space import Space

REMOVAL_TIMEOUT_S = 300.0
"""Seconds within which all objects must be deleted."""
_STAYS_REMOVED_S = 10.0


class Watched(threading.Thread):
    """The measurements that were killed, watched until nothing is left of them.

    As a context manager, it polls their objects once a second.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(daemon=True)
        self._space, self._ends = space, threading.Event()
        self._killed: dict[str, Killed] = {}
        self.removed_after_s: dict[str, float | None] = {}
        """Seconds from each kill until no object was left, by model; None if one is."""

    def add(self, killed: Killed) -> None:
        """Watch another measurement."""
        self.removed_after_s[killed.model] = None
        self._killed[killed.model] = killed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self.join()

    def wait(self) -> None:
        """Return when all objects are deleted and stay so, or after the limit."""
        while any(
            self.removed_after_s[killed.model] is None and self._age_s(killed) < REMOVAL_TIMEOUT_S
            for killed in [*self._killed.values()]
        ):
            time.sleep(1.0)
        # An object that is created again after its removal isn't deleted.
        time.sleep(_STAYS_REMOVED_S)

    def run(self) -> None:
        """Poll once a second."""
        while not self._ends.wait(1.0):
            measurements = dict(self._killed)
            try:
                remaining = object_kinds(self._space, measurements)
            except AssertionError:  # the API server didn't answer in time
                continue
            for model, kinds in remaining.items():
                measurement = measurements[model]
                if kinds or measurement.process.poll() is None:
                    self.removed_after_s[model] = None
                elif self.removed_after_s[model] is None:
                    self.removed_after_s[model] = self._age_s(measurement)

    @staticmethod
    def _age_s(killed: Killed) -> float:
        return time.monotonic() - killed.at_s
