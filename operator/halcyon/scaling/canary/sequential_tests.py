"""Sequential tests of two streams, with error rates that hold for any number of evaluations. Pure; uses only `math`.

If an ordinary p-value is evaluated every few seconds until it is small, the conclusion is wrong far more often than the
p-value suggests. Both tests here are valid at every evaluation and may be stopped at any time, without a planned end:

- shares (failed, late): bets against the hypothesis. The bettor's capital is a *test martingale*. If the hypothesis is
  true, the probability that the capital ever reaches 1/alpha is at most alpha (Ville 1939). So 1 / (largest capital) is
  a p-value at every evaluation. Each bet is the E-variable of Turner, Ly and Gruenwald, "Generic E-variables for exact
  sequential k-sample tests that allow for optional stopping" (J. Statistical Planning and Inference 230, 2024; for
  hypotheses with a margin: Turner and Gruenwald, arXiv:2203.09785). It is exact, without a normal approximation, so it
  also holds for zero failures or one, and for ten requests.
- means (queue time): an *asymptotic confidence sequence*, Robbins' normal mixture (Ann. Math. Statist. 41, 1970) with an
  estimated variance (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic
  confidence sequences", Ann. Statist. 52, 2024).

Alternatives: the error rate of Fisher's or Boschloo's exact test holds for a single evaluation only. Group-sequential bounds
(alpha spending) are for a few planned evaluations of approximately normal statistics, but here failures are few and
evaluations are many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-9
_MAX_STEPS, _CLOSE = 100, 1e-14
_SHARED = 0.01
"""Share of the capital that is redistributed among the alternative hypotheses before each window. An outage that
affects both revisions for one window can reduce the capital of every hypothesis to almost zero. With redistribution,
the capital of hypotheses that are right in later windows recovers."""
_MAX_LOG = 690.0
"""Maximum argument of exp. A larger argument would overflow a float."""
_OWN_WINDOWS = 10.0
"""Weight, in windows, of the prior assumption that requests are independent. After more windows than this, the variance
measured between windows outweighs it."""
MAX_BLOCKS, MIN_BLOCKS = 48, 24
MAX_CARRIED = 0.9
"""Maximum assumed correlation between the deviations of neighbouring windows or blocks."""
BEST_AT = 60
"""Number of windows after which the confidence intervals for means are narrowest. Collecting so many windows takes a
few minutes."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts for one revision: its requests (`trials`), and the failed or late ones among them (`events`)."""

    events: float = 0
    trials: float = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of two tallies."""
        return Tally(self.events + other.events, self.trials + other.trials)

    def faded(self, windows: float) -> Tally:
        """Return the tally times (1 - 1 / `windows`), for a moving average over about `windows` windows."""
        return Tally(self.events * (1 - 1 / windows), self.trials * (1 - 1 / windows))

    @property
    def share(self) -> float | None:
        """Return the ratio of events to trials; None if there are no trials."""
        return self.events / self.trials if self.trials else None

    def guess(self, prior: float, weight: float = 20.0) -> float:
        """Return the share of events among the trials, smoothed with a prior that counts as `weight` trials.

        The result is never exactly 0 or 1.
        """
        return min(max((self.events + prior * weight) / (self.trials + weight), 1e-4), 1 - 1e-4)


def nearest(bet: tuple[float, float], trials: tuple[float, float], margin: float) -> tuple[float, float]:
    """Return the point (a, a + margin) with the smallest Kullback-Leibler divergence from `bet`.

    The divergence of each stream is weighted by its trials. With margin 0, both coordinates are the weighted mean of `bet`.
    """
    (q, r), (n, m) = bet, trials
    if not margin:
        a = (n * q + m * r) / (n + m)
        return a, a
    low = max(min(q, r - margin), _TINY, _TINY - margin)
    high = min(max(q, r - margin), 1 - _TINY, 1 - _TINY - margin)
    a = (low + high) / 2
    # The sum of both divergences is convex along the line, so it is minimal at slope 0. The search uses Newton steps, and
    # bisection if a step leaves the range.
    for _ in range(_MAX_STEPS):
        b = a + margin
        var_a, var_b = a * (1 - a), b * (1 - b)
        slope = n * (a - q) / var_a + m * (b - r) / var_b
        if slope > 0:
            high = a
        else:
            low = a
        bend = n * (var_a - (a - q) * (1 - 2 * a)) / var_a**2 + m * (var_b - (b - r) * (1 - 2 * b)) / var_b**2
        new = a - slope / bend if bend > 0 else low
        if not low < new < high:
            new = (low + high) / 2
        done, a = abs(new - a) <= _CLOSE * a, new
        if done:
            break
    return a, a + margin


def log_e(first: Tally, second: Tally, bet: tuple[float, float], margin: float) -> float:
    """Return the logarithm of the E-variable of one window: evidence for `bet` against the hypothesis.

    `bet` = (q, r) is the alternative: the assumed shares of both streams, chosen before the window. If r > q + margin, the
    hypothesis is "the second share is at most `margin` above the first". If r < q + margin, it is "at least `margin` above".

    If the hypothesis holds, the expected value of the E-variable is at most 1. The proof has three steps:

    1. For each stream, the expected value of bet / nearest is a linear function of the true share.
    2. `nearest` minimizes the divergence. So n x (mean - 1) + m x (mean - 1) <= 0 in the whole half-plane of the
       hypothesis. Here n and m are the trials of the two streams, and each mean is the expected value from step 1.
    3. The claim follows from log x <= x - 1.

    The true shares may change within the window, as long as their means over the window satisfy the hypothesis.
    """
    near = nearest(bet, (first.trials, second.trials), margin)
    return sum(
        tally.events * math.log(q / p) + (tally.trials - tally.events) * math.log((1 - q) / (1 - p))
        for tally, q, p in zip((first, second), bet, near, strict=True)
    )


def from_log(value: float) -> float:
    """Return exp(value). The exponent is limited to `_MAX_LOG`, so that the result doesn't overflow."""
    return math.exp(min(value, _MAX_LOG))


