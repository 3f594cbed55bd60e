"""Comparisons of results: differences over rounds, conditions, what can't be compared, and the leaderboard."""

from __future__ import annotations

import numpy as np
import pytest

from halcyon_measure.compare import difference, likeness, section
from halcyon_measure.compare.bound import Condition, is_passed
from halcyon_measure.errors import SettingError
from halcyon_measure.results import summary, text
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure
from tests.bench_documents import answers
from tests.bench_documents import bench_document as document


def with_latency(seed: int, factor: float, noise: float = 0.01) -> BenchDocument:
    """Return a result whose latencies are those of `document` times a factor with noise."""
    base = document()
    scale = factor * float(np.exp(np.random.default_rng(seed).normal(0, noise)))
    figures = {name: _scaled(getattr(base.latency, name), scale) for name in type(base.latency).model_fields}
    return base.model_copy(update={"latency": base.latency.model_copy(update=figures)})


def _scaled(figure: Figure, factor: float) -> Figure:
    return figure.model_copy(update={"value": None if figure.value is None else figure.value * factor})


def rounds(factor: float, seed: int, count: int = 6) -> list[BenchDocument]:
    return [with_latency(seed + number, factor) for number in range(count)]


def change(figure: str, differences: tuple[difference.Difference, ...]) -> difference.Difference:
    return next(item for item in differences if item.figure == figure)


def test_five_percent_slower_is_shown_with_its_interval() -> None:
    p50 = change("p50", difference.of_rounds(rounds(1.0, 1), rounds(1.05, 100)))
    assert p50.result == "higher"
    assert p50.change.interval is not None
    assert p50.change.interval[0] < 0.05 < p50.change.interval[1]


def test_equal_servers_show_no_difference() -> None:
    comparison = section.build(("a", rounds(1.0, 1)), ("b", rounds(1.0, 200)), in_turns=True)
    assert change("p50", comparison.differences).result == difference.NO_DIFFERENCE
    assert "no difference shown" in comparison.sentence
    assert comparison.order == "ABBAABBAABBA"


def test_two_rounds_have_no_interval_and_say_so() -> None:
    p50 = change("p50", difference.of_rounds(rounds(1.0, 1, 2), rounds(1.2, 9, 2)))
    assert (p50.change.interval, p50.result) == (None, "not known")
    assert p50.change.reason == "fewer than 3 rounds, so there is no interval"


def test_a_condition_fails_if_the_whole_interval_is_beyond_it() -> None:
    differences = difference.of_rounds(rounds(1.0, 1), rounds(1.2, 100))
    assert Condition.parse("p50 > +10%").judge(differences).failed
    assert not Condition.parse("p50 > +25%").judge(differences).failed
    assert not Condition.parse("p50 < -1%").judge(differences).failed
    assert not Condition.parse("capacity < -1%").judge(differences).failed


@pytest.mark.parametrize("text", ["p99", "p99 > 5", "p99 >= +5%", "p98 > +5%", "> +5%"])
def test_invalid_conditions_have_an_example_or_the_figures(text: str) -> None:
    with pytest.raises(SettingError, match=r"for example 'p99 > \+5%'|there are capacity"):
        Condition.parse(text)


def unanswered() -> BenchDocument:
    """Return the result of a server that has rejected each request."""
    return document(failures=10**6)


def test_a_round_without_answers_is_not_left_out_of_a_comparison() -> None:
    candidate = [*rounds(1.0, 100, 4), unanswered(), unanswered()]
    comparison = section.build(("a", rounds(1.0, 1)), ("b", candidate), in_turns=True)
    p99, throughput = change("p99", comparison.differences), change("throughput", comparison.differences)
    assert p99.change.value is None
    assert p99.change.reason == "in 2 of 6 rounds, no request was answered"
    assert throughput.change.reason == "in 2 of 6 rounds, the figure is 0"
    assert throughput.candidate.value == pytest.approx(throughput.baseline.value * 4 / 6, rel=0.01)
    assert comparison.sentence == "b against a: nothing could be compared."


def test_a_condition_on_a_failed_server_is_not_passed() -> None:
    conditions = [Condition.parse("throughput < -5%"), Condition.parse("p50 > +5%")]
    candidate = [unanswered() for _ in range(6)]
    comparison = section.build(("a", rounds(1.0, 1)), ("b", candidate), in_turns=True, conditions=conditions)
    assert comparison.undecided == comparison.bounds
    assert not is_passed(comparison)
    page = text.page(document().model_copy(update={"comparison": comparison}))
    assert "throughput < -5%: NOT DECIDED; throughput wasn't compared: in 6 of 6 rounds, the" in page


