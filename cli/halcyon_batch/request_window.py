"""How many requests are in progress, from the latencies of answers and from rejections. Pure.

A request that waits behind those of users takes longer. So the window grows while answers are fast, shrinks while they are slow, and
follows the free capacity without a fixed rate.
"""

from __future__ import annotations

from collections import deque

MAX_REQUESTS = 256
_SLOW, _SLOW_GENTLE = 3.0, 1.3
"""Latency, as a multiple of the lowest one, above which the window shrinks. An instance then has a request that runs and one that waits."""
_LEAST, _LEAST_GENTLE = 2, 1
"""Smallest window. A request that waits in a balancer of the lower class costs users nothing, and uses what they leave at once."""
_REMEMBERED = 500
"""Answers among which the lowest latency counts, so that it follows another revision or another GPU."""


class RequestWindow:
    """Limit of the requests in progress."""

    def __init__(self, *, gentle: bool, most: int = MAX_REQUESTS) -> None:
        """Begin with one request. `gentle` keeps servers nearly free of waiting requests of this batch."""
        self._slow, self._least = (_SLOW_GENTLE, _LEAST_GENTLE) if gentle else (_SLOW, _LEAST)
        self._most = most
        self._size = 1.0
        self._doubles = True
        self._latencies: deque[float] = deque(maxlen=_REMEMBERED)
        self._lowest = 0.0
        self._seen = 0

    @property
    def limit(self) -> int:
        """Number of requests that may be in progress."""
        return int(self._size)

    def answered(self, latency_s: float) -> None:
        """Take the latency of an answer to a request of the usual size, in seconds."""
        self._latencies.append(latency_s)
        self._seen += 1
        if self._seen % 50 == 1 or latency_s < self._lowest:
            self._lowest = min(self._latencies)
        if latency_s > self._slow * self._lowest:
            # Each answer of a window takes its share, so a whole window of slow answers shrinks it by a quarter.
            self._size -= 0.25
            self._doubles = False
        else:
            self._size += 1.0 if self._doubles else 1.0 / self._size
        self._size = min(max(self._size, float(self._least)), float(self._most))

    def rejected(self) -> None:
        """Take a rejection: the class of this batch waits."""
        self._doubles = False
        self._size = max(self._size / 2, float(self._least))

    def restart(self) -> None:
        """Forget the latencies, because requests have another size from now on."""
        self._latencies.clear()
        self._seen = 0