@dataclass(frozen=True, slots=True)
class Capital:
    """Capital of a set of bets against one hypothesis.

    The capital starts with a total of 1 and grows if the hypothesis is wrong.
    """

    logs: tuple[float, ...] = ()
    """Logarithms of the capital in each bet. The last entry is that of a reserve, which is never bet. The tuple is
    empty before the first window."""
    peak: float = 0.0
    """Logarithm of the largest total capital so far. It determines the p-value."""

    @property
    def now(self) -> float:
        """Return the logarithm of the total capital of all bets."""
        return _log_sum(self.logs) if self.logs else 0.0

    def after(self, gains: Sequence[float], *, design: float, most: float = math.inf) -> Capital:
        """Return the capital after a window.

        Args:
            gains: the result of `log_e` for each bet, in the same order in every call.
            design: number of requests that share one outcome, 1 or more, known before the window. Each bet's E-variable is
                raised to the power 1 / design. If requests are independent, the error rate stays valid (Jensen). If groups
                of `design` requests fail together, the result equals a bet on groups. See Rao and Scott, Biometrics 48
                (1992), on design effects.
            most: cap on the logarithm of each E-variable. A reduced E-variable is still an E-variable, so the error
                rate stays valid. With the cap, no single window decides.
        """
        factors = (*gains, 0.0)
        before = self.logs or (-math.log(len(factors)),) * len(factors)
        dealt = _log_sum(before) + math.log(_SHARED / len(factors))
        retained = math.log(1 - _SHARED)
        logs = tuple(
            _log_sum((retained + log, dealt)) + min(factor / design, most)
            for log, factor in zip(before, factors, strict=True)
        )
        return Capital(logs, max(self.peak, _log_sum(logs)))


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(log - most) for log in logs))


@dataclass(frozen=True, slots=True)
class Spread:
    """Ratio of the measured variance of the difference between two shares to the variance for independent requests.

    The ratio is estimated from the windows so far.
    """

    squares: float = 0.0
    windows: int = 0
    products: float = 0.0
    """Sum of the products of the standardized deviations in neighbouring windows."""
    last: float = 0.0
    """Standardized deviation of the difference in the last window."""

    def factor(self, own: float = 1.0) -> float:
        """Return the ratio of the long-run variance to that of independent requests, at least 1.

        `own` is the value expected without data. The deviations of successive windows are modelled as an autoregressive
        process of order 1.
        """
        alike = max((own * _OWN_WINDOWS + self.squares) / (_OWN_WINDOWS + self.windows), 1.0)
        carried = min(max(self.products / (_OWN_WINDOWS + self.squares), 0.0), MAX_CARRIED)
        return alike * (1 + carried) / (1 - carried)

    def after(self, window: tuple[Tally, Tally], totals: tuple[Tally, Tally], *, prior: float) -> Spread:
        """Return the spread updated with one more window.

        The window adds Pearson's statistic divided by its degrees of freedom. `totals` is the sum over all windows,
        including the new one.
        """
        if not all(tally.trials for tally in window):
            return self
        shares = [tally.guess(prior) for tally in totals]
        variance = sum(p * (1 - p) / tally.trials for p, tally in zip(shares, window, strict=True))
        observed = [tally.events / tally.trials for tally in window]
        deviation = (observed[1] - observed[0] - shares[1] + shares[0]) / math.sqrt(variance)
        return Spread(self.squares + deviation**2, self.windows + 1, self.products + self.last * deviation, deviation)


