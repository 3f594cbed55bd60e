import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_simulator.benchmark import page, scenarios, statistics
from halcyon_simulator.benchmark.budgeted import by_need, runs
from halcyon_simulator.benchmark.result_store import Store, StoredResult, digest, imported, sources
from halcyon_simulator.benchmark.scenarios import LAWS
from halcyon_simulator.benchmark.shared_budget import quota, simulate
from halcyon_simulator.benchmark.statistics import Cell, PolicyPoint
from halcyon_simulator.benchmark.table import Effort, Table, cells, effort, main, rows
from halcyon_simulator.engine.case import RunOutcome
from halcyon_simulator.policies.registry import parsed

_CELL = Cell("S6-aibrix", "L1", 60.0)
_ROW = {
    "scenario", "law", "start_delay_s", "policy", "params", "seeds", "violations_pct", "gpu_ratio_clairvoyant",
    "gpu_ratio_work", "direction_changes_per_h", "p99_ms",
}  # fmt: skip
_FIGURES = ("violations_pct", "gpu_ratio_clairvoyant", "gpu_ratio_work", "direction_changes_per_h", "p99_ms")
_OUTCOME = RunOutcome(
    scenario="S1",
    policy="kpa",
    params={},
    seed=1,
    requests=1000,
    violations_pct=5.0,
    refused_pct=0.0,
    p50_ms=400.0,
    p95_ms=500.0,
    p99_ms=600.0,
    gpu_seconds=3000.0,
    gpu_ratio_work=2.0,
    gpu_ratio_clairvoyant=1.5,
    direction_changes_per_h=4.0,
    overshoot=1.0,
    settling_s=None,
    pods_in_vain=0,
    reactive_floor_pct=4.0,
)


def _table(folder: Path) -> Table:
    return Table(Store(folder), jobs=1, names=("hpa", "triton-gke"), seeds=lambda _: Effort(1, 2))


def _point(policy: str, *figures: tuple[float, float]) -> PolicyPoint:
    outcomes = (
        replace(_OUTCOME, seed=seed, violations_pct=late, gpu_ratio_clairvoyant=gpu)
        for seed, (late, gpu) in enumerate(figures, start=1)
    )
    return PolicyPoint(policy, tuple(outcomes))


