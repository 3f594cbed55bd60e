"""Schedules: which windows are open, until when, and what is wrong with a rule."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.scaling.schedules import MAX_DURATION_S, CronSchedule, InForce, in_force, problems
from tests.drawn import draws

HOUR_S = 3600.0
DAY_S = 86_400.0
# A day before a change of the clocks (where the zone has any), as UTC dates.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 7, 12, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 31, 12, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 0, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 1, 31, 0, tzinfo=UTC)),
    ("UTC", datetime(2026, 2, 27, 12, tzinfo=UTC)),
]
BEFORE, AFTER = 3 * 1440, 1440


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def office(**changes: object) -> CronSchedule:
    values: dict[str, object] = {"name": "office", "start": "0 8 * * 1-5", "duration_s": 10 * HOUR_S, "low": 4}
    return CronSchedule(**(values | changes))  # type: ignore[arg-type]  # a test's shorthand


@cache
def clock(zone: str, middle: datetime) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """By minute: the wall clock's readings (minute, hour, day of week) that begin at it, skipped ones included."""
    tz, first = ZoneInfo(zone), int(middle.timestamp()) - BEFORE * 60
    readings: list[tuple[tuple[int, int, int], ...]] = []
    highest = -1
    for minute in range(BEFORE + AFTER):
        wall = datetime.fromtimestamp(first + minute * 60, tz)
        number = wall.toordinal() * 1440 + wall.hour * 60 + wall.minute
        new = range(highest + 1, number + 1) if highest >= 0 else range(number, number + 1)
        readings.append(tuple((n % 60, n // 60 % 24, (n // 1440) % 7) for n in new))
        highest = max(highest, number)
    return tuple(readings)


RULES = st.tuples(
    st.one_of(st.none(), st.sets(st.integers(0, 59), min_size=1, max_size=3)),
    st.one_of(st.none(), st.sets(st.integers(0, 23), min_size=1, max_size=3), st.just({1, 2, 3})),
    st.one_of(st.none(), st.sets(st.integers(0, 6), min_size=1, max_size=4)),
)
Fields = tuple[set[int] | None, set[int] | None, set[int] | None]


def rule(fields: Fields) -> str:
    minutes, hours, days = ("*" if f is None else ",".join(str(n) for n in sorted(f)) for f in fields)
    return f"{minutes} {hours} * * {days}"


@draws(2.5)
@given(RULES, st.sampled_from(CHANGES), st.one_of(st.integers(1, 300), st.integers(1, BEFORE - 1)))
@example(({30}, {2}, None), CHANGES[0], 60)
@example(({30}, {2}, None), CHANGES[1], 90)
@example(({0}, None, None), CHANGES[1], 30)
@example((None, None, None), CHANGES[1], 1)
@example(({15, 45}, {1, 2}, None), CHANGES[4], 20)
@example(({15, 45}, {2}, None), CHANGES[5], 20)
def test_a_check_minute_by_minute_over_a_change_of_the_clocks_agrees(
    fields: Fields, change: tuple[str, datetime], minutes: int
) -> None:
    zone, middle = change
    schedule = CronSchedule("s", rule(fields), minutes * 60.0, zone, low=3)
    first = middle.timestamp() - BEFORE * 60
    answer: InForce | None = None
    latest = -math.inf
    evaluations = 0
    for minute, readings in enumerate(clock(zone, middle)):
        if any(all(f is None or n in f for f, n in zip(fields, reading, strict=True)) for reading in readings):
            latest = minute
        if minute < BEFORE:
            continue
        now = first + minute * 60
        if answer is None or not answer.holds(now):
            answer = in_force([schedule], now)
            evaluations += 1
        assert (answer.low == 3) == (minute - latest < minutes), datetime.fromtimestamp(now, ZoneInfo(zone))
    assert evaluations <= 2 * AFTER + 1


@draws(2.5)
@given(RULES, st.sampled_from(CHANGES), st.integers(1, 5000), st.floats(0, 2 * DAY_S))
def test_the_evaluation_is_constant_until_its_announced_change(
    fields: Fields, change: tuple[str, datetime], minutes: int, later: float
) -> None:
    zone, middle = change
    schedule = CronSchedule("s", rule(fields), minutes * 60.0, zone, low=3)
    now = middle.timestamp() + later
    answer = in_force([schedule], now)
    assert answer.valid_until > now
    last = in_force([schedule], min(math.nextafter(answer.valid_until, 0), now + 30 * DAY_S))
    assert last.low == answer.low
    assert last.valid_until >= answer.valid_until


def test_a_window_over_midnight_is_open_on_both_days() -> None:
    night = office(start="0 22 * * 5", duration_s=8 * HOUR_S)
    assert in_force([night], at("2026-11-20 23:59")).low == 4
    assert in_force([night], at("2026-11-21 05:59:59")).low == 4
    closed = in_force([night], at("2026-11-21 06:00"))
    assert closed.low is None
    assert closed.upcoming is not None
    assert closed.upcoming.begin == closed.valid_until == at("2026-11-27 22:00")


def test_a_start_that_the_clocks_jump_over_opens_right_after_the_jump() -> None:
    schedule = office(start="30 2 * * *", duration_s=HOUR_S, time_zone="Europe/Berlin")
    jump = at("2026-03-29 01:00")
    assert in_force([schedule], jump - 1).low is None
    assert in_force([schedule], jump - 1).valid_until == jump
    opened = in_force([schedule], jump)
    assert (opened.low, opened.valid_until) == (4, jump + HOUR_S)


def test_a_start_in_a_repeated_hour_opens_once_for_its_elapsed_time() -> None:
    schedule = office(start="30 2 * * *", duration_s=1.5 * HOUR_S, time_zone="Europe/Berlin")
    first = at("2026-10-25 00:30")
    opened = in_force([schedule], first)
    assert (opened.low, opened.valid_until) == (4, first + 1.5 * HOUR_S)
    assert in_force([schedule], first + 1.5 * HOUR_S).valid_until == at("2026-10-26 01:30")


def test_windows_that_overlap_themselves_for_a_week_are_one() -> None:
    opened = in_force([office(start="0 8 * * 1,3", duration_s=MAX_DURATION_S)], at("2026-11-19 12:00"))
    assert opened.low == 4
    assert opened.valid_until > at("2027-03-01 12:00")
    assert opened.open[0].begin == at("2026-11-18 08:00")


def test_the_highest_minimum_and_lowest_maximum_of_windows_are_in_force() -> None:
    rules = [office(), office(name="peak", start="0 11 * * *", duration_s=HOUR_S, low=9, high=30)]
    rules.append(office(name="cap", low=None, high=20))
    now = in_force(rules, at("2026-11-20 11:30"))
    assert (now.low, now.high, now.conflict) == (9, 20, None)
    assert now.valid_until == at("2026-11-20 12:00")
    assert [opening.name for opening in now.open] == ["office", "peak", "cap"]


def test_the_maximum_wins_over_a_contradicting_minimum_and_is_named() -> None:
    now = in_force([office(), office(name="cap", low=None, high=2)], at("2026-11-20 11:30"))
    assert (now.low, now.high) == (2, 2)
    assert now.conflict == "schedule office sets at least 4 replicas and schedule cap at most 2: the maximum wins"


def test_the_bounds_never_change_without_schedules() -> None:
    now = in_force([], 0.0)
    assert (now.low, now.high, now.valid_until) == (None, None, math.inf)


def test_a_good_schedule_has_no_problem() -> None:
    assert (
        problems([office(), office(name="b", start="*/5 0-6 29 2 SUN", time_zone="Asia/Kolkata", low=None, high=0)])
        == ()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"start": "0 8 * *"},
            'schedule office: start "0 8 * *" has 4 fields, not 5 (minute, hour, day of month, month, day of week); for example "0 8 * * 1-5"',
        ),
        (
            {"start": "0 25 * * *"},
            'schedule office: start "0 25 * * *" is not a valid cron expression (bad hour); for example "0 8 * * 1-5"',
        ),
        (
            {"start": "0 0 31 2 *"},
            'schedule office: start "0 0 31 2 *" is not a valid cron expression (bad day-of-month); for example "0 8 * * 1-5"',
        ),
        (
            {"time_zone": "Berlin"},
            'schedule office: timeZone "Berlin" is not in the tz database; for example "Europe/Berlin"',
        ),
        (
            {"time_zone": "../etc/passwd"},
            'schedule office: timeZone "../etc/passwd" is not in the tz database; for example "Europe/Berlin"',
        ),
        (
            {"duration_s": 8 * DAY_S},
            "schedule office: duration 691200 s is not between 60 s and 7 days; for example 10h",
        ),
        ({"duration_s": 0.0}, "schedule office: duration 0 s is not between 60 s and 7 days; for example 10h"),
        (
            {"low": None},
            "schedule office: minReplicas is not set, nor is maxReplicas, so it changes nothing; for example minReplicas: 2",
        ),
        ({"high": 3}, "schedule office: minReplicas 4 is above its maxReplicas 3; for example 3"),
        ({"low": -1}, "schedule office: minReplicas -1 is below 0; for example 2"),
        ({"name": ""}, 'schedule (no name): name "" is empty; for example "office-hours"'),
    ],
)
def test_a_problem_names_the_value_the_reason_and_a_good_example(changes: dict[str, object], message: str) -> None:
    assert [problem.describe() for problem in problems([office(**changes)])] == [message]


def test_two_schedules_of_one_name_are_a_problem() -> None:
    assert [problem.field for problem in problems([office(), office()])] == ["name"]


def test_evaluating_a_bad_rule_names_the_mistake() -> None:
    with pytest.raises(ValueError, match=r"schedule office: start .* is not a valid cron expression"):
        in_force([office(start="0 25 * * *")], 0.0)


@given(st.text(alphabet="0123456789*/,-#LWMONSU ", max_size=24))
def test_a_rule_is_either_a_problem_or_can_be_evaluated(text: str) -> None:
    schedule = office(start=text)
    if not problems([schedule]):
        assert in_force([schedule], at("2026-11-20 11:30")).valid_until > at("2026-11-20 11:30")
