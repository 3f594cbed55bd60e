"""Settings and reports of a load. They are plain values that are passed to the load's process as JSON."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, Self

MAX_DURATION_S = 3600.0
MAX_CLIENTS = 4096
MAX_REQUESTS = 10_000_000
MAX_RATE_RPS = 20_000.0


class LoadError(ValueError):
    """Invalid settings of a load. The message has the field, its value, the limit and a valid example."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load on one model.

    Closed loop: `clients` callers, each of which sends its next request after the response to the previous one. Open
    loop, if `rate_rps` is given: requests are sent at random (Poisson) times with this mean rate, independent of
    responses. `clients` is then the maximum number in flight. A request above this limit counts as a failure of kind
    `not sent`.
    """

    address: str
    """Address as host:port."""
    model: str
    protocol: Literal["grpc", "http"] = "grpc"
    clients: int = 1
    rate_rps: float | None = None
    duration_s: float = 10.0
    """Time in seconds in which requests are sent. Then the requests in flight are completed."""
    most_requests: int = MAX_REQUESTS
    timeout_s: float = 30.0
    """Timeout of one request in seconds."""
    channels: int = 4
    """Number of gRPC connections that the requests use in turn, each open for the whole load."""
    keepalive_s: float | None = None
    """Time in seconds after which a gRPC connection without traffic is checked with a ping; None, gRPC's default: never."""
    input: str = "pixels"
    shape: tuple[int, ...] = (1, 64)
    """Shape of the only FP32 input, batch dimension first. Its values are random numbers from 0 to 16."""
    batch_output: str | None = "BATCH"
    """Name of an output with the number of rows that were executed together; None if the model has none."""
    who_output: str | None = "WHO"
    """Name of an output with the name of the replica that responded; None if the model has none."""
    pause_s: float = 0.0
    """Pause in seconds between a response and the client's next request, in the closed loop."""
    seed: int = 0
    repeats: int = 0
    """Maximum number of times that a rejected request is sent again, each a second after its rejection."""
    connections: Literal["library", "own", "pool"] = "library"
    """Connections of HTTP requests. `library`: those of tritonclient, which repeats nothing. `own`: each request keeps a
    connection of its own until its last attempt has ended, as a thread with a session of its own does. `pool`: each
    attempt uses any connection of a pool."""

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
        """Return the load as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`.

        Raises:
            LoadError: a value is out of range.
        """
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "shape": tuple(fields["shape"])})


@dataclass(frozen=True, kw_only=True)
class Report:
    """Results of a load, in total or over the last second.

    Latencies are in milliseconds, and None if there was no response. `answered` and `failed` are numbers of requests.
    `rate_rps` is responses per second from the first request to the last response.
    """

    answered: int
    failed: int
    seconds: float
    rate_rps: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    most_ms: float | None = None
    mean_batch: float | None = None
    """Mean number of rows executed together, as reported by the model; the mean is over executions, not over
    requests."""
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    """Number of failures by kind: a gRPC or HTTP status with its message."""
    first_failed_s: float | None = None
    """Time of the first failure, in seconds since the first request."""
    last_failed_s: float | None = None
    """Time of the last failure, in seconds since the first request."""
    who: dict[str, int] = dataclasses.field(default_factory=dict)
    """Number of responses by replica."""
    final: bool = True

    @property
    def requests(self) -> int:
        """Return the number of requests, including failed ones."""
        return self.answered + self.failed

    @property
    def shares(self) -> list[float]:
        """Return each replica's share of the responses, the largest first. Their sum is 1."""
        return sorted((count / self.answered for count in self.who.values()), reverse=True) if self.answered else []


def together(reports: list[Report]) -> Report:
    """Return the totals of several consecutive loads on one model, without percentiles of latencies."""
    answered = sum(report.answered for report in reports)
    seconds = sum(report.seconds for report in reports)
    executions = sum(report.answered / report.mean_batch for report in reports if report.mean_batch)
    failures: dict[str, int] = {}
    by_replica: dict[str, int] = {}
    for report in reports:
        for totals, counts in ((failures, report.failures), (by_replica, report.who)):
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
    return Report(
        answered=answered,
        failed=sum(report.failed for report in reports),
        seconds=round(seconds, 3),
        rate_rps=round(answered / seconds, 1) if seconds else 0.0,
        mean_batch=round(answered / executions, 2) if executions else None,
        failures=failures,
        who=by_replica,
    )
