"""The whole search against servers whose truth is another event loop (benchmarks.tune.truth)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.tune.laws import drawn, objectives
from benchmarks.tune.truth import Law, SimulatedTrial
from halcyon.api.spec.parse import parse
from halcyon_tune.batch_times import Curve
from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.estimates import Estimate
from halcyon_tune.patch import duration
from halcyon_tune.points import Configuration, Load, Point, Rate
from halcyon_tune.prediction import Predictor
from halcyon_tune.results.tune_result import result
from halcyon_tune.search import MAX_POINTS, Budget, End, PointRequest, Search
from halcyon_tune.space import Space, space
from halcyon_tune.turns import Turns
from halcyon_tune.verification import Verification

TODAY, WINNER = Configuration(max_batch=8), Configuration(instances=2, max_batch=16)
ROWS = np.arange(257, dtype=np.float64)
CONFIG = {"max_batch_size": 8, "dynamic_batching": {}}


def law(sharing: float, *, memory_batch: int = 10**9) -> Law:
    alone = 0.02 + 0.002 * ROWS
    return Law("line", {count: alone * (1 + sharing * (count - 1)) for count in (1, 2, 4, 8)}, memory_batch)


def configurations(max_batch: int = 8, instances: int = 1, delay_s: float = 0.0, objective_s: float = 0.4) -> Space:
    spec = parse(
        "m",
        {
            "model": {"source": {"uri": "s3://models/m"}},
            "runtime": {"gpu": {"count": 1}, "instancesPerGPU": instances},
            "batching": {"maxBatchSize": max_batch, "maxQueueDelay": duration(delay_s)},
        },
    )
    return space(spec, CONFIG, objective_s=objective_s)


def run(
    truth: Law,
    known: Space,
    *,
    objective_s: float = 0.4,
    noise: float = 0.01,
    seed: int = 1,
    budget: Budget | None = None,
) -> tuple[Search, End, SimulatedTrial]:
    trial = SimulatedTrial(truth, noise, seed)
    search = Search.begin(known, Criterion(predictor=Predictor(objective_s)), budget)
    while True:
        search, request = search.next()
        if isinstance(request, End):
            return search, request, trial
        search = search.after(trial.measure(request.configuration, request.load))


def test_winner_is_near_the_best_with_a_tenth_of_the_points() -> None:
    truth, known = law(0.3), configurations()
    search, end, trial = run(truth, known)
    assert end.reason == "decided"
    assert trial.points <= MAX_POINTS
    assert len(known.configurations) * 8 >= 10 * trial.points
    best = max(truth.capacity(configuration, 0.4) for configuration in known.configurations)
    winner = search.best()
    assert winner is not None
    assert truth.capacity(winner, 0.4) >= 0.97 * best


def test_gain_and_capacity_are_near_the_truth() -> None:
    truth, known = law(0.3), configurations()
    search, end, _ = run(truth, known)
    outcome = result("m", search, end, rate_rps=5000)
    assert outcome.best is not None
    true_today, true_best = truth.capacity(known.today, 0.4), truth.capacity(outcome.best, 0.4)
    assert outcome.gain_interval is not None
    assert outcome.gain_interval[0] - 0.02 <= true_best / true_today - 1 <= outcome.gain_interval[1] + 0.02
    assert outcome.capacity_rps == pytest.approx(true_best, rel=0.05)
    assert outcome.replicas is not None
    assert outcome.replicas_today is not None
    assert 5000 / true_best <= outcome.replicas < outcome.replicas_today
    assert outcome.change["spec"]
    assert [step.number for step in outcome.steps] == [1, 2, 3, 4, 5, 6]


def test_front_falls_in_p99_with_the_rate() -> None:
    search, end, _ = run(law(0.3), configurations())
    front = result("m", search, end).front
    assert len(front) >= 2
    assert all(lower.rate_rps < higher.rate_rps and lower.p99_s < higher.p99_s for lower, higher in pairwise(front))


@pytest.mark.parametrize("sharing", [0.1, 1.0])
def test_best_settings_of_today_end_with_nothing_to_change(sharing: float) -> None:
    truth, known = law(sharing), configurations()
    best = known.today
    while truth.capacity(best, 0.4) < max(truth.capacity(configuration, 0.4) for configuration in known.configurations):
        best = max(known.configurations, key=lambda configuration: truth.capacity(configuration, 0.4))
        # Larger batches than twice today's aren't tried, so the configurations change with today's.
        known = configurations(best.max_batch, best.instances, best.delay_s)
    search, end, _ = run(truth, known)
    assert end.reason == "nothing to change"
    assert result("m", search, end).change == {}


def test_memory_that_ends_is_one_point_and_the_search_goes_on() -> None:
    truth, known = law(0.3, memory_batch=32), configurations()
    search, end, _ = run(truth, known)
    assert end.reason == "decided"
    winner = search.best()
    assert winner is not None
    best = max(truth.capacity(configuration, 0.4) for configuration in known.configurations)
    assert truth.capacity(winner, 0.4) >= 0.95 * best
    assert any("out of memory" in note for note in result("m", search, end).notes)


def test_late_client_is_a_note_of_the_result() -> None:
    search, end, _ = run(law(0.3), configurations())
    assert not any("late" in note for note in result("m", search, end).notes)
    at_rates = [number for number, point in enumerate(search.points) if isinstance(point.load, Rate)]
    late = {at_rates[0]: 0.05, at_rates[1]: 0.019}  # of an objective of 400 ms
    points = tuple(replace(point, late_p99_s=late.get(number, 0.0)) for number, point in enumerate(search.points))
    late_notes = [note for note in result("m", replace(search, points=points), end).notes if "late" in note]
    late_text = f"in 1 of {len(points)} measurements, the client sent requests late, 1 % of them by 50 ms or more. "
    assert [note.removeprefix(late_text) for note in late_notes] == [
        "This counts as latency, so the rates may be too low. A node with more free cores would avoid it"
    ]


@pytest.mark.parametrize(("number", "objective", "seed"), [(7, 1, 1), (35, 1, 1), (44, 0, 44)])
def test_winner_is_near_the_best_if_times_jump_and_gains_are_noisy(number: int, objective: int, seed: int) -> None:
    truth = drawn(number)
    objective_s = objectives(truth)[objective]
    known = configurations(objective_s=objective_s)
    search, _, trial = run(truth, known, objective_s=objective_s, noise=0.05, seed=seed)
    winner = search.best()
    assert winner is not None
    assert trial.points <= MAX_POINTS
    best = max(truth.capacity(configuration, objective_s) for configuration in known.configurations)
    assert truth.capacity(winner, objective_s) >= 0.92 * best


def test_times_of_step_four_replace_a_prediction_that_was_wrong() -> None:
    truth = drawn(35)
    objective_s = objectives(truth)[1]
    search, _, _ = run(truth, configurations(objective_s=objective_s), objective_s=objective_s)
    before, after = search.profile.times, search.times
    assert after is not None
    curve, measured = search.shape(Configuration(max_batch=8)), truth.seconds[1]
    assert isinstance(curve, Curve)
    assert curve.seconds(4) == pytest.approx(measured[4], rel=0.1)
    assert len(after.means((1, None))) + len(after.means((4, None))) > len(before.means((1, None))) + 1


def test_budget_ends_the_search_with_the_best_so_far() -> None:
    # Three rounds of step 5 are left, and too few for this noise.
    search, end, _ = run(law(0.3), configurations(), noise=0.3, budget=Budget(seconds=250))
    assert end.reason == "budget"
    assert "--budget" in end.why
    assert search.best() is not None
    assert search.seconds() <= 250


def test_end_names_the_budget_that_left_other_settings_unmeasured() -> None:
    _, unlimited, _ = run(law(0.3), configurations())
    assert unlimited.why == "nothing unmeasured can beat the best by more than its error"
    _, end, _ = run(law(0.3), configurations(), budget=Budget(points=15))
    assert end.reason == "decided"
    still = "other settings could be better still: the last 6 of 15 points compare the best with today's settings"
    assert end.why == still


@pytest.mark.parametrize("points", [17, 18])
def test_rounds_that_use_up_the_budget_decide(points: int) -> None:
    # The last point that the budget has is the last one of step 5.
    search, end, trial = run(law(0.3), configurations(), noise=0.002, budget=Budget(points=points))
    assert trial.points <= points
    assert end.reason == "decided"
    assert result("m", search, end).is_shown


def test_interrupt_gives_the_best_so_far() -> None:
    search, _, _ = run(law(0.3), configurations(), budget=Budget(seconds=250))
    stopped = search.interrupted()
    _, end = stopped.next()
    assert isinstance(end, End)
    assert end.reason == "interrupted"
    assert result("m", stopped, end).best is not None


def test_server_that_ends_three_times_ends_the_search() -> None:
    def ended(configuration: Configuration, load: Load) -> Point:
        return Point(configuration=configuration, load=load, seconds=5, failure="Ended", why="signal 11")

    search = Search.begin(configurations(), Criterion(predictor=Predictor(0.4)))
    for _ in range(3):
        search, request = search.next()
        assert isinstance(request, PointRequest)
        search = search.after(ended(request.configuration, request.load))
    _, end = search.next()
    assert isinstance(end, End)
    assert end.reason == "failed"
    assert "signal 11" in end.why


@pytest.mark.parametrize(
    ("scores", "reason", "text"),
    [
        (((TODAY, 0.0), (WINNER, 5.0)), "decided", "today's settings keep the objective at no rate"),
        (((TODAY, 5.0), (WINNER, 0.0)), "failed", "kept the objective once, and then no more"),
        (((TODAY, 5.0), (WINNER, None)), "failed", "kept the objective once, and then no more"),
        (((TODAY, None),), "undecided", "today's settings can't be compared: signal 11"),
        (
            ((TODAY, 5.0), (WINNER, 0.0), (WINNER, 5.0), (TODAY, 0.0)),
            "undecided",
            "in no round, both the best and today's settings kept",
        ),
    ],
)
def test_rounds_without_a_gain_decide_only_what_they_show(
    scores: Sequence[tuple[Configuration, float | None]], reason: str, text: str
) -> None:
    estimates = tuple(
        (configuration, None if score is None else Estimate(log_factor=0, error=0.03, score=score, capacity_rps=score))
        for configuration, score in scores
    )
    failed = Point(configuration=TODAY, load=Rate(rate_rps=1), seconds=5, failure="Ended", why="signal 11")
    search = replace(
        Search.begin(configurations(), Criterion(predictor=Predictor(0.4))),
        turns=Turns(today=TODAY, winner=WINNER, rounds=len(scores) // 2, scores=estimates),
        points=(failed,),
    )
    _, end = search.next()
    assert isinstance(end, End)
    assert (end.reason, text in end.why) == (reason, True)


def test_settings_that_kept_the_objective_in_one_round_alone_are_compared() -> None:
    def values(configuration: Configuration, _: float, /, *, is_hopeful: bool = False) -> tuple[float, float]:  # noqa: ARG001
        return (0.0, 0.0) if configuration == TODAY else (5.0, 5.0)

    today, winner = (Estimate(log_factor=0, error=0.03, score=score, capacity_rps=score) for score in (4.0, 5.0))
    known = configurations()
    search = replace(
        Search.begin(known, Criterion(predictor=Predictor(0.4))),
        verification=Verification(
            space=known,
            candidates=frozenset(),
            values=values,
            estimates={TODAY: (today,), WINNER: (winner,)},
        ),
        turns=Turns(today=TODAY, winner=WINNER, rounds=1, scores=((TODAY, today), (WINNER, winner))),
    )
    _, end = search.next()
    assert isinstance(end, End)
    assert (end.reason, "a gain of 25 %" in end.why) == ("undecided", True)


def test_objective_below_one_row_is_refused() -> None:
    with pytest.raises(TuneError, match=r"S\(1\)"):
        run(law(0.3), configurations(objective_s=0.015), objective_s=0.015)


def test_energy_without_power_is_refused() -> None:
    trial = SimulatedTrial(law(0.3), 0.01, seed=1)
    search = Search.begin(configurations(), Criterion(predictor=Predictor(0.4), minimise="energy"))
    request: PointRequest | End = End(reason="failed", why="")
    while not isinstance(request, PointRequest) or request.step < 4:
        search, request = search.next()
        assert isinstance(request, PointRequest)
        point = trial.measure(request.configuration, request.load)
        if request.step < 4:
            search = search.after(point)
    with pytest.raises(TuneError, match="power isn't measured"):
        search.after(point)


def test_energy_prefers_the_configuration_with_more_requests_per_joule() -> None:
    trial = SimulatedTrial(law(0.3), 0.01, seed=1)
    search = Search.begin(configurations(), Criterion(predictor=Predictor(0.4), minimise="energy"))
    while True:
        search, request = search.next()
        if isinstance(request, End):
            break
        point = trial.measure(request.configuration, request.load)
        search = search.after(replace(point, power_w=100.0 * request.configuration.instances**2))
    winner = search.best()
    assert winner is not None
    assert winner.instances == 1


def test_model_with_nothing_to_tune_is_refused_with_the_reasons() -> None:
    spec = parse("m", {"model": {"source": {"uri": "s3://models/m"}}})
    ensemble = space(spec, {"ensemble_scheduling": {}}, objective_s=0.4)
    with pytest.raises(TuneError, match=r"no field of this model can be tuned.*ensemble"):
        Search.begin(ensemble, Criterion(predictor=Predictor(0.4)))


def padded_law(size: int) -> Law:
    """A law whose batches are padded to a multiple of a size, so that a row beyond it costs a whole further one."""
    alone = 0.001 + 0.04 * np.ceil(ROWS / size)
    return Law("padded", {count: alone * count for count in (1, 2, 4, 8)})


def test_preferred_sizes_are_measured_if_times_jump() -> None:
    search, end, _ = run(padded_law(12), configurations(16, objective_s=0.5), objective_s=0.5)
    tried = {point.configuration.preferred for point in search.points}
    assert any(12 in sizes for sizes in tried), tried
    assert "batching.preferredBatchSizes" not in {
        excluded.field for excluded in result("m", search, end).space.left_out
    }


def test_preferred_sizes_are_left_out_if_times_rise_evenly() -> None:
    search, end, _ = run(law(0.3), configurations())
    assert {point.configuration.preferred for point in search.points} == {()}
    reasons = {excluded.field: excluded.why for excluded in result("m", search, end).space.left_out}
    assert "no size is worth a preference" in reasons["batching.preferredBatchSizes"]


def test_longer_budget_has_more_points_and_rounds() -> None:
    assert (Budget.of(600).points, Budget.of(600).rounds) == (MAX_POINTS, 5)
    assert (Budget.of(1200).points, Budget.of(1200).rounds) == (2 * MAX_POINTS, 10)
    assert Budget.of(60).points == MAX_POINTS
