"""Number of rows in each request, either given or chosen from the execution times of the first requests. Pure.

The execution time of a batch of b rows is about t0 + b t1. A larger request spreads t0 over more rows, but requests of
users wait longer behind it. Therefore the smallest number is chosen whose time per row is at most 5 % above the
minimum.
"""

from __future__ import annotations

from halcyon.api.documents.batch_documents import MAX_REQUEST_ROWS

MAX_UNKNOWN_ROWS = 64
"""Maximum number of rows in a request that is tried if the model's largest batch is unknown."""
_TRIES = 5
"""Number of requests that are sent with each number of rows, to find the best number. Only the fastest answer counts,
because the first execution of a size is slow, and requests of users may delay others."""
_MAX_SHORT_REQUESTS = 20
"""Number of requests with fewer rows than the tried number after which no larger number is tried. Rows of different
shapes can't be in one request; without this limit, the choice would never end for such rows."""
_MAX_COST_RATIO = 1.05


class RequestRows:
    """Choice of the number of rows in each request.

    Until the number is chosen, only one request is in progress at a time.
    """

    def __init__(self, *, fixed: int | None, most: int) -> None:
        """Use `fixed` rows in each request; if it is None, choose a number from 1 to `most`, at most `MAX_REQUEST_ROWS`."""
        self._most = min(most, MAX_REQUEST_ROWS)
        self._trials = [] if fixed is not None else _sizes(self._most)
        self._times_s: dict[int, list[float]] = {}
        self._short = 0
        self.chosen = fixed

    @property
    def is_chosen(self) -> bool:
        """Whether the number of rows in each request has been chosen."""
        return self.chosen is not None

    @property
    def rows(self) -> int:
        """Number of rows in the next request."""
        return self.chosen if self.chosen is not None else self._trials[0]

    def answered(self, rows: int, latency_s: float) -> None:
        """Record the latency of a request. It counts only until the number of rows is chosen."""
        if self.chosen is not None:
            return
        if rows != self.rows:
            self._short += rows < self.rows
            if self._short >= _MAX_SHORT_REQUESTS:
                self._choose()
            return
        times_s = self._times_s.setdefault(rows, [])
        times_s.append(latency_s)
        if len(times_s) >= _TRIES:
            self._next()

    def limit(self, rows: int) -> None:
        """Limit the number of rows in each request, because the model rejects larger requests."""
        self._most = max(min(self._most, rows), 1)
        self._trials = [size for size in self._trials if size <= self._most]
        if self.chosen is not None:
            self.chosen = min(self.chosen, self._most)
        elif not self._trials:
            self._choose()

    def _next(self) -> None:
        self._trials, self._short = self._trials[1:], 0
        if not self._trials or self._is_past_best():
            self._choose()

    def _is_past_best(self) -> bool:
        """Return whether the last two numbers of rows both failed to lower the time per row."""
        costs = [cost for _, cost in sorted(self._costs_s().items())]
        return len(costs) >= 3 and min(costs[-2:]) > costs[-3] / _MAX_COST_RATIO

    def _choose(self) -> None:
        costs = {rows: cost for rows, cost in self._costs_s().items() if rows <= self._most}
        best = min(costs.values(), default=0.0)
        self.chosen = min(
            (rows for rows, cost in costs.items() if cost <= best * _MAX_COST_RATIO), default=min(self._most, 1)
        )

    def _costs_s(self) -> dict[int, float]:
        """Return the time per row in seconds, for each number of rows that was tried often enough."""
        return {rows: min(times_s) / rows for rows, times_s in self._times_s.items() if len(times_s) >= _TRIES}


def _sizes(most: int) -> list[int]:
    """Return the numbers of rows to try: the powers of two below `most`, and `most` itself."""
    sizes = [1 << n for n in range(most.bit_length()) if 1 << n < most]
    return [*sizes, most]
