"""Limit of the requests in progress, derived from latencies and rejections. Pure.

A request that waits behind users' requests takes longer. So the limit grows while answers are fast, and shrinks while
they are slow. It follows the free capacity without a fixed rate.
"""

from __future__ import annotations

from collections import deque

MAX_REQUESTS = 256
_SLOW, _SLOW_GENTLE = 3.0, 1.3
"""Latency, as a multiple of the lowest one, above which the window shrinks. At 3.0, an instance runs one request while
another one waits.
"""
_LEAST, _LEAST_GENTLE = 2, 1
"""Smallest window. In a balancer's lower class, a waiting request delays no user, and starts as soon as capacity is
free.
"""
_REMEMBERED = 500
"""Number of last answers whose lowest latency is the reference. Older answers may be of another revision or another
GPU.
"""


class RequestWindow:
    """Limit of the number of requests in progress."""

    def __init__(self, *, gentle: bool, most: int = MAX_REQUESTS) -> None:
        """Begin with a limit of one request.

        `gentle` keeps nearly all requests of this batch from waiting in the servers.
        """
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
        """Adjust the limit by the latency, in seconds, of an answer to a request of the usual size."""
        self._latencies.append(latency_s)
        self._seen += 1
        if self._seen % 50 == 1 or latency_s < self._lowest:
            self._lowest = min(self._latencies)
        if latency_s > self._slow * self._lowest:
            # Each slow answer takes a quarter, so slow answers to all requests of a window shrink it by 25 %.
            self._size -= 0.25
            self._doubles = False
        else:
            self._size += 1.0 if self._doubles else 1.0 / self._size
        self._size = min(max(self._size, float(self._least)), float(self._most))

    def rejected(self) -> None:
        """Halve the limit after a rejection, which the balancer sends while requests of the batch's class must wait."""
        self._doubles = False
        self._size = max(self._size / 2, float(self._least))

    def restart(self) -> None:
        """Discard the latencies, because further requests have another size."""
        self._latencies.clear()
        self._seen = 0
