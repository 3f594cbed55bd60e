"""What a load is: where it goes, how hard, for how long. Values only; they travel to the load's process as JSON."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, Self

MAX_DURATION_S = 3600.0
MAX_CLIENTS = 4096
MAX_REQUESTS = 10_000_000
MAX_RATE_RPS = 20_000.0


class LoadError(ValueError):
    """A load can't be as it was asked for; the message names the field, its value, the limit and a good one."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load on one model.

    Closed loop: `clients` callers, each of which sends its next request when the last was answered. Open loop, where
    `rate_rps` is given: requests at random (Poisson) times of that mean rate, whatever the answers do; `clients` is then the
    most that may be under way, and a request that finds no room counts as a failure of kind `not sent`.
    """

    address: str
    """host:port."""
    model: str
    protocol: Literal["grpc", "http"] = "grpc"
    clients: int = 1
    rate_rps: float | None = None
    duration_s: float = 10.0
    """For how long requests are sent; those under way are then waited for."""
    most_requests: int = MAX_REQUESTS
    timeout_s: float = 30.0
    """Of one request."""
    channels: int = 4
    """gRPC connections among which the requests take turns, each kept for the whole load."""
    input: str = "pixels"
    shape: tuple[int, ...] = (1, 64)
    """Of the one FP32 input, batch first; its values are random from 0 to 16."""
    batch_output: str | None = "BATCH"
    """An output that tells the rows which were executed together; None where the model has none."""
    who_output: str | None = "WHO"
    """An output that tells which replica answered; None where the model has none."""
    pause_s: float = 0.0
    """Between a client's answer and its next request, in the closed loop."""
    seed: int = 0

    def __post_init__(self) -> None:
        limits: tuple[tuple[str, float, float, str], ...] = (
            ("clients", self.clients, MAX_CLIENTS, "32"),
            ("duration_s", self.duration_s, MAX_DURATION_S, "10"),
            ("most_requests", self.most_requests, MAX_REQUESTS, "100000"),
            ("channels", self.channels, 256, "4"),
            ("timeout_s", self.timeout_s, 600, "30"),
        )
        if self.rate_rps is not None:
            limits += (("rate_rps", self.rate_rps, MAX_RATE_RPS, "200"),)
        for name, value, most, good in limits:
            if not 0 < value <= most:
                raise LoadError(
                    f"load: {name} is {value:g}; it must be above 0 and at most {most:g}, for example {good}"
                )

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`.

        Raises:
            LoadError: a value is out of its limits.
        """
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "shape": tuple(fields["shape"])})


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a load: over all of it, or over the last second where it is a sample of the way.

    Latencies are in milliseconds and None where nothing was answered. `answered` and `failed` are whole counts;
    `rate_rps` is answers per second from the first request to the last answer.
    """

    answered: int
    failed: int
    seconds: float
    rate_rps: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    most_ms: float | None = None
    mean_batch: float | None = None
    """Rows executed together, as the model tells; the mean over executions, not over requests."""
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    """By kind: a gRPC status or an HTTP one, and what was said."""
    first_failed_s: float | None = None
    """When the first failure was known, in seconds from the first request."""
    last_failed_s: float | None = None
    """When the last failure was known."""
    who: dict[str, int] = dataclasses.field(default_factory=dict)
    """Answers by replica."""
    final: bool = True

    @property
    def requests(self) -> int:
        """Answered and failed together."""
        return self.answered + self.failed

    @property
    def shares(self) -> list[float]:
        """Each replica's share of the answers, the largest first; their sum is 1."""
        return sorted((count / self.answered for count in self.who.values()), reverse=True) if self.answered else []


def together(reports: list[Report]) -> Report:
    """Several loads on one model, one after the other, as one: totals, without the latencies' percentiles."""
    answered = sum(report.answered for report in reports)
    seconds = sum(report.seconds for report in reports)
    executions = sum(report.answered / report.mean_batch for report in reports if report.mean_batch)
    failures: dict[str, int] = {}
    who: dict[str, int] = {}
    for report in reports:
        for counted, counts in ((failures, report.failures), (who, report.who)):
            for name, count in counts.items():
                counted[name] = counted.get(name, 0) + count
    return Report(
        answered=answered,
        failed=sum(report.failed for report in reports),
        seconds=round(seconds, 3),
        rate_rps=round(answered / seconds, 1) if seconds else 0.0,
        mean_batch=round(answered / executions, 2) if executions else None,
        failures=failures,
        who=who,
    )
