"""Sequential tests of two streams, whose error holds however often they are evaluated. Pure; `math` alone.

Evaluating an ordinary p-value every few seconds, and stopping once it is small, is wrong far more often than the p-value
suggests. Both tools here hold at every evaluation and at every stopping time, without a planned end:

- shares (failed, late): bets against the hypothesis, whose capital is a *test martingale*. If the hypothesis is true, the
  capital ever reaches 1/alpha with probability alpha at most (Ville 1939). So 1 / (largest capital) is a p-value at every
  evaluation. Each bet is the E-variable of Turner, Ly and Gruenwald, "Generic E-variables for exact sequential k-sample tests
  that allow for optional stopping" (J. Statistical Planning and Inference 230, 2024; for hypotheses with a margin: Turner and
  Gruenwald, arXiv:2203.09785). It is exact, without a normal approximation, so it holds for no failures at all, for one, and
  for ten requests.
- means (queue time): an *asymptotic confidence sequence*, Robbins' normal mixture (Ann. Math. Statist. 41, 1970) with an
  estimated variance (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic
  confidence sequences", Ann. Statist. 52, 2024).

Why not Fisher's or Boschloo's exact test: their error is that of one evaluation. Why not group-sequential bounds (alpha
spending): they are for a few planned evaluations of approximately normal statistics, and here failures are few and evaluations
are many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-9
_MAX_STEPS, _CLOSE = 100, 1e-14
_SHARED = 0.01
"""Share of the capital that is redistributed before each window. Without it, one window that is bad for both revisions (an
outage behind them) would ruin every bet for good: later, bets on windows without failures would be right."""
_MAX_LOG = 690.0
"""Maximum exponent: exp of more is no float."""
_OWN_WINDOWS = 10.0
"""Windows during which single requests are presumed independent, before the measured spread between windows takes over."""


MAX_BLOCKS, MIN_BLOCKS = 48, 24
BEST_AT = 60
"""Windows at which bounds on means are tightest: some minutes."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests of one stream, and those with the event (failed, late)."""

    events: int = 0
    trials: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return Tally(self.events + other.events, self.trials + other.trials)

    @property
    def share(self) -> float | None:
        """Return the share of the event; None without requests."""
        return self.events / self.trials if self.trials else None

    def guess(self, prior: float, weight: float = 20.0) -> float:
        """Return the share, smoothed with a prior worth `weight` requests; never 0 or 1."""
        return min(max((self.events + prior * weight) / (self.trials + weight), 1e-4), 1 - 1e-4)


def nearest(bet: tuple[float, float], trials: tuple[int, int], margin: float) -> tuple[float, float]:
    """Return the point (a, a + margin) nearest to `bet`, each stream weighted by its trials: KL(bet, point) is minimal.

    With margin 0 that is the mean weighted by trials, for both.
    """
    (q, r), (n, m) = bet, trials
    if not margin:
        a = (n * q + m * r) / (n + m)
        return a, a
    low = max(min(q, r - margin), _TINY, _TINY - margin)
    high = min(max(q, r - margin), 1 - _TINY, 1 - _TINY - margin)
    a = (low + high) / 2
    # The sum of both divergences is convex along the line: it is minimal at slope 0. Newton steps, or halving if they leave the
    # range.
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
    """Return the log E-variable of one window, against "share of second = share of first + margin" and all beyond it.

    `bet` = (q, r) is the alternative, chosen before the window is seen. With r > q + margin it tests against "second is at most
    `margin` above first"; with r < q + margin against "at least".

    Its mean is at most 1 if the hypothesis holds. Along each stream the mean of bet / nearest is linear in the true share.
    Because `nearest` is nearest, n x (mean - 1) + m x (mean - 1) <= 0 on the whole half-plane behind the line. With log x <= x
    - 1, the claim follows. Shares may change within the window, as long as their means over it obey the hypothesis.
    """
    near = nearest(bet, (first.trials, second.trials), margin)
    return sum(
        tally.events * math.log(q / p) + (tally.trials - tally.events) * math.log((1 - q) / (1 - p))
        for tally, q, p in zip((first, second), bet, near, strict=True)
    )


def from_log(value: float) -> float:
    """Return exp of the value, bounded."""
    return math.exp(min(value, _MAX_LOG))


