"""What a model's GPUs did with their time, and what that costs. Pure: no clock, no prices of its own.

| state    | a GPU of a pod that                                                     |
| -------- | ----------------------------------------------------------------------- |
| starting | has a node and isn't ready: it pulls, loads, or fails                    |
| busy     | is ready, or ends its last requests, by the share that the GPU is used   |
| idle     | the same, by the rest                                                    |
| unknown  | the same, while nobody tells how busy it is                              |

Time is kept by hours of the last day, so that a cost per inference follows what has changed, and a night isn't forgotten in the morning.
What isn't known is None: without a price there is no cost, and it is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import add

HOUR_S, HOURS = 3600.0, 24
MAX_GAP_S = 60.0
"""A longer time between two looks isn't counted: who slept doesn't know what was."""
MIN_INFERENCES = 100.0
"""Inferences below which a cost of a thousand says nothing."""
MIN_COUNTED_S = 600.0
"""Nothing is said of shares before so much time was counted: a start is all there is then."""
_MOVED, _POINTS = 0.2, 0.05


@dataclass(frozen=True, slots=True)
class Spent:
    """GPU-seconds, and what came of them."""

    starting: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    inferences: float = 0.0
    """Rows that were computed."""
    most: float = 0.0
    """GPU-seconds of as many replicas as scaling may have, all the time; nothing where nobody scales."""
    seconds: float = 0.0
    """Time that was counted."""

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(*map(add, self.parts, other.parts))

    @property
    def parts(self) -> tuple[float, ...]:
        """As numbers; `dataclasses.astuple` takes thirty times as long."""
        return self.starting, self.busy, self.idle, self.unknown, self.inferences, self.most, self.seconds

    @property
    def gpus(self) -> float:
        """GPU-seconds of all states."""
        return self.starting + self.busy + self.idle + self.unknown


@dataclass(frozen=True, slots=True)
class Worked:
    """What the pods have told of their work."""

    busy: float | None = None
    """Mean share of time that the GPUs of ready pods are in use, 0 to 1; None where too few tell it."""
    rows: Mapping[str, float] = field(default_factory=dict)
    """Counter by pod: rows computed."""


@dataclass(frozen=True, slots=True)
class Look:
    """What holds GPUs at one time."""

    at: float
    """Seconds since the epoch."""
    starting: int
    """GPUs of pods that have a node and aren't ready."""
    serving: int
    """GPUs of pods that are ready, or end their last requests."""
    worked: Worked = Worked()
    most: int | None = None
    """GPUs of as many replicas as scaling may have; None where nobody scales."""

    @property
    def held(self) -> int:
        """GPUs that are paid for."""
        return self.starting + self.serving


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was counted."""

    last: Look | None = None
    total: Spent = Spent()
    """Since this process counts."""
    hours: tuple[tuple[int, Spent], ...] = ()
    """(hours since the epoch, what was spent in it), the oldest first; those of a day."""

    def counted(self, look: Look) -> Ledger:
        """With the time since the last look; the first one counts nothing."""
        before, hour = self.last, int(look.at // HOUR_S)
        kept = tuple((at, was) for at, was in self.hours if hour - HOURS < at <= hour)
        if before is None or not 0 < look.at - before.at <= MAX_GAP_S:
            return replace(self, last=look, hours=kept)
        spent = _between(before, look)
        now = next((was for at, was in kept if at == hour), Spent())
        past = ((at, was) for at, was in kept if at != hour)
        return Ledger(look, self.total + spent, (*past, (hour, now + spent)))

    @property
    def day(self) -> Spent:
        """Of the hours that are kept."""
        return sum((was for _, was in self.hours), Spent())

    def to_json(self) -> list[list[float]]:
        """The hours, for a process after this one."""
        return [[hour, *(round(value, 3) for value in was.parts)] for hour, was in self.hours]

    @classmethod
    def from_json(cls, stored: object) -> Ledger:
        """What `to_json` made. What has another form was another version's, and is none."""
        hours: list[tuple[int, Spent]] = []
        for row in stored if isinstance(stored, list) else ():
            good = isinstance(row, list) and len(row) == 1 + len(fields(Spent))
            if not good or not all(isinstance(value, int | float) and 0 <= value < 1e15 for value in row):
                return cls()
            hours.append((int(row[0]), Spent(*map(float, row[1:]))))
        return cls(hours=tuple(hours))


def _between(before: Look, now: Look) -> Spent:
    """What was spent, as things are now: looks are seconds apart."""
    seconds = now.at - before.at
    busy = now.worked.busy
    known = now.serving * seconds
    # A counter that fell was started anew; of a pod that wasn't seen before nobody knows when it began.
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
        most=(now.most or 0) * seconds,
        seconds=seconds,
    )


@dataclass(frozen=True)
class Prices:
    """Of one GPU for an hour."""

    currency: str = ""
    by_product: Mapping[str, float] = field(default_factory=dict)
    """By the value of the node label nvidia.com/gpu.product."""
    default: float | None = None
    """Of those that aren't named; None: it isn't known."""

    def of(self, product: str | None) -> float | None:
        """None where it isn't known, which is not free of charge."""
        return self.by_product.get(product or "", self.default)


@dataclass(frozen=True, slots=True)
class Cost:
    """What is told of a model."""

    gpus: int
    """That it holds now."""
    per_hour: float | None
    per_thousand: float | None
    """Of a thousand inferences, over the last day."""
    saving: float | None
    """Share of what as many replicas as scaling may have would have cost, over the last day."""
    starting: float | None
    """Share of the GPU time of the last day,"""
    busy: float | None
    idle: float | None
    """of that which is known."""


def cost(ledger: Ledger, price: float | None) -> Cost:
    """What there is to tell; `price` is that of a GPU for an hour."""
    day, held = ledger.day, 0 if ledger.last is None else ledger.last.held
    known = day.starting + day.busy + day.idle
    tells = known > 0 and day.seconds >= MIN_COUNTED_S
    thousand = (
        None if price is None or day.inferences < MIN_INFERENCES else price * day.gpus / 3600 / day.inferences * 1000
    )
    return Cost(
        gpus=held,
        per_hour=None if price is None else price * held,
        per_thousand=thousand,
        saving=1 - day.gpus / day.most if day.most > 0 and day.seconds >= MIN_COUNTED_S else None,
        starting=day.starting / known if tells else None,
        busy=day.busy / known if tells else None,
        idle=day.idle / known if tells else None,
    )


def is_news(shown: Cost, now: Cost) -> bool:
    """Whether what is held, or whether inferences have a cost, is another than a reader has seen."""
    return _held(shown) != _held(now)


def has_moved(shown: Cost, now: Cost) -> bool:
    """Whether a share is known that wasn't, or has moved by 5 points, or the cost of a thousand by a fifth."""
    for name in ("saving", "starting", "busy", "idle"):
        a, b = getattr(shown, name), getattr(now, name)
        if (a is None) != (b is None) or (a is not None and b is not None and abs(a - b) >= _POINTS):
            return True
    a, b = shown.per_thousand, now.per_thousand
    return a is not None and b is not None and abs(a - b) > _MOVED * max(a, b)


def _held(of: Cost) -> tuple[object, ...]:
    return of.gpus, of.per_hour, of.per_thousand is None
