"""Schedules: which windows are open at a time, the bounds they set, and how long the answer is valid.

A window opens at each time that its cron rule matches on the wall clock of its time zone. It stays open for its
duration, which is elapsed time: 8 h are 8 h even across a clock change. A start skipped by a clock change opens at
the first instant after it. A start that occurs twice opens once, the first time. (So an hourly rule opens once in the
two hours that are both called 02.) There is no lead time: if replicas need 5 minutes to start, the rule must be 5
minutes earlier.

If several windows are open, the highest `low` and the lowest `high` are in force. If those contradict each other,
`high` wins, because it bounds the cost, and `conflict` reports it. An evaluation costs some cron steps per schedule:
repeat it only after `valid_until`. Out of scope: the model's own minReplicas and maxReplicas, which the caller
combines with these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

EXAMPLE = "0 8 * * 1-5"
MIN_DURATION_S = 60.0
MAX_DURATION_S = 7 * 86_400.0
CHAIN = 50
"""Maximum number of starts followed to find the end of a window that reopens before it closes. A rule that reopens
more often holds until the last of them and is then evaluated again."""
MAX_RULE_LENGTH = 200
"""Maximum characters of a cron rule."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """One rule, as the user wrote it."""

    name: str
    start: str
    """Cron: minute, hour, day of month, month, day of week (0 and 7 are Sunday)."""
    duration_s: float
    time_zone: str = "UTC"
    low: int | None = None
    """minReplicas while it is open."""
    high: int | None = None
    """maxReplicas while it is open."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A window that is open, or the next one to open."""

    name: str
    begin: float
    end: float
    """Closing time. If the window reopens before that: the end of the last start that follows (at most `CHAIN` of them)."""
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class InForce:
    """Bounds set by the schedules from one time to another. All times are seconds since the epoch."""

    begin: float
    valid_until: float
    """Time until which the answer stays the same; infinite if no window ever opens."""
    open: tuple[Opening, ...] = ()
    low: int | None = None
    high: int | None = None
    conflict: str | None = None
    """Schedules that contradict each other, if `low` had to give way to `high`."""
    upcoming: Opening | None = None
    """Next closed window to open."""

    def holds(self, at: float) -> bool:
        """Return whether this answer is still valid."""
        return self.begin <= at < self.valid_until


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a schedule."""

    schedule: str
    field: str
    value: str
    reason: str
    example: str

    def describe(self) -> str:
        """Return for example `schedule office: start "0 8 * *" has 4 fields, not 5; for example "0 8 * * 1-5"`."""
        return f"schedule {self.schedule}: {self.field} {self.value} {self.reason}; for example {self.example}"


def in_force(schedules: Sequence[CronSchedule], at: float) -> InForce:
    """Return the bounds in force at `at`, and until when. ValueError if `problems` would report a schedule."""
    openings: list[Opening] = []
    coming: list[Opening] = []
    for schedule in schedules:
        opening = _at(schedule, at)
        if opening is not None:
            (openings if opening.begin <= at else coming).append(opening)
    lows = [(opening.low, opening.name) for opening in openings if opening.low is not None]
    highs = [(opening.high, opening.name) for opening in openings if opening.high is not None]
    low, raises = max(lows, default=(None, ""))
    high, caps = min(highs, default=(None, ""))
    conflict = None
    if low is not None and high is not None and low > high:
        conflict = f"schedule {raises} sets at least {low} replicas and {caps} at most {high}: the maximum wins"
        low = high
    upcoming = min(coming, key=lambda opening: (opening.begin, opening.name), default=None)
    changes = [opening.end for opening in openings] + [opening.begin for opening in coming]
    return InForce(at, min(changes, default=math.inf), tuple(openings), low, high, conflict, upcoming)


def problems(schedules: Sequence[CronSchedule]) -> tuple[Problem, ...]:
    """Return every problem, in the order of the schedules; empty if they are valid."""
    result: list[Problem] = []
    seen: set[str] = set()
    for schedule in schedules:
        if not schedule.name or schedule.name in seen:
            reason = "occurs twice" if schedule.name else "is empty"
            result.append(Problem(schedule.name or "(no name)", "name", f'"{schedule.name}"', reason, '"office-hours"'))
        seen.add(schedule.name)
        result += _problems(schedule)
    return tuple(result)


def _problems(schedule: CronSchedule) -> Iterator[Problem]:
    name = schedule.name
    reason = _why_no_rule(schedule.start)
    if reason:
        yield Problem(name, "start", f'"{schedule.start[:MAX_RULE_LENGTH]}"', reason, f'"{EXAMPLE}"')
    if not _known_zone(schedule.time_zone):
        yield Problem(name, "timeZone", f'"{schedule.time_zone}"', "is not in the tz database", '"Europe/Berlin"')
    if not MIN_DURATION_S <= schedule.duration_s <= MAX_DURATION_S:
        reason = f"is not between {MIN_DURATION_S:.0f} s and {MAX_DURATION_S / 86_400:.0f} days"
        yield Problem(name, "duration", f"{schedule.duration_s:g} s", reason, "10h")
    low, high = schedule.low, schedule.high
    if low is None and high is None:
        yield Problem(name, "minReplicas", "is not set,", "nor is maxReplicas, so it changes nothing", "minReplicas: 2")
    for field, count in (("minReplicas", low), ("maxReplicas", high)):
        if count is not None and count < 0:
            yield Problem(name, field, str(count), "is below 0", "2")
    if low is not None and high is not None and low > high:
        yield Problem(name, "minReplicas", str(low), f"is above its maxReplicas {high}", str(high))


def _why_no_rule(rule: str) -> str | None:
    fields = len(rule.split())
    if fields != 5:
        return f"has {fields} fields, not 5 (minute, hour, day of month, month, day of week)"
    if len(rule) > MAX_RULE_LENGTH:
        return f"is longer than {MAX_RULE_LENGTH} characters"
    try:
        next(CronSim(rule, datetime(2024, 1, 1)))  # noqa: DTZ001 - wall clock time of no zone, on purpose
    except CronSimError as error:
        return f"is not a cron rule ({str(error)[:1].lower()}{str(error)[1:]})"
    except StopIteration:
        return "never matches any time"
    return None


def _known_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _at(schedule: CronSchedule, at: float) -> Opening | None:
    """Return the opening in force at `at`, or the next one; None if there is none within 50 years."""
    try:
        zone = ZoneInfo(schedule.time_zone)
        latest = _latest_start(schedule, at, zone)
        if latest is None or latest + schedule.duration_s <= at:
            begin = next(_starts_after(schedule.start, at, zone), None)
            if begin is None:
                return None
            return Opening(schedule.name, begin, begin + schedule.duration_s, schedule.low, schedule.high)
        end = latest + schedule.duration_s
        for count, start in enumerate(_starts_after(schedule.start, latest, zone)):
            if start > end or count == CHAIN:
                break
            end = start + schedule.duration_s
    except (CronSimError, ZoneInfoNotFoundError, OSError) as error:
        raise ValueError("; ".join(problem.describe() for problem in problems([schedule]))) from error
    return Opening(schedule.name, latest, end, schedule.low, schedule.high)


def _latest_start(schedule: CronSchedule, at: float, zone: ZoneInfo) -> float | None:
    """Return the newest start at or before `at`, if it is not older than the duration."""
    wall = datetime.fromtimestamp(at, zone)
    before, after = wall.replace(fold=0).utcoffset(), wall.replace(fold=1).utcoffset()
    latest = wall.replace(tzinfo=None, microsecond=0) + timedelta(seconds=1)
    if wall.fold and before is not None and after is not None:
        latest += before - after  # what the clocks showed the first time, up to where they went back
    oldest = at - schedule.duration_s
    for start in CronSim(schedule.start, latest, reverse=True):
        instant = _instant(start, zone)
        if instant <= at:
            return instant if instant > oldest else None
    return None


def _starts_after(rule: str, at: float, zone: ZoneInfo) -> Iterator[float]:
    """Yield the starts after `at`, in order; starts that a clock change maps to one instant count once."""
    wall = datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0, microsecond=0) - timedelta(seconds=1)
    for start in CronSim(rule, wall):
        instant = _instant(start, zone)
        if instant > at:
            at = instant
            yield instant


def _instant(wall: datetime, zone: ZoneInfo) -> float:
    """Return when the wall clock shows this time: the first of two, or the first instant after a skipped time."""
    first, second = wall.replace(tzinfo=zone), wall.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before >= after:
        return first.timestamp()
    # The jump lies between the two readings of the missing time: second (with the offset after it) < jump <= first.
    low, high = int(second.timestamp()), int(first.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return float(high)
