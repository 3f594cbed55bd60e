"""Input and output of canary analysis: samples, rules, evidence, decision and memory. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from halcyon.scaling.canary.sequential_tests import Blocks, Capital, Spread, Tally
from halcyon.scaling.histogram import Histogram

Name = Literal["errors", "latency", "queue"]
Finding = Literal["worse", "fine", "open", "unknown"]
Action = Literal["promote", "wait", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Counts and times of the requests to all pods of one revision since the last call of `judge`.

    A value of None means that it is unknown, not that it is zero.
    """

    requests: int
    """Number of completed requests, successful or failed."""
    failures: int
    """Number of requests that failed. Requests that their clients canceled are not included."""
    batches: int | None = None
    """Number of batches in which Triton executed the requests. All requests of a batch succeed or fail together, so a
    batch counts as one independent trial."""
    latency: Histogram | None = None
    """Latencies of the responses, including the time in the queues of the balancer and the server."""
    queue_us: int | None = None
    """Total time that the successful requests waited in the server's queue, in microseconds."""
    compute_us: int | None = None
    """Total execution time of the successful requests, in microseconds."""
    timed: int | None = None
    """Number of requests whose times are included in `queue_us` and `compute_us`. None means that the times of all
    successful requests are included."""
    newest_s: float = math.inf
    """Seconds since the newest pod of the revision first answered a request."""

    def __post_init__(self) -> None:
        """Check the counts.

        Raises:
            ValueError: a count is negative (for example, after a counter reset), or `failures` exceeds `requests`.
        """
        if min(self.requests, self.failures, self.batches or 0, self.queue_us or 0) < 0:
            raise ValueError(
                f"{self}: counts since the last sample can't be below 0; leave out counters that were reset"
            )
        if self.failures > self.requests:
            raise ValueError(f"sample: failures {self.failures} can't be more than requests {self.requests}")

    @property
    def answered(self) -> int:
        """Return the number of requests whose times are included in `queue_us` and `compute_us`."""
        return self.requests - self.failures if self.timed is None else self.timed

    @property
    def compute_s(self) -> float | None:
        """Return the mean execution time of a successful request in seconds; None if it is unknown."""
        return None if self.compute_us is None or not self.answered else self.compute_us / 1e6 / self.answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Tolerances and error rates of canary analysis. If the limit of a check is None, the check is disabled."""

    error_margin: float | None = 0.01
    """Maximum difference, from 0 to 1, between the canary's share of failed requests and that of the stable
    revision."""
    latency_ratio: float | None = 1.2
    """Maximum ratio of the canary's 95th latency percentile to that of the stable revision. The resulting latency is
    rounded up to the next bound of the histogram."""
    queue_ratio: float | None = 1.5
    """Maximum ratio of the canary's queue time to that of the stable revision, in the geometric mean over windows."""
    queue_floor_s: float = 0.005
    """Seconds that are added to the mean queue time of each revision before the two are compared. A short queue of the
    canary is therefore accepted even if the stable revision has none."""
    alpha: float = 0.01
    beta: float = 0.05
    min_requests: int = 100
    """Minimum number of requests to each revision before a promotion. A rollback has no minimum, because its
    statistical tests are exact even for a single failure."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a value is out of range, or no check is enabled.
        """
        ranges: tuple[tuple[str, float | None, float, float, str], ...] = (
            ("error_margin", self.error_margin, 0.0001, 0.5, "0.01"),
            ("latency_ratio", self.latency_ratio, 1.0, 100.0, "1.2"),
            ("queue_ratio", self.queue_ratio, 1.0, 100.0, "1.5"),
            ("queue_floor_s", self.queue_floor_s, 0.0001, 60.0, "0.005"),
            ("alpha", self.alpha, 1e-6, 0.5, "0.05"),
            ("beta", self.beta, 1e-6, 0.5, "0.05"),
            ("min_requests", self.min_requests, 1, 10**9, "100"),
        )
        for name, value, least, most, good in ranges:
            if value is not None and not least <= value <= most:
                raise ValueError(f"rules: {name} {value} must be from {least:g} to {most:g}, for example {good}")
        if self.error_margin is self.latency_ratio is self.queue_ratio is None:
            raise ValueError("rules: no check is enabled; set at least one of error_margin, latency_ratio, queue_ratio")

    @property
    def part(self) -> float:
        """Return the share of the error rate `alpha` that each enabled check may use."""
        return self.alpha / sum(x is not None for x in (self.error_margin, self.latency_ratio, self.queue_ratio))


@dataclass(frozen=True, slots=True)
class Track:
    """Accumulated comparison of the two revisions' shares of failed (or late) requests, over all windows."""

    worse: Capital = field(default_factory=Capital)
    """Evidence that the canary exceeds its limit: the capital of a betting test for this hypothesis
    (`sequential_tests`). The capital rarely becomes large if the canary is within the limit."""
    fine: Capital = field(default_factory=Capital)
    """Evidence that the canary is within its limit: the capital of a betting test for this hypothesis
    (`sequential_tests`). The capital rarely becomes large if the canary exceeds the limit."""
    spread: Spread = field(default_factory=Spread)
    stable: Tally = field(default_factory=Tally)
    canary: Tally = field(default_factory=Tally)
    recent: Tally = field(default_factory=Tally)
    """Recent requests to the stable revision, and the failed or late ones among them; older windows have less weight.
    The tests assume that this share stays the same in the next window."""


@dataclass(frozen=True, slots=True)
class CanaryMemory:
    """State of canary analysis between two calls. Its size does not grow with the number of calls."""

    errors: Track = field(default_factory=Track)
    late: Track = field(default_factory=Track)
    very_late: Track = field(default_factory=Track)
    queue: Blocks = field(default_factory=Blocks)
    requests: tuple[int, int] = (0, 0)
    batches: tuple[int, int] = (0, 0)
    """Number of the canary's requests for which batches were reported, and the number of these batches."""
    stable: Histogram | None = None
    canary: Histogram | None = None
    typical_s: float | None = None
    """Median latency in the canary's last window, in seconds; None if the window had too few responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Result of one check of canary analysis. Shares are from 0 to 1, times in seconds."""

    name: Name
    finding: Finding
    test: str
    stable: float | None = None
    """Value that was measured for the stable revision: its share of failed requests, its 95th latency percentile or its
    mean queue time."""
    canary: float | None = None
    limit: float | None = None
    """Highest value that is allowed for the canary: a share from 0 to 1, or seconds."""
    sizes: tuple[int, int] = (0, 0)
    """Number of requests that were compared, as (to the stable revision, to the canary)."""
    p_worse: float | None = None
    """p-value of the hypothesis "the canary is within the limit", over this and all earlier calls. The canary is worse
    if the p-value is at most `level`."""
    p_fine: float | None = None
    """p-value of the hypothesis "the canary exceeds the limit", valid at any stopping time. The canary passes if the
    p-value is at most `Rules.beta`."""
    interval: tuple[float, float] | None = None
    """Confidence interval of the ratio of the canary's queue time to that of the stable revision, for the check `queue`
    only. A rollback depends on its lower bound, a promotion on its upper bound. It is None until there are enough
    windows."""
    level: float = 0.0
    why: str = ""
    """Reason for the check's result, as a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDecision:
    """Result of canary analysis: the action to take on the canary, the reason, and the state for the next call."""

    action: Action
    why: str
    """Reason for the action, as one sentence with numbers."""
    checks: tuple[Evidence, ...]
    memory: CanaryMemory
    """Memory to pass to the next call of `judge`."""
