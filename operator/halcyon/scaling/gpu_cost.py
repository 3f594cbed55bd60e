"""GPU time of a model by state, and its cost. Pure: the caller passes times and prices.

A pod that is assigned to a node is starting, busy, idle or unknown. The last three states apply once the pod is ready,
and depend on the utilisation of its GPU.

GPU time is stored per hour for the last day, so the cost per inference is an average over the last 24 hours. Unknown
values are None: without a price the cost is None, not 0.
"""

# | state    | GPU time counted                                                                          |
# | -------- | ----------------------------------------------------------------------------------------- |
# | starting | pods that have a node but aren't ready: they pull images, load the model, or fail         |
# | busy     | pods that are ready or finish their last requests, while the GPU is in use                |
# | idle     | the same pods, while the GPU is not in use                                                |
# | unknown  | the same pods, while their GPU utilisation is unknown                                     |

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import add

HOUR_S, HOURS = 3600.0, 24
MAX_GAP_S = 60.0
"""Longest interval between two samples that is counted, in seconds. A longer interval, for example after the process
was paused, is left out."""
MIN_INFERENCES = 100.0
"""Minimum number of inferences in the last day before the cost per thousand is published. With fewer, it would not be
meaningful."""
MIN_COUNTED_S = 600.0
"""Minimum counted time, in seconds, before shares of GPU time are published. In the first minutes, all GPU time is
spent on starting pods."""
_MIN_RELATIVE_CHANGE, _MIN_SHARE_CHANGE = 0.2, 0.05


@dataclass(frozen=True, slots=True)
class Spent:
    """GPU-seconds by state, and the number of inferences in the same period."""

    starting: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    inferences: float = 0.0
    """Number of batch items (rows) computed."""
    at_max_replicas: float = 0.0
    """GPU-seconds that the maximum replicas would have used; 0 if the model has no scaling."""
    seconds: float = 0.0
    """Elapsed time that is counted, in seconds."""
    scaled: float = 0.0
    """GPU-seconds in all four states, counted only while the maximum replicas were known."""

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of two values, field by field."""
        return Spent(*map(add, self.parts, other.parts))

    @property
    def parts(self) -> tuple[float, ...]:
        """Return the values of all fields, in their order. `dataclasses.astuple` would take thirty times as long."""
        times = self.starting, self.busy, self.idle, self.unknown
        return *times, self.inferences, self.at_max_replicas, self.seconds, self.scaled

    @property
    def gpus(self) -> float:
        """Return the total GPU-seconds of all four states."""
        return self.starting + self.busy + self.idle + self.unknown


@dataclass(frozen=True, slots=True)
class ReportedWork:
    """GPU utilisation and computed rows that a model's pods report."""

    busy: float | None = None
    """Mean GPU utilisation of the ready pods, 0 to 1; None if too few pods report it."""
    rows: Mapping[str, float] = field(default_factory=dict)
    """Counter of batch items (rows) computed, by pod name."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Number of GPUs that a model's pods hold at one time, by state of the pods."""

    at: float
    """Time of this sample, in seconds since the epoch."""
    starting: int
    """Number of GPUs of pods that are assigned to a node but aren't ready."""
    serving: int
    """Number of GPUs of pods that are ready or finishing their last requests."""
    worked: ReportedWork = ReportedWork()
    max_gpus: int | None = None
    """Number of GPUs that the maximum replicas would use; None if the model has no scaling."""

    @property
    def held(self) -> int:
        """Return the number of GPUs that the model's pods hold, ready or not. All of them cost money."""
        return self.starting + self.serving