@dataclass(frozen=True, slots=True)
class Capital:
    """Capital that a set of bets has made of 1."""

    logs: tuple[float, ...] = ()
    """Logarithm of each bet's share of the capital, and last of the share that is never bet; empty before the first window."""
    peak: float = 0.0
    """Log of the largest total so far."""

    @property
    def now(self) -> float:
        """Return the log of the total."""
        return _log_sum(self.logs) if self.logs else 0.0

    def after(self, won: Sequence[float], *, design: float) -> Capital:
        """Return the capital after a window.

        Args:
            won: log_e of each bet, always as many.
            design: requests that share one outcome, 1 or more, known before the window: a bet is raised to 1 / design. If
                requests are independent, the hypothesis is still wrongly rejected no more often (Jensen). If each group of so
                many fails as one, the bet is as good as one on groups. See Rao and Scott, Biometrics 48 (1992), on design
                effects.
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
    """Ratio of the variance of a difference of shares between windows to that of independent requests."""

    squares: float = 0.0
    windows: int = 0

    @property
    def factor(self) -> float:
        """Return the ratio: 1 for independent requests, with a prior for 1, and never less."""
        return max((_OWN_WINDOWS + self.squares) / (_OWN_WINDOWS + self.windows), 1.0)

    def after(self, window: tuple[Tally, Tally], whole: tuple[Tally, Tally], *, prior: float) -> Spread:
        """Add one more window; `whole` is all windows together, this one included. Pearson's statistic over its degrees."""
        if not all(tally.trials for tally in window):
            return self
        shares = [tally.guess(prior) for tally in whole]
        variance = sum(p * (1 - p) / tally.trials for p, tally in zip(shares, window, strict=True))
        seen = [tally.events / tally.trials for tally in window]
        return Spread(self.squares + (seen[1] - seen[0] - shares[1] + shares[0]) ** 2 / variance, self.windows + 1)


Row = tuple[float, float, float, float]
"""One block of time: sum and count of the first stream, sum and count of the second."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Two streams of values by blocks of time, to compare their means without assuming that single values are independent.

    Requests behind a long queue all wait long, and a queue that is long now is long a second later. So the variance is taken
    from block to block, for a process in which a block carries over a part of the one before (Andrews and Monahan, Econometrica
    60, 1992). Blocks grow: above `MAX_BLOCKS`, each two become one.
    """

    rows: tuple[Row, ...] = ()
    windows: int = 0
    """Number of windows in the rows."""
    size: int = 1
    """Windows per row; the last may have fewer."""
    filled: int = 0
    """Windows in the last row."""

    def after(self, row: Row) -> Blocks:
        """Add one more window; one in which either stream has no values says nothing about their difference."""
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
        """Return the sum of all rows."""
        first, n, second, m = (
            (math.fsum(column) for column in zip(*self.rows, strict=True)) if self.rows else (0.0,) * 4
        )
        return first, n, second, m

    def difference(self, alpha: float) -> tuple[float, float] | None:
        """Return an interval of the difference of means, second minus first; None with too few windows.

        It holds at all evaluations together, for many windows.
        """
        first, n, second, m = self.whole
        if len(self.rows) < MIN_BLOCKS:
            return None
        weights = (-1 / n, first / n / n, 1 / m, -second / m / m)
        reach = self._reach(weights, alpha)
        middle = second / m - first / n
        return middle - reach, middle + reach

    def ratio(self, alpha: float) -> tuple[float, float] | None:
        """Return an interval of the ratio of means, second by first; None with too few windows, or if a mean is 0."""
        first, n, second, m = self.whole
        if len(self.rows) < MIN_BLOCKS or min(first, second) <= 0:
            return None
        reach = self._reach((-1 / first, 1 / n, 1 / second, -1 / m), alpha)
        middle = math.log(second / m) - math.log(first / n)
        return from_log(middle - reach), from_log(middle + reach)

    def _reach(self, weights: Row, alpha: float) -> float:
        """Return half the width of the interval, for a figure to which each row adds so much per unit."""
        parts = [sum(weight * value for weight, value in zip(weights, row, strict=True)) for row in self.rows]
        count = len(parts)
        variance = math.fsum(part * part for part in parts)
        if not variance:
            return 0.0
        carried = math.fsum(one * next_ for one, next_ in itertools.pairwise(parts)) / variance
        # With few parts the estimate is too low (Kendall 1954). Negative correlation of neighbours is chance.
        carried = min(max(carried + (1 + 3 * carried) / count, 0.0), 0.9)
        # The last factor is the variance of Student's distribution over that of the normal one.
        variance *= (1 + carried) / (1 - carried) * count / (count - 3)
        return math.sqrt(variance) * boundary(self.windows, alpha=alpha, best_at=BEST_AT)


def _added(a: Row, b: Row) -> Row:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def boundary(count: int, *, alpha: float, best_at: int) -> float:
    """Return the standard errors by which a mean of `count` values may ever be off, except with probability alpha.

    Robbins' normal mixture: the point where the mixture of exp(s x - s^2 v / 2) over s ~ N(0, 1 / rho) reaches 1 / alpha.
    """
    rho = tightest(alpha=alpha, at=best_at)
    return math.sqrt((count + rho) / count * (math.log((count + rho) / rho) + 2 * math.log(1 / alpha)))


def tightest(*, alpha: float, at: int) -> float:
    """Return the rho that makes the boundary tightest at a count, approximately.

    Source: Howard, Ramdas, McAuliffe, Sekhon, Ann. Statist. 49 (2021).
    """
    return at / (2 * math.log(1 / alpha) + math.log1p(2 * math.log(1 / alpha)))
