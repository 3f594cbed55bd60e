"""Measurements that were killed, watched until nothing is left of them."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from benchmarks.measure.kills.killed import Killed, present
from tests.integration.operator_space import Space

GONE_S = 300.0
"""Seconds within which everything must be gone."""
_STAYS_GONE_S = 10.0


class Watched(threading.Thread):
    """The measurements that were killed, watched until nothing is left of them.

    As a context manager, it looks at them once a second.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(daemon=True)
        self._space, self._ends = space, threading.Event()
        self._killed: dict[str, Killed] = {}
        self.gone: dict[str, float | None] = {}
        """Seconds from each kill until nothing was left, by model; None if something is."""

    def add(self, one: Killed) -> None:
        """Watch one more."""
        self.gone[one.model] = None
        self._killed[one.model] = one

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self.join()

    def wait(self) -> None:
        """Return when everything is gone and stays gone, or when the limit is over."""
        while any(self.gone[one.model] is None and self._age_s(one) < GONE_S for one in [*self._killed.values()]):
            time.sleep(1.0)
        # Whatever comes back after its removal isn't gone.
        time.sleep(_STAYS_GONE_S)

    def run(self) -> None:
        """Look once a second."""
        while not self._ends.wait(1.0):
            killed = dict(self._killed)
            try:
                left = present(self._space, killed)
            except AssertionError:  # the API server didn't answer in time
                continue
            for model, found in left.items():
                one = killed[model]
                if found or one.process.poll() is None:
                    self.gone[model] = None
                elif self.gone[model] is None:
                    self.gone[model] = self._age_s(one)

    @staticmethod
    def _age_s(one: Killed) -> float:
        return time.monotonic() - one.at_s