@dataclass(frozen=True, slots=True)
class Ledger:
    """GPU time of one model, counted so far."""

    last: GpuUsage | None = None
    total: Spent = Spent()
    """GPU time counted since this process started."""
    hours: tuple[tuple[int, Spent], ...] = ()
    """GPU time in each of the last 24 hours, oldest first, as (hour number since the epoch, GPU time)."""

    def counted(self, usage: GpuUsage) -> Ledger:
        """Return the ledger with the GPU time since the last sample added, if that is at most `MAX_GAP_S` old."""
        before, hour = self.last, int(usage.at // HOUR_S)
        hours = tuple((at, entry) for at, entry in self.hours if hour - HOURS < at <= hour)
        if before is None or not 0 < usage.at - before.at <= MAX_GAP_S:
            return replace(self, last=usage, hours=hours)
        spent = _between(before, usage)
        now = next((entry for at, entry in hours if at == hour), Spent())
        past = ((at, entry) for at, entry in hours if at != hour)
        return Ledger(usage, self.total + spent, (*past, (hour, now + spent)))

    @property
    def day(self) -> Spent:
        """Return the GPU time of the last 24 hours, which is the sum of the values stored for each hour."""
        return sum((entry for _, entry in self.hours), Spent())

    def to_json(self) -> list[list[float]]:
        """Return the GPU time of each stored hour as JSON values, which `from_json` restores after a restart."""
        return [[hour, *(round(value, 3) for value in entry.parts)] for hour, entry in self.hours]

    @classmethod
    def from_json(cls, stored: object) -> Ledger:
        """Restore the counted GPU time from the result of `to_json`; data in another version's format is ignored."""
        hours: list[tuple[int, Spent]] = []
        for row in stored if isinstance(stored, list) else ():
            good = isinstance(row, list) and len(row) in {len(fields(Spent)), 1 + len(fields(Spent))}
            if not good or not all(isinstance(value, int | float) and 0 <= value < 1e15 for value in row):
                return cls()
            spent = Spent(*map(float, row[1:]))
            if len(row) == len(fields(Spent)) and spent.at_max_replicas:  # an earlier version does not store `scaled`
                spent = replace(spent, scaled=spent.gpus)
            hours.append((int(row[0]), spent))
        return cls(hours=tuple(hours))


def _between(before: GpuUsage, now: GpuUsage) -> Spent:
    """Return the GPU time between two samples.

    Samples are only seconds apart, so the states in the newer sample are used for the whole interval.
    """
    seconds = now.at - before.at
    busy = now.worked.busy
    serving_s = now.serving * seconds
    # A counter that fell was reset. A pod without an earlier value adds nothing, because its growth is unknown.
    rows = sum(
        value - old if value >= (old := before.worked.rows[pod]) else value
        for pod, value in now.worked.rows.items()
        if pod in before.worked.rows
    )
    return Spent(
        starting=now.starting * seconds,
        busy=0.0 if busy is None else serving_s * busy,
        idle=0.0 if busy is None else serving_s * (1 - busy),
        unknown=serving_s if busy is None else 0.0,
        inferences=rows,
        at_max_replicas=(now.max_gpus or 0) * seconds,
        seconds=seconds,
        scaled=0.0 if now.max_gpus is None else now.held * seconds,
    )


@dataclass(frozen=True)
class Prices:
    """Prices of one GPU-hour, by GPU product or by resource name."""

    currency: str = ""
    by_product: Mapping[str, float] = field(default_factory=dict)
    """Price of a GPU per hour, by the value of the node label nvidia.com/gpu.product or by resource name."""
    default: float | None = None
    """Price per hour of a GPU whose product is not in `by_product`; None if there is no default."""

    def of(self, product: str | None, resource: str | None = None) -> float | None:
        """Return the price per hour of a GPU; None if unknown, which doesn't mean that the GPU is free.

        The price of the resource takes precedence over that of the product, because the product label of a node with
        partitioned GPUs names the whole GPU.
        """
        names = (name for name in (resource, product) if name in self.by_product)
        return next((self.by_product[name] for name in names if name), self.default)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a model and its shares of GPU time, as published in the status and in metrics."""

    gpus: int
    """Number of GPUs that the model's pods hold now."""
    per_hour: float | None
    per_thousand: float | None
    """Cost of a thousand inferences, averaged over the last day; None if unknown."""
    saving: float | None
    """Share of GPU time that was saved over the last day, compared with always running the maximum replicas. Only time
    during which the model had scaling enabled is counted."""
    starting: float | None
    """Share of the last day's GPU time spent on starting pods."""
    busy: float | None
    idle: float | None
    """Share of the last day's GPU time in which the GPUs were idle; None if the state is known for less than half of
    the time. Time in an unknown state is divided between busy and idle in proportion to the known time. `busy` is
    computed in the same way."""


def cost(ledger: Ledger, price: float | None) -> Cost:
    """Return the costs to publish. `price` is the price of one GPU per hour; None if unknown."""
    day, held = ledger.day, 0 if ledger.last is None else ledger.last.held
    is_long_enough = day.gpus > 0 and day.seconds >= MIN_COUNTED_S
    serving = day.busy + day.idle
    is_known = is_long_enough and serving > 0 and serving >= day.unknown
    starting = day.starting / day.gpus if is_long_enough else 0.0
    thousand = (
        None if price is None or day.inferences < MIN_INFERENCES else price * day.gpus / 3600 / day.inferences * 1000
    )
    return Cost(
        gpus=held,
        per_hour=None if price is None else price * held,
        per_thousand=thousand,
        saving=1 - day.scaled / day.at_max_replicas
        if day.at_max_replicas > 0 and day.seconds >= MIN_COUNTED_S
        else None,
        starting=starting if is_long_enough else None,
        busy=(1 - starting) * day.busy / serving if is_known else None,
        idle=(1 - starting) * day.idle / serving if is_known else None,
    )


def has_changed(shown: Cost, now: Cost) -> bool:
    """Return whether GPUs or cost per hour changed, or the cost per thousand inferences became known or unknown."""
    return _published(shown) != _published(now)


def has_moved(shown: Cost, now: Cost) -> bool:
    """Return whether a share became known or unknown or moved by 5 points, or the cost per thousand by over 20 %."""
    for name in ("saving", "starting", "busy", "idle"):
        a, b = getattr(shown, name), getattr(now, name)
        if (a is None) != (b is None) or (a is not None and b is not None and abs(a - b) >= _MIN_SHARE_CHANGE):
            return True
    a, b = shown.per_thousand, now.per_thousand
    return a is not None and b is not None and abs(a - b) > _MIN_RELATIVE_CHANGE * max(a, b)


def _published(cost: Cost) -> tuple[object, ...]:
    return cost.gpus, cost.per_hour, cost.per_thousand is None