Row = tuple[float, float, float, float]
"""Sums for one block of time: (sum of the first stream's values, their number, sum of the second stream's values, their
number)."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Two streams of values, summed by block of time, to compare their means without assuming independent values.

    All requests in a long queue wait long, and a queue stays long for seconds. The variance is therefore estimated
    between blocks of time, modelled as an autoregressive process of order 1 (Andrews and Monahan, Econometrica 60,
    1992). If there are more than `MAX_BLOCKS` blocks, each pair of adjacent blocks is merged.
    """

    rows: tuple[Row, ...] = ()
    windows: int = 0
    """Total number of windows in all blocks."""
    size: int = 1
    """Number of windows per block. The last block may have fewer."""
    filled: int = 0
    """Number of windows in the last block."""

    def after(self, row: Row) -> Blocks:
        """Return the blocks with one more window added. A window is ignored if either stream has no values in it."""
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
    def totals(self) -> Row:
        """Return the sums and counts of both streams over all blocks."""
        first, n, second, m = (
            (math.fsum(column) for column in zip(*self.rows, strict=True)) if self.rows else (0.0,) * 4
        )
        return first, n, second, m

    def difference(self, alpha: float) -> tuple[float, float] | None:
        """Return a confidence interval for the difference of the means (second minus first).

        Return None if there are too few blocks.

        The level `alpha` holds for all evaluations together, asymptotically in the number of windows.
        """
        first, n, second, m = self.totals
        if len(self.rows) < MIN_BLOCKS:
            return None
        weights = (-1 / n, first / n / n, 1 / m, -second / m / m)
        reach = self._reach(weights, alpha)
        middle = second / m - first / n
        return middle - reach, middle + reach

    def _reach(self, weights: Row, alpha: float) -> float:
        """Return half the width of the confidence interval for a statistic.

        `weights` are the partial derivatives of the statistic with respect to the four sums of a block.
        """
        parts = [sum(weight * value for weight, value in zip(weights, row, strict=True)) for row in self.rows]
        count = len(parts)
        variance = math.fsum(part * part for part in parts)
        if not variance:
            return 0.0
        carried = math.fsum(part * following for part, following in itertools.pairwise(parts)) / variance
        # With few blocks the estimated correlation is too low (Kendall 1954). A negative one is attributed to chance.
        carried = min(max(carried + (1 + 3 * carried) / count, 0.0), MAX_CARRIED)
        # The last factor is the variance of Student's distribution over that of the normal one.
        variance *= (1 + carried) / (1 - carried) * count / (count - 3)
        return math.sqrt(variance) * boundary(self.windows, alpha=alpha, best_at=BEST_AT)


def _added(a: Row, b: Row) -> Row:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def boundary(count: int, *, alpha: float, best_at: int) -> float:
    """Return the half-width, in standard errors, of the confidence sequence for a mean after `count` values.

    The probability that the mean ever leaves the sequence is at most `alpha`. The sequence is Robbins' normal mixture:
    its bound is the point at which the mixture of exp(s x - s^2 v / 2) over s ~ N(0, 1 / rho) reaches 1 / alpha.
    """
    rho = tightest(alpha=alpha, at=best_at)
    return math.sqrt((count + rho) / count * (math.log((count + rho) / rho) + 2 * math.log(1 / alpha)))


def tightest(*, alpha: float, at: int) -> float:
    """Return the parameter rho for which `boundary` is approximately narrowest after `at` values.

    The parameter is the inverse of the mixture's variance. Source: Howard, Ramdas, McAuliffe, Sekhon, Ann. Statist. 49
    (2021).
    """
    return at / (2 * math.log(1 / alpha) + math.log1p(2 * math.log(1 / alpha)))
