"""Description of a load: how many requests are sent, and when. Out of scope: the arrival times (`arrivals`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

from halcyon_measure.errors import ScenarioError

Kind = Literal["blocking", "sustained", "burst", "ramp", "trace", "offline"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_DURATION_S = 3600.0
MAX_CALLERS = 4096
MAX_REQUESTS = 100_000_000
MAX_RATE_RPS = 20_000.0
MAX_CV = 10.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Description of a load. In `blocking`, a caller sends a request when it has its previous answer.

    In all others, a schedule decides.

    | kind | requests are due |
    | --- | --- |
    | blocking | `think_s` after the caller's previous answer |
    | sustained | at random times (Poisson) with the mean rate |
    | burst | at random times with the coefficient of variation `cv`, or Poisson during `on_s`, and none during `off_s` |
    | ramp | at random times whose rate goes evenly from `rate_rps` to `to_rps` |
    | trace | at the times of a file |
    | offline | at the beginning, all at once |
    """

    kind: Kind = "blocking"
    duration_s: float = 10.0
    """Duration of the measured part, in which requests become due, in seconds. In `offline`, the run ends after this
    time at the latest."""
    requests: int | None = None
    """Maximum number of measured requests; None for no maximum."""
    callers: int = 1
    """Number of callers in `blocking`; in `offline`, the maximum number of requests in flight."""
    think_s: float = 0.0
    rate_rps: float | None = None
    """Mean rate in requests per second; in `burst` with `on_s`, the rate during `on_s`."""
    to_rps: float | None = None
    cv: float | None = None
    on_s: float | None = None
    off_s: float | None = None
    trace: tuple[float, ...] = ()
    """Due times of the requests in seconds, in ascending order, none below 0."""
    max_in_flight: int = MAX_CALLERS
    """Maximum number of requests in flight. Requests that become due while it is reached count as not sent."""
    seed: int = 1

    @property
    def is_open(self) -> bool:
        """Return True if requests are due by a schedule, independently of previous answers."""
        return self.kind != "blocking"

    @property
    def mean_rps(self) -> float | None:
        """Mean rate of the schedule in requests per second; None if the schedule has no rate."""
        if self.kind == "trace":
            return len(self.trace) / max(self.trace[-1], 1e-9)
        if self.kind in {"blocking", "offline"} or self.rate_rps is None:
            return None
        if self.kind == "ramp" and self.to_rps is not None:
            return (self.rate_rps + self.to_rps) / 2
        if self.on_s is not None and self.off_s is not None:
            return self.rate_rps * self.on_s / (self.on_s + self.off_s)
        return self.rate_rps

    def warm_up(self) -> Scenario:
        """Return the endless load for the warm-up before this load.

        It is this load without an end if possible, otherwise a similar one.
        """
        if self.kind in {"blocking", "sustained", "burst"}:
            return replace(self, duration_s=MAX_DURATION_S, requests=None)
        if self.kind == "offline":
            return Scenario(kind="blocking", callers=min(self.callers, 32), duration_s=MAX_DURATION_S, seed=self.seed)
        rate = self.rate_rps if self.kind == "ramp" else self.mean_rps
        return Scenario(
            kind="sustained",
            rate_rps=min(max(rate or 1.0, 1.0), MAX_RATE_RPS),
            duration_s=MAX_DURATION_S,
            max_in_flight=self.max_in_flight,
            seed=self.seed,
        )

    def check(self) -> Self:
        """Check that this scenario can be run, and return it.

        Raises:
            ScenarioError: a value is missing or out of range; the message gives the limit and a valid example.
        """
        if self.kind not in KINDS:
            raise ScenarioError(f"scenario is {self.kind}; there are {', '.join(KINDS)}")
        _within("duration", self.duration_s, 0, MAX_DURATION_S, "30s", unit=" s")
        _within("callers", self.callers, 0, MAX_CALLERS, "32")
        _within("max-in-flight", self.max_in_flight, 0, MAX_CALLERS, "1024")
        _within("think", self.think_s, -1e-12, MAX_DURATION_S, "100ms", unit=" s")
        if self.seed < 0:
            raise ScenarioError(f"seed is {self.seed}; it must be 0 or more, for example 1")
        if self.requests is not None:
            _within("requests", self.requests, 0, MAX_REQUESTS, "10000")
        for name, rate in (("rate", self.rate_rps), ("to", self.to_rps)):
            if rate is not None:
                _within(name, rate, 0, MAX_RATE_RPS, "200", unit=" requests/s")
        self._check_kind()
        return self

    def _check_kind(self) -> None:
        for name, kinds, value in (
            ("rate", ("sustained", "burst", "ramp"), self.rate_rps),
            ("to", ("ramp",), self.to_rps),
            ("cv", ("burst",), self.cv),
            ("on", ("burst",), self.on_s),
            ("off", ("burst",), self.off_s),
            ("trace", ("trace",), self.trace or None),
            ("think", ("blocking",), self.think_s or None),
        ):
            if value is not None and self.kind not in kinds:
                raise ScenarioError(
                    f"{name} has no effect in scenario {self.kind}; it belongs to {' and '.join(kinds)}"
                )
        needs_rate = self.kind in {"sustained", "burst", "ramp"}
        if needs_rate and self.rate_rps is None:
            raise ScenarioError(f"scenario {self.kind} needs a rate in requests/s; for example --rate 200")
        if self.kind == "ramp" and self.to_rps is None:
            raise ScenarioError("scenario ramp needs the rate at its end; for example --rate 10 --to 200")
        if self.kind == "burst":
            self._check_burst()
        if self.kind == "trace" and not self.trace:
            raise ScenarioError("scenario trace needs due times; for example --trace FILE.csv with a column t_s")
        if self.kind == "trace" and self.trace[-1] <= 0:
            raise ScenarioError("scenario trace needs a due time above 0; for example --scenario offline")

    def _check_burst(self) -> None:
        if (self.on_s is None) != (self.off_s is None):
            raise ScenarioError("scenario burst needs both times of its phases; for example --on 5s --off 20s")
        if (self.cv is None) == (self.on_s is None):
            raise ScenarioError("scenario burst needs either a coefficient of variation or phases; for example --cv 3")
        if self.cv is not None:
            _within("cv", self.cv, 0, MAX_CV, "3")
        for name, value in (("on", self.on_s), ("off", self.off_s)):
            if value is not None:
                _within(name, value, 0, MAX_DURATION_S, "5s", unit=" s")

    def to_dict(self) -> dict[str, Any]:
        """Return the scenario in its JSON form."""
        return asdict(self) | {"trace": list(self.trace)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Parse a scenario from the JSON form that `to_dict` returns."""
        return cls(**{**fields, "trace": tuple(fields["trace"])})


def _within(name: str, value: float, least: float, most: float, example: str, *, unit: str = "") -> None:
    if not (math.isfinite(value) and least < value <= most):
        low = "0 or more" if least < 0 else "above 0"
        raise ScenarioError(
            f"{name} is {value:g}{unit}; it must be {low} and at most {most:g}{unit}, for example {example}"
        )


PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "singlestream": (
        "one caller; the 90th percentile counts",
        {"kind": "blocking", "callers": 1, "duration_s": 30.0},
    ),
    "multistream": (
        "one caller with 8 rows a request; the 99th percentile counts",
        {"kind": "blocking", "callers": 1, "duration_s": 30.0},
    ),
    "server": (
        "random arrivals at --rate; the 99th percentile counts",
        {"kind": "sustained", "duration_s": 60.0},
    ),
    "offline": (
        "all requests at once; throughput counts",
        {"kind": "offline", "requests": 24_576, "callers": 256, "duration_s": 600.0},
    ),
}
"""Presets by name, as (description, fields of the scenario). They follow MLPerf's scenarios, but their runs are shorter
than MLPerf's rules require. Therefore no result of a preset is an MLPerf result."""
PRESET_ROWS: Mapping[str, int] = {"multistream": 8}
"""Number of rows of each request, for presets with a fixed number."""