def test_a_table_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    first = _table(tmp_path).run((_CELL,))
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(files) == 2
    again = _table(tmp_path).run((_CELL,))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert again == first
    for path, content in files.items():
        path.write_bytes(content[: len(content) * 2 // 3])
    resumed = _table(tmp_path).run((_CELL,))
    assert resumed == first
    for path, content in files.items():
        assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())


def test_verdicts_use_at_least_the_seeds_of_the_planner(tmp_path: Path) -> None:
    """Two settings are the same on the grid's seed; the front has one of them, and the other one would decide by that seed alone."""
    store = Store(tmp_path)
    figures = {
        "halcyon": (1.0, 1.5),
        "hpa": (3.0, 3.0),
        "keda-http:target=10,metric=rate": (0.9, 1.4),
        "keda-http:target=10,metric=rate,window_s=15": (0.9, 1.4),
    }
    for policy, (late, gpu) in figures.items():
        for seed in (1,) if ":" in policy else (1, 2):
            outcome = replace(_OUTCOME, policy=policy, seed=seed, violations_pct=late, gpu_ratio_clairvoyant=gpu)
            store.add(_CELL, parsed(policy), seed, StoredResult(outcome, 0))
    table = Table(store, jobs=1, names=("halcyon", "hpa"), seeds=lambda _: Effort(1, 2))
    grid = [parsed(policy) for policy in figures if ":" in policy]
    compared = [parsed("halcyon"), parsed("hpa"), grid[0]]

    assert table._deciding(_CELL, compared, grid) == [grid[1]]
    assert table._deciding(_CELL, [*compared, grid[1]], grid) == []
    assert table._deciding(_CELL, compared[1:], grid) == []


@pytest.mark.parametrize(("effort", "seeds"), [(Effort(1, 2), [1, 2]), (Effort(1, 2, defaults=False), [1])], ids=str)
def test_inert_defaults_have_the_seeds_of_the_grid_if_configured(
    tmp_path: Path, effort: Effort, seeds: list[int]
) -> None:
    table = Table(Store(tmp_path), jobs=1, names=("hpa", "triton-gke"), seeds=lambda _: effort)
    defaults = [row for row in rows(table.run((_CELL,)), {}) if not row["params"]]
    assert [(row["policy"], row["seeds"]) for row in defaults] == [("hpa", seeds), ("triton-gke", seeds)]


def test_rows_and_the_page_have_what_was_run(tmp_path: Path) -> None:
    points = _table(tmp_path / "cells").run((_CELL,))
    written = rows(points, {})
    assert all(set(row) >= _ROW for row in written)
    defaults = {row["policy"]: row for row in written if not row["params"]}
    assert {name: row["seeds"] for name, row in defaults.items()} == {"hpa": [1, 2], "triton-gke": [1, 2]}
    orjson.dumps(written)
    page.write(points, {}, tmp_path / "docs" / "scaling.md")
    assert "## Where Halcyon is not on the front" in (tmp_path / "docs" / "scaling.md").read_text()


@pytest.fixture
def _own_sigterm() -> Iterator[None]:
    """The table's command ends by SIGTERM in a way of its own; the tests after it don't."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_own_sigterm")
def test_the_command_writes_the_rows_and_the_page_with_the_same_figures(tmp_path: Path) -> None:
    out, text = tmp_path / "bench", tmp_path / "docs" / "scaling.md"
    chosen = ["--only", "S6-aibrix", "--policy", "halcyon", "--policy", "triton-gke"]
    assert main([*chosen, "--jobs", "1", "--out", str(out), "--page", str(text)]) == 0
    written = orjson.loads((out / "scaling.json").read_bytes())
    assert all(set(row) >= _ROW for row in written)
    assert all(isinstance(row[figure], float) for row in written for figure in _FIGURES)
    assert {row["policy"] for row in written} == {"halcyon", "triton-gke"}
    assert {"target": "30", "window_s": "60"} in [row["params"] for row in written]

    own = {(row["law"], row["start_delay_s"]): row for row in written if row["policy"] == "halcyon"}
    assert set(own) == {("L1", 60), ("L1", 180), ("L2", 60)}
    listed = dict(re.findall(r"\| S6-aibrix \| (L. \| \d+) \| ([^|]* \| [^|]* \| \d+) \|", text.read_text()))
    for (law, delay_s), row in own.items():
        assert (row["scenario"], row["params"], row["seeds"]) == ("S6-aibrix", {}, list(range(1, 11)))
        figures = f"{row['violations_pct']:.2f} % at {row['gpu_ratio_clairvoyant']:.2f}"
        turns_and_p99 = f"{row['direction_changes_per_h']:.1f} | {row['p99_ms']:.0f}"
        assert listed[f"{law} | {delay_s:g}"] == f"{figures} | {turns_and_p99}"
        assert (text.parent / f"scaling-{law}-{delay_s:g}s.svg").exists()


def test_the_page_has_every_constant_of_the_planner_with_its_reason(tmp_path: Path) -> None:
    page.write({_CELL: [_point("halcyon", (5.0, 1.5)), _point("kpa", (5.0, 1.5))]}, {}, tmp_path / "scaling.md")
    _, _, constants = (tmp_path / "scaling.md").read_text().partition("## The planner's constants")
    lines = [line for line in constants.splitlines() if line.startswith("| `")]
    assert len(lines) > 100
    assert [line for line in lines if line.endswith("| - |")] == []
    assert [line for line in lines if "None" in line.split("|")[2]] == []


def test_the_page_compares_the_planner_alone_and_as_it_is_installed(tmp_path: Path) -> None:
    figures = [(5.0, 1.5), (5.2, 1.5), (4.8, 1.5)]
    points = {
        _CELL: [
            _point("halcyon", *((late + 1, gpu + 0.1) for late, gpu in figures)),
            _point("halcyon+balancer", *((late - 1, gpu - 0.1) for late, gpu in figures)),
            _point("kpa", *figures),
        ]
    }
    page.write(points, {}, tmp_path / "scaling.md")
    text = (tmp_path / "scaling.md").read_text()
    assert "| verdicts on | **win** | on the front | level | behind | rows of the next table |" in text
    assert "| the planner alone | 0 | 0 | 0 | 1 | 1 |" in text
    assert "| Halcyon as installed | 1 | 0 | 0 | 0 | 1 |" in text
    assert "| behind | 4.00 % at 1.40 | **win** |" in text


def test_the_table_covers_every_scenario_with_a_load() -> None:
    usual, full = cells(full=False), cells(full=True)
    assert set(usual) < set(full)
    for cell in full:
        scenarios.members(cell.scenario)
    assert {cell.family for cell in usual} == {
        "S1",
        "S2",
        "S3",
        "S3r",
        "S4",
        "S5",
        "S6",
        "S7",
        "S8",
        "S9",
        "S11",
        "S12",
    }
    assert {cell.start_s for cell in full} == {20, 60, 180, 420}
    # Each law in every scenario; what is too long for the usual table is in the full one.
    first, second = ({cell.scenario for cell in full if cell.law == law} for law in ("L1", "L2"))
    assert first == second
    assert first - {cell.scenario for cell in usual if cell.law == "L2"} == {"S4", "S5"}


def test_scenarios_of_days_have_three_seeds_and_no_grid() -> None:
    days = [cell for cell in cells(full=True) if cell.family == "S5"]
    assert {cell.law for cell in days} == set(LAWS)
    assert {(effort(cell).grid, effort(cell).compared) for cell in days} == {(0, 3)}
    assert effort(_CELL).compared == 10


def test_a_change_of_the_planner_is_none_for_the_peers() -> None:
    assert digest("kpa") == digest("hpa") != digest("halcyon")


def test_the_planners_digest_knows_what_the_planner_is_made_of() -> None:
    assert digest("halcyon") == digest("halcyon+balancer")
    # Not what else lies in halcyon.scaling: a run of hours isn't thrown away for it.
    assert "decision" not in {path.stem for path in imported()}
    assert {"plan", "queueing", "seasonality", "recurring_spikes", "gpu_budget"} <= {path.stem for path in imported()}


def test_results_of_peers_depend_on_all_code_of_the_hpa() -> None:
    assert {"hpa_controller", "algorithm", "behavior"} <= {path.stem for path in sources("kpa")}
    assert "plan" not in {path.stem for path in sources("kpa")}


def test_the_balancer_refuses_who_cant_be_served_in_time() -> None:
    # From 20 to 200 requests/s, and pods that take a minute: those who wait behind the backlog are all late.
    case = replace(scenarios.scenario("S1", law=LAWS["L1"], start_s=60, seed=1), duration_s=600.0)
    [waiting], [refusing] = runs((case,), parsed("halcyon")), runs((case,), parsed("halcyon+balancer"))
    late = [float((run.latency_s > case.slo_s).sum()) for run in (waiting, refusing)]
    assert np.isnan(waiting.latency_s).sum() == 0 < np.isnan(refusing.latency_s).sum()
    assert late[1] < 0.05 * late[0]
    assert np.isnan(refusing.latency_s).sum() + late[1] < late[0]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8), st.integers(0, 200))
def test_a_shared_budget_is_kept_without_shrinking_a_model_for_another(
    models: list[tuple[int, int]], free: int
) -> None:
    desired, present = [want for want, _ in models], [have for _, have in models]
    budget = sum(present) + free
    granted = by_need(desired, present, budget, 0)
    assert sum(granted) <= budget
    assert all(min(want, have) <= grant <= want for want, have, grant in zip(desired, present, granted, strict=True))


def test_a_win_is_no_worse_in_one_figure_and_better_in_another() -> None:
    peer = _point("kpa", (5.0, 1.5), (5.2, 1.6), (4.8, 1.55))
    better = _point("halcyon", (4.9, 1.2), (5.2, 1.31), (4.8, 1.22))
    assert statistics.beats(better, peer)
    assert not statistics.beats(peer, better)
    assert statistics.standing(better, [peer]) == "win"
    assert statistics.standing(peer, [better]) == "behind"


def test_a_difference_that_may_be_chance_is_no_win() -> None:
    peer = _point("kpa", (5.0, 1.5), (5.0, 1.5), (5.0, 1.5))
    mixed = _point("halcyon", (5.0, 1.2), (5.0, 1.7), (5.0, 1.45))
    assert not statistics.beats(mixed, peer)
    assert statistics.standing(mixed, [peer]) == "front"
    assert statistics.standing(peer, [mixed]) == "level"
    assert not statistics.beats(_point("halcyon", (1.0, 1.0)), _point("kpa", (2.0, 2.0)))


def test_the_interval_is_students() -> None:
    low, high = statistics.interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))


def test_the_front_has_the_cheapest_and_the_best() -> None:
    points = [_point("a", (5.0, 1.0)), _point("b", (3.0, 2.0)), _point("c", (4.0, 2.5)), _point("d", (5.0, 1.1))]
    assert [point.policy for point in statistics.front(points)] == ["a", "b"]


def test_a_setting_is_judged_over_all_cells_on_the_common_seed() -> None:
    everywhere = {
        Cell("S1", "L1", 60.0): [_point("hpa:target=2", (4.0, 1.0), (90.0, 9.0)), _point("kpa", (1.0, 1.0))],
        Cell("S2", "L1", 60.0): [_point("hpa:target=2", (8.0, 4.0)), PolicyPoint("kpa", ())],
    }
    assert statistics.overall(everywhere) == [statistics.Overall("hpa:target=2", 6.0, pytest.approx(2.0))]


def test_only_what_another_beats_by_far_in_both_is_given_up() -> None:
    points = [_point("a", (4.0, 1.0)), _point("b", (5.0, 1.2)), _point("c", (3.9, 9.0)), _point("d", (6.0, 1.4))]
    assert [point.policy for point in statistics.contenders(points, 0.3)] == ["a", "b", "c"]
    assert [point.policy for point in statistics.contenders(points, 0.1)] == ["a", "c"]


def test_only_what_may_become_the_nearest_or_better_has_a_say() -> None:
    own = _point("halcyon", (4.0, 1.0))
    others = [_point("a", (3.0, 1.5)), _point("b", (8.0, 0.9)), _point("c", (1.0, 2.4)), _point("d", (20.0, 0.5))]
    assert statistics.nearest(own, others).policy == "a"
    assert [rival.policy for rival in statistics.rivals(own, others, 0.0)] == ["a"]
    assert [rival.policy for rival in statistics.rivals(own, others, 0.4)] == ["a", "b"]
    # What is better than ours always has, however much nearer another is.
    better = [_point("e", (2.0, 0.5)), _point("f", (3.9, 0.9))]
    assert statistics.rivals(own, better, 0.0) == better
    assert statistics.rivals(own, [], 1.0) == []


def test_distant_points_of_the_front_stay_on_the_seeds_of_the_grid(tmp_path: Path) -> None:
    cell = replace(_CELL, scenario="S7-3m")

    def seeds(names: tuple[str, ...], folder: str) -> dict[str, int]:
        table = Table(Store(tmp_path / folder), jobs=1, names=names, seeds=lambda _: Effort(1, 3))
        return {point.policy: len(point.outcomes) for point in table.run((cell,))[cell]}

    alone, beside = (
        seeds(("keda-http", "triton-onprem"), "alone"),
        seeds(("halcyon", "keda-http", "triton-onprem"), "beside"),
    )
    assert set(beside) == {"halcyon", *alone}
    assert {beside[name] for name in ("halcyon", "keda-http", "triton-onprem")} == {3}
    fewer = {policy for policy in alone if beside[policy] < alone[policy]}
    assert fewer
    assert {beside[policy] for policy in fewer} == {1}
    assert {policy for policy in alone if ":" in policy and beside[policy] == 3}


def test_borrowed_settings_run_on_one_seed_and_the_best_on_all(tmp_path: Path) -> None:
    efforts = {"S7": Effort(0, 2)}
    table = Table(
        Store(tmp_path),
        jobs=1,
        names=("hpa",),
        seeds=lambda cell: efforts.get(cell.family, Effort(1, 2)),
        borrowed={"S7-3m": ("S6-aibrix",)},
    )
    borrower = replace(_CELL, scenario="S7-3m")
    results = table.run((_CELL, borrower))
    tried = {point.policy: len(point.outcomes) for point in results[borrower]}
    lent = {point.policy for point in results[_CELL] if len(point.outcomes) == 2}
    assert set(tried) == lent | {"hpa"}
    assert tried["hpa"] == 2
    assert {policy for policy, seeds in tried.items() if seeds == 2} >= {
        point.policy for point in statistics.front([PolicyPoint(p.policy, p.outcomes[:1]) for p in results[borrower]])
    }


def test_baselines_are_listed_and_no_more(tmp_path: Path) -> None:
    table = Table(Store(tmp_path), jobs=1, names=("hpa", "static"), seeds=lambda _: Effort(1, 4))
    tried = {point.policy: len(point.outcomes) for point in table.run((_CELL,))[_CELL]}
    assert {policy: seeds for policy, seeds in tried.items() if policy.startswith("static")} == {"static": 3}
    assert tried["hpa"] == 4


def test_outcomes_of_several_models_add_up() -> None:
    large = replace(_OUTCOME, requests=3000, violations_pct=1.0, gpu_seconds=1000.0, gpu_ratio_clairvoyant=1.0)
    both = statistics.together([_OUTCOME, large], scenario="S11")
    assert (both.scenario, both.requests, both.gpu_seconds) == ("S11", 4000, 4000.0)
    assert both.violations_pct == pytest.approx(2.0)
    assert both.gpu_ratio_clairvoyant == pytest.approx(4000 / 3000)


def test_a_quota_gives_falls_at_once_and_rises_while_there_is_room() -> None:
    assert quota([5, 5, 1], [2, 2, 4], 8, 0) == [5, 2, 1]
    assert quota([5, 5, 1], [2, 2, 4], 8, 1) == [2, 5, 1]
    assert quota([1, 1, 1], [2, 2, 4], 8, 0) == [1, 1, 1]


def test_models_on_one_budget_never_hold_more_than_it() -> None:
    cases = tuple(
        replace(scenarios.scenario(name, law=LAWS["L1"], start_s=20, seed=1), duration_s=900.0)
        for name in scenarios.members("S11")[:3]
    )
    runs = simulate(cases, parsed("hpa"), budget=14)
    assert max(sum(run.written[second] for run in runs) for second in range(900)) <= 14
    assert any(write.after > write.before for run in runs for write in run.writes)
    assert simulate(cases, parsed("hpa"), budget=14)[1].writes == runs[1].writes
