"""What a canary's judge is told, and what it says: samples, rules, evidence, and the memory between two looks. Pure data."""

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
    """What all pods of one revision have done since the last look. None where that is not known, which is never zero."""

    requests: int
    """Answered or failed."""
    failures: int
    batches: int | None = None
    """Executions for them: requests of one batch share its fate, and count as one piece of evidence."""
    latency: Histogram | None = None
    """Of the answers, however long they waited in the balancer or in the server."""
    queue_us: int | None = None
    """Time that the answered requests waited in the server's queue, all together."""

    def __post_init__(self) -> None:
        """Checked where it is made.

        Raises:
            ValueError: a count below zero (a counter that began anew?), or more failures than requests.
        """
        if min(self.requests, self.failures, self.batches or 0, self.queue_us or 0) < 0:
            raise ValueError(f"{self}: counts since the last look can't be below 0; leave out what began anew")
        if self.failures > self.requests:
            raise ValueError(f"sample: failures {self.failures} can't be more than requests {self.requests}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is tolerated, and how often a judgement may be wrong. A limit of None leaves its check out."""

    error_margin: float | None = 0.01
    """Share of failures by which the canary may be above stable: 0.01 is one percentage point."""
    latency_ratio: float | None = 1.2
    """How many times stable's 95th percentile the canary may take; in effect the next bound of the histogram's from there."""
    queue_ratio: float | None = 1.5
    """How many times stable's mean queue time the canary may wait,"""
    queue_floor_s: float = 0.005
    """with so much added to both: a queue of nothing may become a queue of little."""
    alpha: float = 0.05
    beta: float = 0.05
    least_requests: int = 100
    """Of each revision before a promotion. A rollback needs none: its tests are exact from the first failure on."""

    def __post_init__(self) -> None:
        """Checked where it is made.

        Raises:
            ValueError: a value out of its range; the message names it.
        """
        ranges: tuple[tuple[str, float | None, float, float, str], ...] = (
            ("error_margin", self.error_margin, 0.0001, 0.5, "0.01"),
            ("latency_ratio", self.latency_ratio, 1.0, 100.0, "1.2"),
            ("queue_ratio", self.queue_ratio, 1.0, 100.0, "1.5"),
            ("queue_floor_s", self.queue_floor_s, 0.0001, 60.0, "0.005"),
            ("alpha", self.alpha, 1e-6, 0.5, "0.05"),
            ("beta", self.beta, 1e-6, 0.5, "0.05"),
            ("least_requests", self.least_requests, 1, 10**9, "100"),
        )
        for name, value, least, most, good in ranges:
            if value is not None and not least <= value <= most:
                raise ValueError(f"rules: {name} {value} must be from {least:g} to {most:g}, for example {good}")
        if self.error_margin is self.latency_ratio is self.queue_ratio is None:
            raise ValueError("rules: no check is left; give one of error_margin, latency_ratio, queue_ratio")

    @property
    def part(self) -> float:
        """Of alpha, for each check."""
        return self.alpha / sum(x is not None for x in (self.error_margin, self.latency_ratio, self.queue_ratio))


@dataclass(frozen=True, slots=True)
class Track:
    """Two streams of shares, compared so far."""

    worse: Capital = field(default_factory=Capital)
    """Of bets on a canary that is beyond its limit."""
    fine: Capital = field(default_factory=Capital)
    """Of bets on one that is within it."""
    spread: Spread = field(default_factory=Spread)
    stable: Tally = field(default_factory=Tally)
    canary: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class CanaryMemory:
    """What is known from the looks before; small, whatever their number."""

    errors: Track = field(default_factory=Track)
    late: Track = field(default_factory=Track)
    late_blocks: Blocks = field(default_factory=Blocks)
    queue: Blocks = field(default_factory=Blocks)
    requests: tuple[int, int] = (0, 0)
    batches: tuple[int, int] = (0, 0)
    """Requests whose executions are known, and those."""
    stable: Histogram | None = None
    canary: Histogram | None = None

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> CanaryMemory:
        """What `to_plain` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        track, whole = _track, {name: raw[name] for name in ("stable", "canary")}
        found = {name: None if part is None else Histogram(**_tuples(part)) for name, part in whole.items()}
        return cls(
            errors=track(raw["errors"]),
            late=track(raw["late"]),
            late_blocks=_blocks(raw["late_blocks"]),
            queue=_blocks(raw["queue"]),
            requests=(int(raw["requests"][0]), int(raw["requests"][1])),
            batches=(int(raw["batches"][0]), int(raw["batches"][1])),
            **found,
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
    """What one check has found. Shares are of 1, times in seconds."""

    name: Name
    finding: Finding
    test: str
    stable: float | None = None
    """Share that failed, 95th percentile, mean queue time."""
    canary: float | None = None
    limit: float | None = None
    """What the canary's may be, in the same unit."""
    sizes: tuple[int, int] = (0, 0)
    """Requests that were compared, of stable and of the canary."""
    p_worse: float | None = None
    """At this and all earlier looks: against "the canary is within the limit". Worse at `level` or below."""
    p_fine: float | None = None
    """At this look, for any moment of stopping: against "the canary is beyond the limit". Fine at `beta` or below."""
    interval: tuple[float, float] | None = None
    """From the lower bound that a rollback asks for to the upper one that a promotion asks for: of the canary's share of late answers
    less stable's; of the ratio of the queue times, canary : stable. None before there are windows enough."""
    level: float = 0.0
    design: float = 1.0
    """Requests that counted as one, by batches and by what was seen of their fates."""
    why: str = ""
    """In a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do with the canary."""

    action: Action
    why: str
    """One sentence with numbers."""
    checks: tuple[Evidence, ...]
    memory: CanaryMemory
    """To be given to the next look."""
