"""The page of the reliability goals: tests that exist, counts, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.hold.goals import GOALS, Bound, Count, Goal
from benchmarks.hold.reliability import NOT, PART, SHOWN, Results, judged, page
from benchmarks.quality.rows import PAGES
from tests.reliability.trials import Trial, Trials, load

ROOT = Path(__file__).parents[4]
GOAL = Goal("R-9", "a fault", "a bound", (Count("cases", 3, trials=("R-9",)),), ("FILE::TEST",))


def results(*trials: Trial) -> Results:
    return Results({"R-9": trials}, {"2.1": {"run": 5}})


def test_goals_are_r_1_to_r_26() -> None:
    assert [goal.id for goal in GOALS] == [f"R-{number}" for number in range(1, 27)]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.id)
def test_tests_of_a_goal_exist(goal: Goal) -> None:
    for test in goal.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not name or re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_a_goal_is_shown_when_its_count_is_reached_without_a_problem() -> None:
    assert judged(GOAL, results(Trial(), Trial(), Trial())) == (SHOWN, [])
    assert judged(GOAL, results(Trial(), Trial())) == (PART, ["2 of 3 cases"])
    assert judged(GOAL, results(Trial(), Trial(), Trial(["x"]))) == (PART, ["1 trials of cases have a problem"])
    assert judged(replace(GOAL, missing="a part"), results(*[Trial()] * 3)) == (PART, ["a part"])
    assert judged(replace(GOAL, tests=()), results())[0] == NOT


def test_figures_beyond_their_bound_are_named() -> None:
    goal = replace(GOAL, limits=(Bound("takeover_s", 15),))
    trials = [Trial(figures={"takeover_s": seconds}) for seconds in (9, 15, 16.5)]
    assert judged(goal, results(*trials)) == (PART, ["takeover_s is over 15 in 1 of 3, 16.5 at most"])
    assert judged(goal, results(*trials[:2], Trial())) == (SHOWN, [])


def test_counts_come_from_runs_trials_or_rows() -> None:
    for count in (Count("a", 5, per_run=5), Count("a", 5, row=("2.1", "run"))):
        assert judged(replace(GOAL, counts=(count,)), results()) == (SHOWN, [])
    several = Count("deletions", 26, trials=("R-9",), figure="deletions")
    assert judged(replace(GOAL, counts=(several,)), results(Trial(), Trial(figures={"deletions": 25})))[0] == SHOWN


@pytest.mark.parametrize("problem", ["divergences", "unrecovered", "silent", "other problems"])
def test_a_goal_with_problems_in_its_row_is_not_shown(problem: str) -> None:
    goal = replace(GOAL, counts=(Count("crash points", 5, row=("2.1", "run")),))
    rows = {"2.1": {"run": 5, problem: 2}}
    assert judged(goal, Results({}, rows)) == (PART, ["row 2.1 has 2 problems"])
    assert judged(goal, Results({}, {"2.1": {"run": 5, problem: 0}})) == (SHOWN, [])


def test_trials_are_written_and_read_again(tmp_path: Path) -> None:
    trials = Trials("R-9", {"10": Trial(kind="b"), "2": Trial(["p"], {"s": 1.5}, "a", "c")}, tmp_path)
    trials.save()
    assert load("R-9", tmp_path).trials == trials.trials
    assert [line[:4] for line in (tmp_path / "R-9.json").read_text().splitlines()[1:3]] == ['"2":', '"10"']


def test_page_has_each_goal_with_its_tests() -> None:
    text = (PAGES / "reliability.md").read_text()
    for line in page(GOALS, results()).splitlines():
        if line.startswith("| R-"):
            goal, fault, _, _, tests, *_ = line.strip("| ").split(" | ")
            assert f"| {goal} | {fault} |" in text, f"{goal} differs: python -m benchmarks.hold.reliability"
            assert f"| {tests} |" in text, f"{goal} differs: python -m benchmarks.hold.reliability"
