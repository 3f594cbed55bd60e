"""How a model's GPUs spent their time, and what that costs. Pure: no clock, no prices of its own.

| state    | a GPU of a pod that                                                          |
| -------- | ---------------------------------------------------------------------------- |
| starting | has a node and isn't ready: it pulls, loads, or fails                         |
| busy     | is ready or finishing its last requests: the share of time the GPU is in use  |
| idle     | the same: the rest of the time                                                |
| unknown  | the same, while its utilisation is unknown                                    |

Time is kept by hour for the last day. A cost per inference thus follows changes, but still includes the night in the
morning. Unknown values are None: without a price the cost is None, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import add

HOUR_S, HOURS = 3600.0, 24
MAX_GAP_S = 60.0
"""Longest gap between two samples that still counts. For a longer one, for example because the process was paused, there is no
data."""
MIN_INFERENCES = 100.0
"""Minimum inferences for a meaningful cost per thousand."""
MIN_COUNTED_S = 600.0
"""Minimum counted time before shares are published: before that they consist of pod starts alone."""
_MIN_RELATIVE_CHANGE, _MIN_SHARE_CHANGE = 0.2, 0.05


@dataclass(frozen=True, slots=True)
class Spent:
    """GPU-seconds, and the inferences they produced."""

    starting: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    inferences: float = 0.0
    """Batch items (rows) computed."""
    at_max_replicas: float = 0.0
    """GPU-seconds of the maximum replicas, had they run all the time; 0 without scaling."""
    seconds: float = 0.0
    """Time counted, in seconds."""

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(*map(add, self.parts, other.parts))

    @property
    def parts(self) -> tuple[float, ...]:
        """Return the fields as numbers; `dataclasses.astuple` takes thirty times as long."""
        return self.starting, self.busy, self.idle, self.unknown, self.inferences, self.at_max_replicas, self.seconds

    @property
    def gpus(self) -> float:
        """Return the GPU-seconds of all states."""
        return self.starting + self.busy + self.idle + self.unknown


@dataclass(frozen=True, slots=True)
class ReportedWork:
    """Work that the pods reported."""

    busy: float | None = None
    """Mean share of time that the GPUs of ready pods are in use, 0 to 1; None if too few pods report it."""
    rows: Mapping[str, float] = field(default_factory=dict)
    """Counter by pod: batch items (rows) computed."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """GPUs in use at one time."""

    at: float
    """Seconds since the epoch."""
    starting: int
    """GPUs of pods that have a node and aren't ready."""
    serving: int
    """GPUs of pods that are ready, or finishing their last requests."""
    worked: ReportedWork = ReportedWork()
    max_gpus: int | None = None
    """GPUs of the maximum replicas; None without scaling."""

    @property
    def held(self) -> int:
        """Return the GPUs that are paid for."""
        return self.starting + self.serving


