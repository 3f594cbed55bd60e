"""Limit on the requests in progress, derived from latencies and rejections. Pure.

A request of a batch takes longer if it waits behind requests of users. Therefore the limit grows while answers are
fast, and shrinks while they are slow. In this way, the batch uses the free capacity without a fixed rate.

The time of a request can depend on its rows, for example if texts have different lengths. Therefore mean latencies are
compared.
"""

from __future__ import annotations

from collections import deque

MAX_REQUESTS = 256
_SLOW, _SLOW_GENTLE = 3.0, 1.3
"""Ratio of the mean latency to its lowest recent value above which answers count as slow, so that the limit shrinks: by
default, and for a gentle batch. A larger ratio lets more requests wait in the servers. At 3.0, each instance has one
request that runs and one that waits."""
_LEAST, _LEAST_GENTLE = 2, 1
"""Minimum limit on the requests in progress: by default, and for a gentle batch. A request that waits in the balancer's
lower-priority class delays no user, and starts as soon as capacity is free."""
_REMEMBERED = 500
"""Number of most recent answers over which the lowest mean latency is determined. Older answers may be from another
revision or another GPU."""
_FIRST, _MEAN_OF = 5, 16
"""Number of answers before the limit is first changed, and approximate number of recent answers in a mean latency. With
fewer answers, a few rows that happen to take little time would lower the mean."""


class _Latency:
    """Mean latency of the most recent requests with one number of rows, in seconds, and its lowest value."""

    def __init__(self) -> None:
        self.answers, self.mean_s = 0, 0.0
        self._means_s: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def lowest_s(self) -> float:
        return min(self._means_s)

    def add(self, latency_s: float) -> None:
        self.answers += 1
        self.mean_s += (latency_s - self.mean_s) / min(self.answers, _MEAN_OF)
        if self.answers >= _FIRST:
            self._means_s.append(self.mean_s)


class RequestWindow:
    """Limit on the number of requests that a batch has in progress."""

    def __init__(self, *, gentle: bool, most: int = MAX_REQUESTS) -> None:
        """Begin with a limit of one request in progress.

        If `gentle` is true, the limit stays so low that almost no request of this batch waits in the servers.
        """
        self._slow, self._least = (_SLOW_GENTLE, _LEAST_GENTLE) if gentle else (_SLOW, _LEAST)
        self._most = most
        self._size = 1.0
        self._doubles = True
        self._latencies: dict[int, _Latency] = {}
        """Latencies of requests, by the number of rows in the request."""

    @property
    def limit(self) -> int:
        """Maximum number of requests that may be in progress."""
        return int(self._size)

    def answered(self, latency_s: float, rows: int = 1) -> None:
        """Adjust the limit after an answer to a request with `rows` rows, by its latency in seconds.

        The latency is compared only with that of requests with the same number of rows, because more rows take longer.
        """
        latency = self._latencies.setdefault(rows, _Latency())
        latency.add(latency_s)
        if latency.answers < _FIRST:
            return
        slow_s = self._slow * latency.lowest_s
        self._doubles &= latency_s <= slow_s
        if latency.mean_s <= slow_s:
            self._size += 1.0 if self._doubles else 1.0 / self._size
        elif latency_s > latency.lowest_s:
            # Each slow answer takes a quarter, so slow answers to all requests of a window shrink it by 25 %.
            self._size -= 0.25
        self._size = min(max(self._size, float(self._least)), float(self._most))

    def rejected(self) -> None:
        """Halve the limit on requests in progress after a rejection.

        The balancer rejects requests of the batch while their lower-priority class must wait.
        """
        self._doubles = False
        self._size = max(self._size / 2, float(self._least))
