"""Schedules of spec.scaling: which windows are open at a given time, and the bounds that they set.

A window opens whenever its cron expression matches the wall clock of its time zone. Its duration is elapsed time, so 8 h are
8 h even if the clocks change. If a clock change skips a start, the window opens at the first instant after the skipped
time. If it repeats a start, the window opens only the first time. (If the clocks are set back from 3:00 to 2:00, an
hourly rule opens the window only once between 2:00 and 3:00.) There is no lead time: if replicas need 5 minutes to
start, set the rule 5 minutes earlier.

If several windows are open, the highest `low` and the lowest `high` apply. If `low` is then above `high`, `high` wins,
because it limits the cost, and `conflict` reports this. An evaluation takes a few cron steps per schedule, so callers
should repeat it only after `valid_until`. Out of scope: minReplicas and maxReplicas of spec.scaling, which the caller
combines with these bounds.
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
"""Maximum number of extensions considered when the end of an open window is computed. A window is extended if the
schedule starts again while it is open. At the computed end, the schedule is evaluated again."""
MAX_RULE_LENGTH = 200
"""Maximum length of a cron expression, in characters."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """One entry of spec.scaling.schedules."""

    name: str
    start: str
    """Cron rule of the start: minute, hour, day of month, month, day of week (0 and 7 are Sunday)."""
    duration_s: float
    time_zone: str = "UTC"
    low: int | None = None
    """Minimum replicas while the window is open; None if the schedule doesn't set them."""
    high: int | None = None
    """Maximum replicas while the window is open; None if the schedule doesn't set them."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Open window of a schedule, or its next window if none is open."""

    name: str
    begin: float
    end: float
    """Time at which the window closes. Each start of the schedule while the window is open extends it; up to `CHAIN`
    extensions are included."""
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class InForce:
    """Bounds that the schedules set from `begin` to `valid_until`. All times are in seconds since the epoch."""

    begin: float
    valid_until: float
    """Time until which these bounds apply. It is infinite if no window ever opens."""
    open: tuple[Opening, ...] = ()
    low: int | None = None
    high: int | None = None
    conflict: str | None = None
    """Description of a conflict between open schedules, where one sets `low` above another's `high`; None if there is
    none."""
    upcoming: Opening | None = None
    """Window that opens next; None if no window will open."""

    def holds(self, at: float) -> bool:
        """Return whether these bounds apply at the time `at`."""
        return self.begin <= at < self.valid_until


@dataclass(frozen=True, slots=True)
class Problem:
    """Invalid field of a schedule, with an example of a valid value."""

    schedule: str
    field: str
    value: str
    reason: str
    example: str

    def describe(self) -> str:
        """Describe the problem, for example `schedule office: start "0 8 * *" has 4 fields, not 5; for example "0 8 * * 1-5"`."""
        return f"schedule {self.schedule}: {self.field} {self.value} {self.reason}; for example {self.example}"


def in_force(schedules: Sequence[CronSchedule], at: float) -> InForce:
    """Return the bounds that the schedules set at the time `at`, and until when they apply.

    Raises:
        ValueError: a schedule is invalid (see `problems`).
    """
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
        conflict = (
            f"schedule {raises} sets at least {low} replicas and schedule {caps} at most {high}: the maximum wins"
        )
        low = high
    upcoming = min(coming, key=lambda opening: (opening.begin, opening.name), default=None)
    changes = [opening.end for opening in openings] + [opening.begin for opening in coming]
    return InForce(at, min(changes, default=math.inf), tuple(openings), low, high, conflict, upcoming)


def problems(schedules: Sequence[CronSchedule]) -> tuple[Problem, ...]:
    """Validate the schedules and return all problems, in the order of the schedules; empty if all are valid."""
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
    if not _is_zone(schedule.time_zone):
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
        next(CronSim(rule, datetime(2024, 1, 1)))  # noqa: DTZ001 - wall-clock time without a zone, on purpose
    except CronSimError as error:
        return f"is not a valid cron expression ({str(error)[:1].lower()}{str(error)[1:]})"
    except StopIteration:
        return "never matches any time"
    return None


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _at(schedule: CronSchedule, at: float) -> Opening | None:
    """Return the schedule's window that is open at the time `at`, or the next window.

    Return None if no window opens within 50 years.
    """
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
    """Return the latest start at or before `at`; None if the window of that start has closed before `at`."""
    wall = datetime.fromtimestamp(at, zone)
    before, after = wall.replace(fold=0).utcoffset(), wall.replace(fold=1).utcoffset()
    latest = wall.replace(tzinfo=None, microsecond=0) + timedelta(seconds=1)
    if wall.fold and before is not None and after is not None:
        latest += before - after  # includes the first occurrence of the repeated hour to its end
    oldest = at - schedule.duration_s
    for start in CronSim(schedule.start, latest, reverse=True):
        instant = _instant(start, zone)
        if instant <= at:
            return instant if instant > oldest else None
    return None


def _starts_after(rule: str, at: float, zone: ZoneInfo) -> Iterator[float]:
    """Yield the schedule's starts after `at`, in order.

    Starts that a clock change moves to the same instant are yielded once.
    """
    wall = datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0, microsecond=0) - timedelta(seconds=1)
    for start in CronSim(rule, wall):
        instant = _instant(start, zone)
        if instant > at:
            at = instant
            yield instant


def _instant(wall: datetime, zone: ZoneInfo) -> float:
    """Convert a wall-clock time to seconds since the epoch.

    If the time occurs twice, return the first occurrence. If the clocks skip it, return the first instant after the gap.
    """
    first, second = wall.replace(tzinfo=zone), wall.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before >= after:
        return first.timestamp()
    # The skipped time has two interpretations, and the clock change lies between them: second < change <= first.
    low, high = int(second.timestamp()), int(first.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return float(high)
