"""The step's floor, what counts as late or lost, and the judgement of rows 4.1 and 4.4."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.profile import Phase, Profile
from benchmarks.quality import rows as quality_rows
from benchmarks.quality.rows import holds
from benchmarks.right.step import __main__ as step
from benchmarks.right.step.figures import Samples, StepFigures, above_capacity, batch_time_ratio, excess, figures

EVEN = Profile((Phase(0.0, 10.0), Phase(10.0, 40.0)), 20.0)
"""10/s, then 40/s."""


def even(rates: list[float]) -> tuple[float, ...]:
    """Return evenly spaced arrivals, with one rate for each second."""
    return tuple(second + (n + 0.5) / rate for second, rate in enumerate(rates) for n in range(round(rate)))


ARRIVALS = even([10.0] * 10 + [40.0] * 10)


def run(latency_s: list[float | None], **changes: object) -> Samples:
    samples = Samples(
        arrivals_s=ARRIVALS,
        latency_s=tuple(latency_s),
        failures={},
        replicas=((-5.0, 1), (11.0, 3)),
        ready=((-5.0, 1), (15.0, 3)),
        late_sending_s=0.002,
    )
    return replace(samples, **changes)  # type: ignore[arg-type]  # each test knows the types


def test_floor_is_what_arrives_above_the_ready_pods() -> None:
    # 5 s with 40/s for one pod of 20/s; then three pods take 60/s.
    assert above_capacity(ARRIVALS, ((-5.0, 1), (15.0, 3)), pod_rps=20.0, until_s=20.0) == pytest.approx(100)
    assert above_capacity(ARRIVALS, ((-5.0, 2),), pod_rps=20.0, until_s=20.0) == 0
    assert above_capacity(ARRIVALS, (), pod_rps=20.0, until_s=20.0) == len(ARRIVALS)


def test_floor_counts_a_pod_from_the_moment_that_it_is_ready() -> None:
    # In the second with the change, 0.25 s with one pod and 0.75 s with three: 50 of 40.
    assert above_capacity(ARRIVALS, ((0.0, 1), (15.25, 3)), pod_rps=20.0, until_s=20.0) == pytest.approx(100)
    assert above_capacity(ARRIVALS, ((0.0, 1), (15.75, 3)), pod_rps=20.0, until_s=20.0) == pytest.approx(110)


def test_capacity_of_a_quiet_second_serves_no_other() -> None:
    burst = even([0.0, 0.0, 50.0, 0.0])
    assert above_capacity(burst, ((0.0, 1),), pod_rps=20.0, until_s=4.0) == pytest.approx(30)


def figures_of(samples: Samples) -> StepFigures:
    return figures(samples, EVEN, objective_s=0.5, pod_rps=20.0, capacity_rps=20.0, start_s=4.0)


def test_late_and_lost_requests_count_above_the_floor() -> None:
    count = len(ARRIVALS)
    assert count == 500
    latency_s: list[float | None] = [0.1] * count
    latency_s[200:300] = [None] * 100
    latency_s[0], latency_s[1] = 0.5, 0.501
    step_figures = figures_of(run(latency_s))
    assert (step_figures.requests, step_figures.lost_pct, step_figures.late_pct) == (500, 20.0, 0.2)
    assert step_figures.floor_pct == 20.0
    assert step_figures.above_floor_points == 0.2


def test_pod_seconds_count_from_the_order() -> None:
    step_figures = figures_of(run([0.1] * len(ARRIVALS)))
    # 11 s with one and 9 s with three; the clairvoyant orders the second pod 4 s before the step: 20 + 14.
    assert step_figures.pod_seconds_ratio == pytest.approx((11 + 9 * 3) / 34, abs=0.001)
    assert step_figures.most_replicas == 3
    assert step_figures.late_sending_ms == 2.0


def test_quantile_of_answers_leaves_lost_requests_out() -> None:
    latency_s: list[float | None] = [0.2] * 100 + [None] * 400
    assert figures_of(run(latency_s)).answered_p99_ms == 200.0


def test_time_of_batches_shows_a_slow_machine() -> None:
    assert batch_time_ratio([(1, 10, 860_000), (8, 5, 640_000)], 80, 6) == 1.0
    assert batch_time_ratio([(8, 5, 768_000)], 80, 6) == 1.2
    assert batch_time_ratio([], 80, 6) is None


def of_the_step(
    points: float, *, p99_s: float = 0.4, replicas: tuple[tuple[float, int], ...] = ((-1.0, 1), (61.0, 4))
) -> Samples:
    """Return a run whose lost requests are these points above its floor."""
    profile = step.RUNS["4.1"][0].profile
    arrivals = even([profile.rate_at(second) for second in range(round(profile.until_s))])
    ready = tuple((at_s if at_s < 0 else at_s + 20, number) for at_s, number in replicas)
    floor = above_capacity(arrivals, ready, pod_rps=62.5, until_s=profile.until_s)
    lost = round(floor + points / 100 * len(arrivals))
    latency_s = [None] * lost + [p99_s] * (len(arrivals) - lost)
    return Samples(arrivals, tuple(latency_s), {}, replicas, ready, 0.0)


def test_row_of_the_step_needs_every_seed() -> None:
    good = {run.name: of_the_step(0.55) for run in step.RUNS["4.1"]}
    assert list(good) == ["seed_1", "seed_2", "seed_3"]
    row = step.floor_row(good)
    assert holds(row), row.value
    assert row.value["above_floor_points"] == pytest.approx(0.55, abs=0.01)
    assert not holds(step.floor_row({name: good[name] for name in ("seed_1", "seed_2")}))


@pytest.mark.parametrize(
    "worse",
    [
        of_the_step(0.65),
        of_the_step(0.0, p99_s=0.56),
        of_the_step(0.0, replicas=((-1.0, 1), (61.0, 5))),
    ],
)
def test_row_of_the_step_is_that_of_the_worst_seed(worse: Samples) -> None:
    good = of_the_step(0.0)
    row = step.floor_row({"seed_1": good, "seed_2": worse, "seed_3": good})
    assert not holds(row), row.value


def test_row_of_the_step_says_that_the_machine_was_slow() -> None:
    good = of_the_step(0.0)
    slow = replace(good, batch_time_ratio=1.2)
    assert "seed_2" in step.floor_row({"seed_1": good, "seed_2": slow, "seed_3": good}).why
    assert not step.floor_row({"seed_1": good, "seed_2": good, "seed_3": good}).why


@pytest.mark.parametrize(("repeated", "is_right"), [(3, True), (4, True), (5, True), (6, False)])
def test_repeats_may_cost_one_replica(repeated: int, is_right: bool) -> None:
    counts = dict.fromkeys([variant.name for variant in step.RUNS["4.4"]], 4) | {"http_pool_repeated": repeated}
    samples = {name: run([0.1] * len(ARRIVALS), replicas=((-1.0, 1), (31.0, count))) for name, count in counts.items()}
    row = step.repeats_row(samples)
    assert row.value["more_replicas"] == max(repeated - 4, 0)
    assert holds(row) is is_right


def test_samples_of_another_commit_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_rows, "OUT", tmp_path)
    seed = step.RUNS["4.1"][0]
    step.keep("4.1", seed, "abc", run([0.1] * len(ARRIVALS)))
    assert step.kept_samples("4.1", "def") == {}
    assert list(step.kept_samples("4.1", "abc")) == ["seed_1"]
    assert figures_of(step.kept_samples("4.1", "abc")["seed_1"]) == figures_of(run([0.1] * len(ARRIVALS)))


def test_excess_of_a_second_is_listed_by_arrival() -> None:
    count = len(ARRIVALS)
    latency_s: list[float | None] = [0.1] * count
    latency_s[0] = 0.6
    latency_s[100:110] = [None] * 10
    seconds = excess(run(latency_s), objective_s=0.5, pod_rps=20.0, until_s=20.0)
    assert seconds == [(0, 1, 0, 0), (10, 0, 10, 20), *((second, 0, 0, 20) for second in range(11, 15))]
