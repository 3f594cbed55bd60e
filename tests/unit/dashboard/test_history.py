import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.dashboard.client_latency import Quantiles
from halcyon.dashboard.history import FIELDS, MAX_POINTS, MAX_RUNS, STEP_S, ChartHistory, ReplicaCounts
from halcyon.dashboard.ports import UNKNOWN, ModelNumbers, Name

MODEL, OTHER = Name("a", "one"), Name("a", "other")
COUNTS = ReplicaCounts(replicas=3, ready=2, desired=4)
FULL = ModelNumbers(rate=12.5, waiting=3.0, latency_ms=8.25, batch=6.4, gpu=71.3, rejected=0.5, lost=0.0, failed=0.75)


def test_a_point_comes_back_as_it_was() -> None:
    history = ChartHistory()
    history.add(MODEL, 1000.0, COUNTS, FULL, Quantiles(10.5, 220.0, 4560.0))
    series = history.series(MODEL)
    assert series.end == 1000.0
    assert dict(zip(FIELDS, series.rows[-1], strict=True)) == {
        "replicas": 3,
        "ready": 2,
        "desired": 4,
        "gpu": 71.3,
        "rate": 12.5,
        "waiting": 3.0,
        "in_triton": 8.25,
        "p50": 10.5,
        "p95": 220.0,
        "p99": 4560.0,
        "batch": 6.4,
        "rejected": pytest.approx(4.0, rel=0.03),
        "lost": 0.0,
        "failed": pytest.approx(6.0, rel=0.03),
        "errors": pytest.approx(10.0, rel=0.03),
    }


def test_unknown_values_are_none_and_never_zero() -> None:
    history = ChartHistory()
    history.add(MODEL, 1000.0, ReplicaCounts(replicas=None, ready=None, desired=None), UNKNOWN)
    history.add(
        OTHER, 1000.0, ReplicaCounts(replicas=0, ready=0, desired=0), ModelNumbers(rate=0.0, waiting=0.0, gpu=0.0)
    )
    assert history.series(MODEL).rows == ((None,) * len(FIELDS),)
    assert history.series(OTHER).rows == ((0, 0, 0, 0.0, 0.0, 0.0, *[None] * 9),)


def test_unseen_steps_are_unknown() -> None:
    history = ChartHistory()
    history.add(MODEL, 1000.0, COUNTS, FULL)
    history.add(MODEL, 1030.0, COUNTS, FULL)
    assert [row[0] for row in history.series(MODEL).rows] == [3, None, None, 3]


def test_a_second_point_within_a_step_takes_the_place_of_the_first() -> None:
    history = ChartHistory()
    history.add(MODEL, 1000.0, ReplicaCounts(replicas=1, ready=1, desired=1), FULL)
    history.add(MODEL, 1009.9, COUNTS, FULL)
    assert [row[0] for row in history.series(MODEL).rows] == [3]


@pytest.mark.parametrize(
    ("at", "kept"),
    [(9990.0, [3]), (1e4 - MAX_POINTS * STEP_S, [1]), (1e4 + MAX_POINTS * STEP_S, [1]), (1e9, [1])],
    ids=["a little back: left out", "far back: begins anew", "after a gap as long as all: the same", "for ever"],
)
def test_a_clock_step_leaves_the_history_in_order(at: float, kept: list[int]) -> None:
    history = ChartHistory()
    history.add(MODEL, 1e4, COUNTS, FULL)
    history.add(MODEL, at, ReplicaCounts(replicas=1, ready=1, desired=1), FULL)
    assert [row[0] for row in history.series(MODEL).rows] == kept


def test_current_numbers_follow_a_clock_that_was_set_back_by_minutes() -> None:
    """Otherwise the table would show the numbers of the moment before for as many minutes."""
    history = ChartHistory()
    history.add(MODEL, 1e4, COUNTS, ModelNumbers(rate=9.0, rejected=9.0))
    history.add(MODEL, 1e4 - 1200, COUNTS, ModelNumbers(rate=9.0, rejected=0.0))
    assert history.load(MODEL).errors == 0.0


@given(st.lists(st.integers(0, 2 * MAX_POINTS), min_size=1, max_size=40, unique=True).map(sorted))
def test_the_history_keeps_the_newest_hour_in_order(steps: list[int]) -> None:
    history = ChartHistory()
    for step in steps:
        history.add(MODEL, step * STEP_S, ReplicaCounts(replicas=step, ready=None, desired=None), UNKNOWN)
    series = history.series(MODEL)
    first = steps[-1] - len(series.rows) + 1
    assert series.end == steps[-1] * STEP_S
    assert len(series.rows) <= MAX_POINTS
    # Where more than an hour lay between two points, what was before is gone.
    known = [row[0] for row in series.rows]
    assert known == [step if step in steps else None for step in range(first, steps[-1] + 1)]


def test_numbers_beyond_the_range_become_the_largest_and_nonsense_is_unknown() -> None:
    history = ChartHistory()
    history.add(
        MODEL, 0.0, ReplicaCounts(replicas=10**6, ready=-1, desired=2), ModelNumbers(rate=math.inf, gpu=math.nan)
    )
    row = dict(zip(FIELDS, history.series(MODEL).rows[0], strict=True))
    assert row["replicas"] == 65534
    assert row["ready"] == 0
    assert row["rate"] is None
    assert row["gpu"] is None


