"""What GPUs did with their time, and what that costs."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.gpu_cost import Cost, GpuUsage, Ledger, Prices, ReportedWork, Spent, cost, has_changed, has_moved

HOUR = 3600.0
AT = 500_000 * HOUR


def cost_sample(
    at: float, *, starting: int = 0, serving: int = 0, busy: float | None = None, most: int | None = None, **rows: float
) -> GpuUsage:
    return GpuUsage(AT + at, starting, serving, ReportedWork(busy, rows), most)


def counted(*looks: GpuUsage) -> Ledger:
    ledger = Ledger()
    for usage in looks:
        ledger = ledger.counted(usage)
    return ledger


def over(hours: float, *, step_s: float = 60.0, begin: float = 0.0, **held: Any) -> Ledger:
    """Looks at the same for so long; rows of one pod grow by 60 in a minute."""
    steps = int(hours * HOUR / step_s) + 1
    return counted(*(cost_sample(begin + n * step_s, p=n * step_s, **held) for n in range(steps)))


def test_the_first_sample_counts_nothing() -> None:
    assert counted(cost_sample(0, serving=4, busy=0.5)).total == Spent()


def test_time_is_counted_by_what_the_gpus_do() -> None:
    spent = counted(cost_sample(0), cost_sample(10, starting=2, serving=4, busy=0.75, most=16)).total

    assert (spent.starting, spent.busy, spent.idle, spent.unknown) == (20, 30, 10, 0)
    assert (spent.at_max_replicas, spent.seconds, spent.gpus) == (160, 10, 60)


def test_unreported_time_is_unknown_and_not_idle() -> None:
    spent = counted(cost_sample(0), cost_sample(10, serving=4)).total

    assert (spent.busy, spent.idle, spent.unknown) == (0, 0, 40)


@pytest.mark.parametrize("gap", [0.0, -5.0, 61.0])
def test_unsampled_time_is_not_counted(gap: float) -> None:
    assert counted(cost_sample(100), cost_sample(100 + gap, serving=4, busy=1.0)).total == Spent()


def test_inferences_are_those_of_pods_that_were_seen_before() -> None:
    ledger = counted(
        cost_sample(0, a=100, b=50), cost_sample(10, a=130, b=20, c=1000), cost_sample(20, a=130, b=30, c=1005)
    )

    # a grew by 30; b was started anew and has computed 20 since, then 10; when c began nobody knows.
    assert ledger.total.inferences == 30 + 20 + 10 + 5


def test_a_day_is_kept_by_the_hour() -> None:
    ledger = over(30.5, serving=2, busy=1.0)

    assert len(ledger.hours) == 24
    assert ledger.day.busy == pytest.approx(2 * 23.5 * HOUR, rel=0.02)
    assert ledger.total.busy == pytest.approx(2 * 30.5 * HOUR)


def test_a_kept_ledger_is_read_back() -> None:
    ledger = over(3, serving=2, starting=1, busy=0.3, most=8)
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))

    assert astuple(again.day) == pytest.approx(astuple(ledger.day), abs=0.01)
    assert (again.total, again.last) == (Spent(), None)


def test_entries_older_than_a_day_are_dropped_at_the_first_sample() -> None:
    kept = Ledger.from_json(over(3, serving=2, busy=0.3).to_json())

    assert kept.counted(cost_sample(10 * HOUR)).day.busy > 0
    assert kept.counted(cost_sample(40 * HOUR)).day == Spent()


@pytest.mark.parametrize(
    "stored", [None, "x", {}, [1], [[1, 2]], [["a"] * 8], [[1.0] + [-1.0] * 7], [[1.0] + [float("nan")] * 7]]
)
def test_a_ledger_of_another_version_is_counted_afresh(stored: Any) -> None:
    assert Ledger.from_json(stored) == Ledger()


def test_costs_follow_from_the_price() -> None:
    costs = cost(over(2, serving=2, busy=0.5, most=8), 3.0)

    assert (costs.gpus, costs.per_hour) == (2, 6.0)
    # 6 an hour for 3,600 inferences an hour.
    assert costs.per_thousand == pytest.approx(6 / 3.6)
    assert costs.saving == pytest.approx(0.75)
    assert costs.starting == 0
    assert costs.busy == pytest.approx(0.5)
    assert costs.idle == pytest.approx(0.5)


def test_the_cost_without_a_price_is_unknown_and_not_zero() -> None:
    costs = cost(over(2, serving=2, busy=0.5, most=8), None)

    assert (costs.per_hour, costs.per_thousand) == (None, None)
    assert costs.saving == pytest.approx(0.75)


def test_a_free_gpu_costs_zero() -> None:
    assert cost(over(2, serving=2, busy=0.5), 0.0).per_hour == 0.0


def test_a_model_at_zero_costs_nothing_now() -> None:
    ledger = over(1, serving=2, busy=0.5, most=8).counted(cost_sample(HOUR + 10, most=8))

    assert cost(ledger, 3.0).per_hour == 0.0


def test_few_inferences_and_a_short_time_give_no_cost() -> None:
    costs = cost(over(0.02, serving=2, busy=0.5, most=8), 3.0)

    assert (costs.per_thousand, costs.saving, costs.busy) == (None, None, None)
    assert costs.per_hour == 6.0


def test_a_model_that_never_scaled_has_no_saving() -> None:
    assert cost(over(2, serving=2, busy=0.5), 3.0).saving is None


def test_the_saving_is_that_of_the_time_with_scaling() -> None:
    ledger = over(2, serving=2, busy=0.5, most=8)
    for second in range(int(2 * HOUR), int(4 * HOUR), 10):
        ledger = ledger.counted(cost_sample(second, serving=8, busy=0.5))

    assert cost(ledger, 3.0).saving == pytest.approx(0.75, abs=0.001)


def test_the_share_of_starts_is_known_without_utilisation() -> None:
    ledger = over(1, serving=2)
    for second in range(int(HOUR), int(HOUR) + 120, 10):
        ledger = ledger.counted(cost_sample(second, starting=2, serving=2))
    costs = cost(ledger, 3.0)

    assert costs.starting == pytest.approx(240 / (7200 + 480), rel=0.1)
    assert (costs.busy, costs.idle) == (None, None)


def test_hours_of_an_earlier_version_keep_their_saving() -> None:
    rows = [row[:-1] for row in over(2, serving=2, busy=0.5, most=8).to_json()]

    assert cost(Ledger.from_json(rows), None).saving == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("prices", "product", "price"),
    [
        (Prices("EUR", {"NVIDIA-L4": 0.8}, 2.5), "NVIDIA-L4", 0.8),
        (Prices("EUR", {"NVIDIA-L4": 0.8}, 2.5), "NVIDIA-H200", 2.5),
        (Prices("EUR", {"NVIDIA-L4": 0.8}, 2.5), None, 2.5),
        (Prices("EUR", {"NVIDIA-L4": 0.8}), "NVIDIA-H200", None),
        (Prices("EUR", {"NVIDIA-L4": 0.8}), None, None),
        (Prices(), "NVIDIA-L4", None),
    ],
)
def test_a_price_is_that_of_the_product_or_the_default_or_unknown(
    prices: Prices, product: str | None, price: float | None
) -> None:
    assert prices.of(product) == price


BASE = Cost(2, 6.0, 1.0, 0.5, 0.1, 0.6, 0.3)


@pytest.mark.parametrize(
    ("change", "news", "moved"),
    [
        ({}, False, False),
        ({"gpus": 3, "per_hour": 9.0}, True, False),
        ({"per_hour": 7.0}, True, False),
        ({"per_hour": None}, True, False),
        ({"per_thousand": None}, True, False),
        ({"saving": None}, False, True),
        ({"per_thousand": 1.2}, False, False),
        ({"per_thousand": 1.3}, False, True),
        ({"saving": 0.54}, False, False),
        ({"saving": 0.56}, False, True),
        ({"busy": 0.5, "idle": 0.4}, False, True),
    ],
)
def test_a_reader_is_shown_noticeable_changes(change: dict[str, Any], news: bool, moved: bool) -> None:
    now = replace(BASE, **change)

    assert (has_changed(BASE, now), has_moved(BASE, now)) == (news, moved)


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 60), st.integers(0, 8), st.integers(0, 8), st.none() | st.floats(0, 1), st.floats(0, 1e6)
        ),
        min_size=2,
        max_size=12,
    )
)
def test_every_second_of_every_gpu_is_counted_once(steps: list[tuple[float, int, int, float | None, float]]) -> None:
    at, ledger, held = 0.0, Ledger(), 0.0
    for number, (seconds, starting, serving, busy, rows) in enumerate(steps):
        at += seconds
        ledger = ledger.counted(cost_sample(at, starting=starting, serving=serving, busy=busy, p=rows))
        held += (starting + serving) * seconds if number else 0.0

    assert ledger.total.gpus == pytest.approx(held, rel=1e-6, abs=1e-3)
    assert ledger.day.gpus == pytest.approx(held, rel=1e-6, abs=1e-3)
    assert min(astuple(ledger.total)) >= 0