@dataclass(frozen=True, slots=True)
class Ledger:
    """GPU time counted so far."""

    last: GpuUsage | None = None
    total: Spent = Spent()
    """Total since this process started counting."""
    hours: tuple[tuple[int, Spent], ...] = ()
    """(hour since the epoch, GPU time spent in it), oldest first, for one day."""

    def counted(self, usage: GpuUsage) -> Ledger:
        """Return the ledger with the time since the last sample added; the first sample adds nothing."""
        before, hour = self.last, int(usage.at // HOUR_S)
        kept = tuple((at, was) for at, was in self.hours if hour - HOURS < at <= hour)
        if before is None or not 0 < usage.at - before.at <= MAX_GAP_S:
            return replace(self, last=usage, hours=kept)
        spent = _between(before, usage)
        now = next((was for at, was in kept if at == hour), Spent())
        past = ((at, was) for at, was in kept if at != hour)
        return Ledger(usage, self.total + spent, (*past, (hour, now + spent)))

    @property
    def day(self) -> Spent:
        """Return the sum of the hours that are kept."""
        return sum((was for _, was in self.hours), Spent())

    def to_json(self) -> list[list[float]]:
        """Return the hours as JSON values, for the next process."""
        return [[hour, *(round(value, 3) for value in was.parts)] for hour, was in self.hours]

    @classmethod
    def from_json(cls, stored: object) -> Ledger:
        """Restore what `to_json` made. Another form comes from another version and is ignored."""
        hours: list[tuple[int, Spent]] = []
        for row in stored if isinstance(stored, list) else ():
            good = isinstance(row, list) and len(row) == 1 + len(fields(Spent))
            if not good or not all(isinstance(value, int | float) and 0 <= value < 1e15 for value in row):
                return cls()
            hours.append((int(row[0]), Spent(*map(float, row[1:]))))
        return cls(hours=tuple(hours))


def _between(before: GpuUsage, now: GpuUsage) -> Spent:
    """Return the GPU time spent between two samples, by the state in the newer one: samples are seconds apart."""
    seconds = now.at - before.at
    busy = now.worked.busy
    known = now.serving * seconds
    # A counter that fell was reset. The start of a pod not seen before is unknown.
    rows = sum(
        value - old if value >= (old := before.worked.rows[pod]) else value
        for pod, value in now.worked.rows.items()
        if pod in before.worked.rows
    )
    return Spent(
        starting=now.starting * seconds,
        busy=0.0 if busy is None else known * busy,
        idle=0.0 if busy is None else known * (1 - busy),
        unknown=known if busy is None else 0.0,
        inferences=rows,
        at_max_replicas=(now.max_gpus or 0) * seconds,
        seconds=seconds,
    )


@dataclass(frozen=True)
class Prices:
    """Prices of one GPU for an hour."""

    currency: str = ""
    by_product: Mapping[str, float] = field(default_factory=dict)
    """Price by the value of the node label nvidia.com/gpu.product."""
    default: float | None = None
    """Price of all other products; None if unknown."""

    def of(self, product: str | None) -> float | None:
        """Return the price of a product; None if unknown, which does not mean free."""
        return self.by_product.get(product or "", self.default)


@dataclass(frozen=True, slots=True)
class Cost:
    """Published costs of a model."""

    gpus: int
    """GPUs that it holds now."""
    per_hour: float | None
    per_thousand: float | None
    """Cost of a thousand inferences, over the last day."""
    saving: float | None
    """Share saved over the last day, compared with always running the maximum replicas."""
    starting: float | None
    """Share of the last day's GPU time spent in starting pods."""
    busy: float | None
    idle: float | None
    """Share of the last day's GPU time that was idle. All three shares count only time of a known state."""


def cost(ledger: Ledger, price: float | None) -> Cost:
    """Return the costs to publish; `price` is that of one GPU for an hour."""
    day, held = ledger.day, 0 if ledger.last is None else ledger.last.held
    known = day.starting + day.busy + day.idle
    is_known = known > 0 and day.seconds >= MIN_COUNTED_S
    thousand = (
        None if price is None or day.inferences < MIN_INFERENCES else price * day.gpus / 3600 / day.inferences * 1000
    )
    return Cost(
        gpus=held,
        per_hour=None if price is None else price * held,
        per_thousand=thousand,
        saving=1 - day.gpus / day.at_max_replicas if day.at_max_replicas > 0 and day.seconds >= MIN_COUNTED_S else None,
        starting=day.starting / known if is_known else None,
        busy=day.busy / known if is_known else None,
        idle=day.idle / known if is_known else None,
    )


def has_changed(shown: Cost, now: Cost) -> bool:
    """Return whether the GPUs held differ from those shown, or whether a cost became known or unknown."""
    return _published(shown) != _published(now)


def has_moved(shown: Cost, now: Cost) -> bool:
    """Return whether a share became known or moved by 5 points, or the cost of a thousand moved by 20 %."""
    for name in ("saving", "starting", "busy", "idle"):
        a, b = getattr(shown, name), getattr(now, name)
        if (a is None) != (b is None) or (a is not None and b is not None and abs(a - b) >= _MIN_SHARE_CHANGE):
            return True
    a, b = shown.per_thousand, now.per_thousand
    return a is not None and b is not None and abs(a - b) > _MIN_RELATIVE_CHANGE * max(a, b)


def _published(of: Cost) -> tuple[object, ...]:
    return of.gpus, of.per_hour, of.per_thousand is None
