"""Numbers computed apart: growth between samples, quantiles of the client's log, and when a number that is shown is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import BenchError
from benchmarks.open_loop import Sent
from benchmarks.quality.rows import commit
from benchmarks.right import numbers
from benchmarks.right.shown.programs import EXPECTED, variables
from benchmarks.right.shown.truth import Apart, Pair, check_pace, client_counts, client_quantiles, means
from generators.monitoring import queries


def sent(*latencies_s: float | None) -> Sent:
    """Return the log of a client that began at 100 s and sent a request each second."""
    return Sent(100.0, tuple(float(n) for n in range(len(latencies_s))), latencies_s, {}, 0.0)


def test_every_compared_panel_is_on_a_dashboard_with_its_variables_replaced() -> None:
    expressions = {panel.location: panel.expression for panel in queries.panels(variables("team"))}

    assert set(EXPECTED) - set(expressions) == set()
    assert [location for location in EXPECTED if "$" in expressions[location]] == []


def test_growth_of_a_counter_is_interpolated_between_samples() -> None:
    apart = Apart(at=[0.0, 1.0, 2.0], counters=[{"rows": 0.0}, {"rows": 10.0}, {"rows": 30.0}])
    assert apart.grown("rows", 0.5, 1.5) == 15.0


def test_means_of_gauges_add_up_the_queues() -> None:
    apart = Apart(at=[0.0, 1.0, 2.0], queued=[1.0, 3.0, 100.0], pending=[2.0, 2.0, 2.0])
    assert apart.mean_waiting(0.0, 2.0) == 4.0


def test_requests_count_in_the_time_in_which_they_were_sent() -> None:
    log = [sent(0.1, None, 0.1, None)]
    assert client_counts(log, 101.0, 103.0) == (2, 1)


def test_responses_count_in_the_time_in_which_they_ended() -> None:
    log = [sent(0.5, 2.5, 0.2)]
    # They end at 100.5, 103.5 and 102.2 s.
    assert client_quantiles(log, (102.0,), (103.0,), 0.5) == (200.0,)
    assert client_quantiles(log, (100.0,), (104.0,), 0.99) == (2500.0,)
    assert client_quantiles(log, (104.0,), (105.0,), 0.5) == ()


def test_quantile_has_a_value_for_each_possible_time_of_reading() -> None:
    assert set(client_quantiles([sent(0.5, 2.5)], (100.0, 101.0), (104.0,), 0.5)) == {500.0, 2500.0}


def test_quantile_is_the_lowest_value_that_its_share_does_not_exceed() -> None:
    log = [sent(*(0.001 * n for n in range(1, 101)))]
    assert client_quantiles(log, (100.0,), (300.0,), 0.95) == pytest.approx((95.0,))


@pytest.mark.parametrize(
    ("shown", "true", "is_right"),
    [(104.9, 100.0, True), (105.1, 100.0, False), (None, 0.0, False), (0.04, 0.0, True), (0.06, 0.0, False)],
)
def test_value_is_right_within_five_percent(shown: float | None, true: float, is_right: bool) -> None:
    assert Pair("waiting", shown, (true,)).is_right == is_right


@pytest.mark.parametrize(
    ("shown", "true", "is_right"),
    [(600.0, (990.0,), True), (480.0, (990.0,), True), (470.0, (990.0,), False), (1100.0, (990.0,), False), (1100.0, (990.0, 1010.0), True), (700.0, (), False), (457.0, (505.7,), False)],
)  # fmt: skip
def test_quantile_is_right_within_the_bucket(shown: float, true: tuple[float, ...], is_right: bool) -> None:
    assert Pair("latency p50", shown, true, "quantile").is_right == is_right


def test_numbers_of_two_places_agree_at_one_of_the_times() -> None:
    assert Pair("queue, top", 50.0, (80.0, 51.0), "same").is_right
    assert not Pair("queue, top", 50.0, (80.0, 60.0), "same").is_right
    assert not Pair("queue, top", 50.0, (), "same").is_right


def test_mean_is_unknown_if_the_number_is_unknown_half_of_the_time() -> None:
    assert means([("queue", 1.0, 2.0), ("queue", 3.0, 4.0)]) == [Pair("queue", 2.0, (3.0,))]
    [pair] = means([("queue", None, 2.0), ("queue", 3.0, 4.0)])
    assert pair.shown is None


@pytest.mark.parametrize(("late_s", "at"), [(0.5, [0.0, 0.1]), (0.0, [0.0, 0.1, 1.6])])
def test_busy_machine_gives_no_comparison(late_s: float, at: list[float]) -> None:
    with pytest.raises(BenchError, match="quiet machine"):
        check_pace(Apart(at=at), [Sent(100.0, (), (), {}, late_s)])


def test_client_and_sampler_that_keep_pace_give_a_comparison() -> None:
    check_pace(Apart(at=[0.0, 0.1, 0.3]), [Sent(100.0, (), (), {}, 0.1)])


def test_measured_part_is_kept_with_its_commit_and_read_again(tmp_path: Path) -> None:
    part = numbers.PARTS[0]
    numbers.keep([{"number": "waiting", "shown": 1.0, "true": [1.0], "right": True}], part, tmp_path)

    [(kept_part, [entry])] = numbers.measured_parts(tmp_path).items()

    assert (kept_part, entry["number"], entry["commit"]) == (part, "waiting", commit())


def test_each_part_has_a_file_of_its_own() -> None:
    assert len({numbers.file_of(part, Path()) for part in numbers.PARTS}) == len(numbers.PARTS) == 18
