"""Two streams compared again and again, with an error that holds however often one looks. Pure; `math` alone.

Whoever looks at an ordinary p-value each few seconds, and stops when it is small, is wrong far more often than it says. Both tools here
hold at every look and at every moment of stopping, without a planned end:

- shares (failed, late): bets against the hypothesis, whose capital is a *test martingale*. If the hypothesis is true, the capital ever
  reaches 1/alpha with probability alpha at most (Ville 1939). So 1 / (largest capital) is a p-value at every look.
  Each bet is the E-variable of Turner, Ly and Gruenwald, "Generic E-variables for exact sequential k-sample tests that allow for optional
  stopping" (J. Statistical Planning and Inference 230, 2024; for hypotheses with a margin: Turner and Gruenwald, arXiv:2203.09785).
  It is exact: no normal approximation, so it holds for no failures at all, for one, and for ten requests.
- means (queue time): an *asymptotic confidence sequence*, Robbins' normal mixture (Ann. Math. Statist. 41, 1970) with an estimated
  variance (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences",
  Ann. Statist. 52, 2024).

Why not Fisher's or Boschloo's exact test: their error is that of one look. Why not group-sequential bounds (alpha spending): they are
for a few planned looks at approximately normal statistics, and failures are few and looks are many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-9
_MAX_STEPS, _CLOSE = 100, 1e-14
_SHARED = 0.01
"""Of the capital that is dealt out anew before each window. Without it one window that is bad for both revisions (an outage behind
them) would ruin every bet for good: bets would be right for windows in which nobody fails."""
_MAX_LOG = 690.0
"""exp of more is no float."""
_OWN_WINDOWS = 10.0
"""Windows' worth of trust that single requests are independent, before the spread between windows is believed instead."""


MAX_BLOCKS, MIN_BLOCKS = 48, 24
BEST_AT = 60
"""Windows at which statements on means are tightest: some minutes of looks."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests of one stream, and those with the event (failed, late)."""

    events: int = 0
    trials: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(self.events + other.events, self.trials + other.trials)

    @property
    def share(self) -> float | None:
        """Of the event; None of no requests."""
        return self.events / self.trials if self.trials else None

    def guess(self, prior: float, weight: float = 20.0) -> float:
        """The share, with so many requests' worth of a prior; never 0 or 1."""
        return min(max((self.events + prior * weight) / (self.trials + weight), 1e-4), 1 - 1e-4)


def nearest(bet: tuple[float, float], trials: tuple[int, int], margin: float) -> tuple[float, float]:
    """The point (a, a + margin) that is nearest to `bet`, each stream's divergence times its trials: KL(bet, point) is least.

    With margin 0 that is the mean weighted by trials, for both.
    """
    (q, r), (n, m) = bet, trials
    if not margin:
        a = (n * q + m * r) / (n + m)
        return a, a
    low = max(min(q, r - margin), _TINY, _TINY - margin)
    high = min(max(q, r - margin), 1 - _TINY, 1 - _TINY - margin)
    a = (low + high) / 2
    # The sum of both divergences is convex along the line: it is least where its slope is 0. Newton's steps, halves where they leave.
    for _ in range(_MAX_STEPS):
        b = a + margin
        of_a, of_b = a * (1 - a), b * (1 - b)
        slope = n * (a - q) / of_a + m * (b - r) / of_b
        if slope > 0:
            high = a
        else:
            low = a
        bend = n * (of_a - (a - q) * (1 - 2 * a)) / of_a**2 + m * (of_b - (b - r) * (1 - 2 * b)) / of_b**2
        new = a - slope / bend if bend > 0 else low
        if not low < new < high:
            new = (low + high) / 2
        done, a = abs(new - a) <= _CLOSE * a, new
        if done:
            break
    return a, a + margin