def test_a_condition_without_an_interval_is_not_passed() -> None:
    condition = Condition.parse("p50 > +5%")
    two, three = (
        section.build(("a", rounds(1.0, 1, n)), ("b", rounds(1.0, 9, n)), in_turns=True, conditions=[condition])
        for n in (2, 3)
    )
    assert (is_passed(two), is_passed(three)) == (False, True)


@pytest.mark.parametrize(
    "changed",
    [{"think_s": 0.5}, {"on_s": 5.0, "off_s": 20.0}, {"kind": "offline", "requests": 100}, {"kind": "ramp"}],
)
def test_loads_that_differ_in_any_part_are_unlike(changed: dict[str, object]) -> None:
    base = {"kind": "burst", "on_s": 5.0, "off_s": 5.0, "think_s": None, "requests": None} | {
        "kind": changed.get("kind", "burst")
    }
    scenario = document().scenario
    first = scenario.model_copy(update=base | {"duration_s": 10.0})
    second = scenario.model_copy(update=base | changed | {"duration_s": 60.0})
    baseline, candidate = (document().model_copy(update={"scenario": load}) for load in (first, second))
    assert [line.partition(":")[0] for line in likeness.unlike(baseline, candidate)] == ["load"]
    assert likeness.unlike(baseline, baseline) == ()


def test_long_names_of_a_leaderboard_are_shown_whole() -> None:
    names = ["http://models-a.example.com:8000#digits", "http://models-b.example.com:8000#digits", "digits"]
    board = section.leaderboard([(name, with_capacity(50 + n, 1)) for n, name in enumerate(names)])
    lines = text.page(document().model_copy(update={"comparison": board})).splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in names)
    assert max(map(len, lines)) <= 80


def test_results_of_another_load_are_refused_by_name() -> None:
    baseline, candidate = document(), document(rate_rps=50.0)
    assert any(line.startswith("load: ") for line in likeness.unlike(baseline, candidate))
    with pytest.raises(SettingError, match=r"differ in load: .*--anyway"):
        section.build(("a", [baseline]), ("b", [candidate]), in_turns=False)
    assert section.build(("a", [baseline]), ("b", [candidate]), in_turns=False, anyway=True).unlike


def test_one_run_each_has_the_interval_of_the_runs() -> None:
    p50 = change("p50", difference.of_results(document(seed=1), document(seed=2)))
    assert p50.change.interval is not None
    assert "day to day" in p50.change.source


def test_a_leaderboard_has_reasons_for_what_is_missing() -> None:
    board = section.leaderboard([("a", document()), ("b", document(seed=2))])
    page = text.page(document().model_copy(update={"comparison": board}))
    assert "accuracy: no expected outputs are given; for example --expect" in page
    assert [row.name for row in board.leaderboard] == ["a", "b"]


def test_a_leaderboard_is_at_one_objective() -> None:
    with pytest.raises(SettingError, match="at one objective"):
        section.leaderboard([("a", document(objective_s=0.1)), ("b", document(objective_s=0.2))])


def with_capacity(rate: float, reach: float) -> BenchDocument:
    """Return a result with a capacity and its interval."""
    capacity = answers()["capacity"]
    rate_figure = capacity.rate.model_copy(update={"value": rate, "interval": (rate - reach, rate + reach)})
    return document().model_copy(update={"capacity": capacity.model_copy(update={"rate": rate_figure})})


def test_a_leaderboard_says_how_far_the_best_is_ahead() -> None:
    board = section.leaderboard([("slow", with_capacity(50, 1)), ("fast", with_capacity(60, 1))], in_turns=True)
    assert board.sentence.startswith("fast takes most: 60 requests/s, of 2, with ")
    assert "; 20.0% more than slow [+16" in board.sentence
    assert board.order == "a run of each in turn"
    near = section.leaderboard([("a", with_capacity(50, 2)), ("b", with_capacity(50.5, 2))])
    assert "; no difference shown to a [-" in near.sentence
    assert near.order == ""


def test_a_leaderboard_has_the_accuracy_of_expected_answers() -> None:
    exact = summary.accuracy(document().requests.model_copy(update={"answered": 90, "wrong": 10}))
    board = section.leaderboard([("a", document().model_copy(update={"accuracy": exact})), ("b", document())])
    first, second = board.leaderboard
    assert first.accuracy.value == 0.9
    assert first.accuracy.interval == (pytest.approx(0.826, abs=0.001), pytest.approx(0.945, abs=0.001))
    assert second.accuracy.value is None


def test_accuracy_of_no_answer_is_not_measured() -> None:
    accuracy = summary.accuracy(document().requests.model_copy(update={"answered": 0, "wrong": 0}))
    assert (accuracy.value, accuracy.reason) == (None, "no request was answered")
