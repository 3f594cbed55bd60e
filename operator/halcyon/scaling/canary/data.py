"""Input and output of canary analysis: samples, rules, evidence, decision and memory. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from halcyon.scaling.canary.sequential_tests import Blocks, Capital, Spread, Tally
from halcyon.scaling.histogram import Histogram

Name = Literal["errors", "latency", "queue"]
Finding = Literal["worse", "fine", "open", "unknown"]
Action = Literal["promote", "wait", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Work of all pods of one revision since the last call. None means unknown, never zero."""

    requests: int
    """Requests that succeeded or failed."""
    failures: int
    batches: int | None = None
    """Executions for them: requests of one batch share its outcome and count as one piece of evidence."""
    latency: Histogram | None = None
    """Latencies of the responses, including the wait in the balancer and the server."""
    queue_us: int | None = None
    """Total time that the successful requests waited in the server's queue."""

    def __post_init__(self) -> None:
        """Check the counts.

        Raises:
            ValueError: a count is below zero (a counter that was reset?), or there are more failures than requests.
        """
        if min(self.requests, self.failures, self.batches or 0, self.queue_us or 0) < 0:
            raise ValueError(
                f"{self}: counts since the last sample can't be below 0; leave out counters that were reset"
            )
        if self.failures > self.requests:
            raise ValueError(f"sample: failures {self.failures} can't be more than requests {self.requests}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Tolerances, and how often a decision may be wrong. A limit of None omits its check."""

    error_margin: float | None = 0.01
    """Share of failures by which the canary may exceed stable: 0.01 is one percentage point."""
    latency_ratio: float | None = 1.2
    """Factor on stable's 95th percentile that the canary may reach; in effect the next histogram bound from there."""
    queue_ratio: float | None = 1.5
    """Factor on stable's mean queue time that the canary may reach."""
    queue_floor_s: float = 0.005
    """Time added to both queue times first, so that an empty queue may become a short one."""
    alpha: float = 0.05
    beta: float = 0.05
    min_requests: int = 100
    """Requests to each revision before a promotion. A rollback needs none: its tests are exact from the first failure on."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a value is out of range; the message names it.
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
        """Return the part of alpha for each check."""
        return self.alpha / sum(x is not None for x in (self.error_margin, self.latency_ratio, self.queue_ratio))


@dataclass(frozen=True, slots=True)
class Track:
    """Running comparison of two streams of shares."""

    worse: Capital = field(default_factory=Capital)
    """Capital of bets on a canary that is beyond its limit."""
    fine: Capital = field(default_factory=Capital)
    """Capital of bets on one that is within it."""
    spread: Spread = field(default_factory=Spread)
    stable: Tally = field(default_factory=Tally)
    canary: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class CanaryMemory:
    """State kept between calls; its size stays small however many calls are made."""

    errors: Track = field(default_factory=Track)
    late: Track = field(default_factory=Track)
    late_blocks: Blocks = field(default_factory=Blocks)
    queue: Blocks = field(default_factory=Blocks)
    requests: tuple[int, int] = (0, 0)
    batches: tuple[int, int] = (0, 0)
    """Requests whose executions are known, and those executions."""
    stable: Histogram | None = None
    canary: Histogram | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return the memory as JSON values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> CanaryMemory:
        """Restore what `to_plain` returned.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        track, whole = _track, {name: raw[name] for name in ("stable", "canary")}
        histograms = {name: None if part is None else Histogram(**_tuples(part)) for name, part in whole.items()}
        return cls(
            errors=track(raw["errors"]),
            late=track(raw["late"]),
            late_blocks=_blocks(raw["late_blocks"]),
            queue=_blocks(raw["queue"]),
            requests=(int(raw["requests"][0]), int(raw["requests"][1])),
            batches=(int(raw["batches"][0]), int(raw["batches"][1])),
            **histograms,
        )


def _track(raw: Mapping[str, Any]) -> Track:
    return Track(
        Capital(**_tuples(raw["worse"])),
        Capital(**_tuples(raw["fine"])),
        Spread(**raw["spread"]),
        Tally(**raw["stable"]),
        Tally(**raw["canary"]),
    )


def _blocks(raw: Mapping[str, Any]) -> Blocks:
    rows = tuple((float(row[0]), float(row[1]), float(row[2]), float(row[3])) for row in raw["rows"])
    return Blocks(**{**raw, "rows": rows})


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Result of one check. Shares are relative to 1, times in seconds."""

    name: Name
    finding: Finding
    test: str
    stable: float | None = None
    """Stable's value: share that failed, 95th percentile, or mean queue time."""
    canary: float | None = None
    limit: float | None = None
    """Limit of the canary's value, in the same unit."""
    sizes: tuple[int, int] = (0, 0)
    """Requests compared, of stable and of the canary."""
    p_worse: float | None = None
    """p-value over this and all earlier calls, against "the canary is within the limit". Worse at `level` or below."""
    p_fine: float | None = None
    """p-value of this call, valid at any stopping time, against "the canary is beyond the limit". Fine at `beta` or below."""
    interval: tuple[float, float] | None = None
    """From the lower bound that a rollback requires to the upper one that a promotion requires. For latency: the canary's share
    of late responses minus stable's. For the queue: the ratio of the queue times, canary : stable. None until there are enough
    windows."""
    level: float = 0.0
    design: float = 1.0
    """Requests that counted as one, by batches and by the observed spread of their outcomes."""
    why: str = ""
    """Reason in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDecision:
    """Decision about the canary."""

    action: Action
    why: str
    """One sentence with numbers."""
    checks: tuple[Evidence, ...]
    memory: CanaryMemory
    """Memory for the next call."""