def log_e(first: Tally, second: Tally, bet: tuple[float, float], margin: float) -> float:
    """Log of the E-variable of one window, against "share of second = share of first + margin" and all that lies beyond it.

    `bet` = (q, r) is what is bet on, and chosen before the window is seen. With r > q + margin it is against "second is at most so
    much above first"; with r < q + margin against "at least".

    Why its mean is at most 1 wherever the hypothesis holds: along each stream the mean of bet / nearest is linear in the true share, and
    that `nearest` is nearest says that n x (mean - 1) + m x (mean - 1) <= 0 on the whole half-plane behind the line; and
    log x <= x - 1. Shares may change within the window, as long as their means over it obey the hypothesis.
    """
    near = nearest(bet, (first.trials, second.trials), margin)
    return sum(
        tally.events * math.log(q / p) + (tally.trials - tally.events) * math.log((1 - q) / (1 - p))
        for tally, q, p in zip((first, second), bet, near, strict=True)
    )


def from_log(value: float) -> float:
    """exp, bounded."""
    return math.exp(min(value, _MAX_LOG))


@dataclass(frozen=True, slots=True)
class Capital:
    """What a set of bets has made of 1."""

    logs: tuple[float, ...] = ()
    """Of each bet's part, and last of the part that is never bet; empty before the first window."""
    peak: float = 0.0
    """Log of the largest total so far."""

    @property
    def now(self) -> float:
        """Log of the total."""
        return _log_sum(self.logs) if self.logs else 0.0

    def after(self, won: Sequence[float], *, design: float) -> Capital:
        """The capital after a window.

        Args:
            won: log_e of each bet, always as many.
            design: requests that share one fate, 1 or more, known before the window: a bet is raised to 1 / design. Where
                requests are independent the hypothesis is still wrongly refused no more often (Jensen); where each group of so many
                fails as one, the bet is as good as one on groups. See Rao and Scott, Biometrics 48 (1992), on design effects.
        """
        factors = (*won, 0.0)
        before = self.logs or (-math.log(len(factors)),) * len(factors)
        dealt = _log_sum(before) + math.log(_SHARED / len(factors))
        kept = math.log(1 - _SHARED)
        logs = tuple(
            _log_sum((kept + log, dealt)) + factor / design for log, factor in zip(before, factors, strict=True)
        )
        return Capital(logs, max(self.peak, _log_sum(logs)))


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(log - most) for log in logs))


@dataclass(frozen=True, slots=True)
class Spread:
    """How much more the difference of two shares moves from window to window than independent requests would make it."""

    squares: float = 0.0
    windows: int = 0

    @property
    def factor(self) -> float:
        """1 for independent requests: the variance's multiple, with a prior for 1, and never less."""
        return max((_OWN_WINDOWS + self.squares) / (_OWN_WINDOWS + self.windows), 1.0)

    def after(self, window: tuple[Tally, Tally], whole: tuple[Tally, Tally], *, prior: float) -> Spread:
        """With one more window; `whole` is all windows together, this one included. Pearson's statistic over its degrees."""
        if not all(tally.trials for tally in window):
            return self
        shares = [tally.guess(prior) for tally in whole]
        variance = sum(p * (1 - p) / tally.trials for p, tally in zip(shares, window, strict=True))
        seen = [tally.events / tally.trials for tally in window]
        return Spread(self.squares + (seen[1] - seen[0] - shares[1] + shares[0]) ** 2 / variance, self.windows + 1)