@given(st.floats(1e-4, 1e9))
def test_three_digits_of_a_number_are_kept_whatever_its_size(value: float) -> None:
    history = ChartHistory()
    history.add(MODEL, 0.0, COUNTS, ModelNumbers(rate=value))
    assert history.series(MODEL).rows[0][FIELDS.index("rate")] == pytest.approx(value, rel=0.0053)


@pytest.mark.parametrize(
    ("value", "kept"), [(-1.0, 0.0), (1e-9, 0.0), (1e30, 1e9), (math.nan, None), (-math.inf, None)]
)
def test_nan_and_infinite_numbers_are_unknown(value: float, kept: float | None) -> None:
    history = ChartHistory()
    history.add(MODEL, 0.0, COUNTS, ModelNumbers(waiting=value))
    assert history.series(MODEL).rows[0][FIELDS.index("waiting")] == kept


@given(st.integers(1, 999))
def test_small_whole_numbers_stay_whole(value: int) -> None:
    history = ChartHistory()
    history.add(MODEL, 0.0, COUNTS, ModelNumbers(waiting=float(value)))
    assert history.series(MODEL).rows[0][FIELDS.index("waiting")] == value


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_shares_are_kept_and_a_failure_never_reads_as_none(refused: float, lost: float, failed: float) -> None:
    history = ChartHistory()
    history.add(MODEL, 0.0, COUNTS, ModelNumbers(rate=1.0, rejected=refused, lost=lost, failed=failed))
    row = dict(zip(FIELDS, history.series(MODEL).rows[0], strict=True))
    for name, share in (("rejected", refused), ("lost", lost), ("failed", failed)):
        kept = row[name]
        assert kept is not None
        assert bool(kept) is bool(share)
        assert kept == pytest.approx(100 * share, rel=0.08, abs=0.0101)
    assert row["errors"] == pytest.approx(min(100 * (refused + lost + failed), 100), rel=0.08, abs=0.031)


@pytest.mark.parametrize(
    ("rate", "lost", "kept"),
    [(1e-300, 5.0, 100.0), (1e300, 1e-300, 0.01), (0.0, 5.0, None), (math.inf, 5.0, None), (5.0, math.nan, None)],
)
def test_shares_of_rates_that_are_no_rates(rate: float, lost: float, kept: float | None) -> None:
    history = ChartHistory()
    history.add(MODEL, 0.0, COUNTS, ModelNumbers(rate=rate, lost=lost))
    assert history.series(MODEL).rows[0][FIELDS.index("lost")] == kept


def test_models_that_are_gone_are_forgotten() -> None:
    history = ChartHistory()
    for name in (MODEL, OTHER):
        history.add(name, 0.0, COUNTS, FULL)
    history.retain([MODEL])
    assert len(history) == 1
    assert history.series(OTHER).rows == ()


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 1, 1, 1, 2, 30, 400]), st.integers(0, 2)), min_size=1, max_size=900),
    st.integers(0, 9),
)
def test_runs_and_single_points_give_the_same_series(gaps: list[tuple[int, int]], every: int) -> None:
    history, points, step = ChartHistory(), dict[int, int](), 1000
    for number, (gap, replicas) in enumerate(gaps):
        step += gap
        if gap >= MAX_POINTS:
            points.clear()
        points[step] = replicas if every else number
        history.add(MODEL, step * STEP_S, ReplicaCounts(replicas=points[step], ready=None, desired=None), UNKNOWN)
    first = max(min(points), step - MAX_POINTS + 1)
    expected = [points.get(at) for at in range(first, step + 1)]
    assert [row[0] for row in history.series(MODEL).rows] == expected
    assert [row[0] for row in history.series(MODEL, 7).rows] == expected[-7:]
    assert (history.newest(MODEL) or ())[0] == expected[-1]


def kib(history: ChartHistory, replicas_at: Callable[[int], int], *, steps: int, models: int = 10) -> float:
    """Memory of a model whose replicas have these values."""
    import tracemalloc  # noqa: PLC0415  # of these tests alone

    names = [Name("team", f"m-{number}") for number in range(models)]
    tracemalloc.start()
    try:
        for name in names:
            for step in range(steps):
                counts = ReplicaCounts(replicas=replicas_at(step), ready=2, desired=2)
                history.add(name, step * STEP_S, counts, FULL)
        return tracemalloc.get_traced_memory()[0] / len(names) / 1024
    finally:
        tracemalloc.stop()


def test_a_model_takes_less_than_ten_kib() -> None:
    assert kib(ChartHistory(), lambda step: step, steps=MAX_RUNS + 2, models=50) <= 9.25


def test_an_idle_model_takes_less_than_a_kib() -> None:
    assert kib(ChartHistory(), lambda _: 2, steps=MAX_POINTS) <= 0.5
    assert kib(ChartHistory(), lambda step: step // 20, steps=MAX_POINTS) <= 1.0


def test_a_model_that_has_become_idle_takes_less_than_a_kib() -> None:
    busy = MAX_POINTS
    assert kib(ChartHistory(), lambda step: min(step, busy), steps=3 * MAX_POINTS + 1) <= 1.0


@pytest.mark.parametrize("missed", [1, 2, 5])
def test_a_gap_is_unknown_when_runs_become_single_points(missed: int) -> None:
    history = ChartHistory()
    for step in range(MAX_RUNS - 1):
        history.add(MODEL, step * STEP_S, ReplicaCounts(replicas=step, ready=None, desired=None), UNKNOWN)
    history.add(MODEL, (MAX_RUNS - 1 + missed) * STEP_S, COUNTS, UNKNOWN)
    assert [row[0] for row in history.series(MODEL, missed + 1).rows] == [*[None] * missed, 3]