Row = tuple[float, float, float, float]
"""Of one block of time: sum and count of the first stream, sum and count of the second."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Two streams of values by blocks of time, for statements on their means that don't take single values for independent.

    What waits behind a long queue waits long, one and all; and a queue that is long now is long in a second. So a variance is taken
    from block to block, as that of a process in which a block carries over a part of the one before (Andrews and Monahan, Econometrica
    60, 1992), and blocks grow: where there are more than `MAX_BLOCKS`, each two become one.
    """

    rows: tuple[Row, ...] = ()
    windows: int = 0
    """That have gone into the rows."""
    size: int = 1
    """Windows of one row; the last may have fewer."""
    filled: int = 0
    """Windows of the last row."""

    def after(self, row: Row) -> Blocks:
        """With one more window; one without values in one of the streams says nothing about their difference."""
        if row[1] <= 0 or row[3] <= 0:
            return self
        if self.rows and self.filled < self.size:
            rows = (*self.rows[:-1], _added(self.rows[-1], row))
            return Blocks(rows, self.windows + 1, self.size, self.filled + 1)
        rows, size = (*self.rows, row), self.size
        if len(rows) <= MAX_BLOCKS:
            return Blocks(rows, self.windows + 1, size, 1)
        pairs = [_added(rows[n], rows[n + 1]) for n in range(0, len(rows) - 1, 2)]
        if len(rows) % 2:
            return Blocks((*pairs, rows[-1]), self.windows + 1, 2 * size, 1)
        return Blocks(tuple(pairs), self.windows + 1, 2 * size, size + 1)

    @property
    def whole(self) -> Row:
        """All rows together."""
        first, n, second, m = (
            (math.fsum(column) for column in zip(*self.rows, strict=True)) if self.rows else (0.0,) * 4
        )
        return first, n, second, m

    def difference(self, alpha: float) -> tuple[float, float] | None:
        """Of the means, second less first: an interval that holds at all looks together, for many windows; None of too few."""
        first, n, second, m = self.whole
        if len(self.rows) < MIN_BLOCKS:
            return None
        weights = (-1 / n, first / n / n, 1 / m, -second / m / m)
        reach = self._reach(weights, alpha)
        middle = second / m - first / n
        return middle - reach, middle + reach

    def ratio(self, alpha: float) -> tuple[float, float] | None:
        """Of the means, second by first: the same; None also where a mean is 0."""
        first, n, second, m = self.whole
        if len(self.rows) < MIN_BLOCKS or min(first, second) <= 0:
            return None
        reach = self._reach((-1 / first, 1 / n, 1 / second, -1 / m), alpha)
        middle = math.log(second / m) - math.log(first / n)
        return from_log(middle - reach), from_log(middle + reach)

    def _reach(self, weights: Row, alpha: float) -> float:
        """Half the width, of a figure to which each row adds so much per unit."""
        parts = [sum(weight * value for weight, value in zip(weights, row, strict=True)) for row in self.rows]
        count = len(parts)
        variance = math.fsum(part * part for part in parts)
        if not variance:
            return 0.0
        carried = math.fsum(one * next_ for one, next_ in itertools.pairwise(parts)) / variance
        # Of few parts it comes out too low (Kendall 1954). Neighbours that seem to make up for each other are chance.
        carried = min(max(carried + (1 + 3 * carried) / count, 0.0), 0.9)
        # The last factor is what Student's distribution has over the normal one.
        variance *= (1 + carried) / (1 - carried) * count / (count - 3)
        return math.sqrt(variance) * boundary(self.windows, alpha=alpha, best_at=BEST_AT)


def _added(a: Row, b: Row) -> Row:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def boundary(count: int, *, alpha: float, best_at: int) -> float:
    """Standard errors by which a mean of `count` values may ever be off, but for a probability of alpha: Robbins' normal mixture.

    It is where the mixture of exp(s x - s^2 v / 2) over s ~ N(0, 1 / rho) reaches 1 / alpha.
    """
    rho = tightest(alpha=alpha, at=best_at)
    return math.sqrt((count + rho) / count * (math.log((count + rho) / rho) + 2 * math.log(1 / alpha)))


def tightest(*, alpha: float, at: int) -> float:
    """The rho that makes the boundary tightest at a count, approximately: Howard, Ramdas, McAuliffe, Sekhon, Ann. Statist. 49 (2021)."""
    return at / (2 * math.log(1 / alpha) + math.log1p(2 * math.log(1 / alpha)))
