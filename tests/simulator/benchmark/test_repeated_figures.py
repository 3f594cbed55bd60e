"""Figures that pages repeat from the benchmarks' pages, which are written by each run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.adversary.client.deeds import DEEDS as OF_A_CLIENT
from tests.adversary.tenant.wire_deeds import DEEDS as OF_A_TENANT
from tests.hostile import ROWS as HOSTILE

DOCS = Path(__file__).parents[3] / "docs"
BENCHMARKS = DOCS / "benchmarks"
POLICIES = {
    "Halcyon, as installed": "halcyon+balancer",
    "Halcyon's planner alone, behind a balancer that queues every request, as the peers' does": "halcyon",
    "Knative's KPA": "kpa",
    "KEDA, an HPA": "keda",
    "KubeAI": "kubeai",
    "Ray Serve": "ray",
    "KServe, Standard mode": "kserve",
    "AIBrix (APA)": "aibrix",
    "Cortex": "cortex",
    "Triton's chart on premises": "triton-onprem",
}
"""Policy of the simulator in each row of the comparison."""


def rows(page: Path, head: str) -> list[list[str]]:
    """Return the cells of the rows of each table whose first row begins so."""
    matching: list[list[str]] = []
    is_table = False
    for line in page.read_text().splitlines():
        cells = [cell.strip(" `*") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_table = False
        elif line.startswith(f"| {head} |"):
            is_table = True
        elif is_table and not line.startswith("|-") and not line.startswith("| -"):
            matching.append(cells)
    return matching


def test_simulated_figures_of_the_comparison_are_those_of_the_benchmark() -> None:
    simulated = rows(DOCS / "comparison.md", "autoscaler | S1, a step")
    assert [row[0] for row in simulated] == [*POLICIES]
    tables = rows(BENCHMARKS / "scaling.md", "policy | S1 | S2 | S3")
    # The first table is that of law L1 and starts of 60 s.
    of = {row[0]: [cell.replace(" %", "%") for cell in row[1:4]] for row in reversed(tables)}
    differing = {row[0]: (row[1:], of[POLICIES[row[0]]]) for row in simulated if row[1:] != of[POLICIES[row[0]]]}
    assert differing == {}


def test_verdicts_of_the_comparison_are_those_of_the_benchmark() -> None:
    here = [row[1:] for row in rows(DOCS / "comparison.md", "| Halcyon as installed")]
    verdicts = {row[0]: row[1:5] for row in rows(BENCHMARKS / "scaling.md", "verdicts on")}
    benchmarked = zip(verdicts["Halcyon as installed"], verdicts["the planner alone"], strict=True)
    assert here == [list(pair) for pair in benchmarked]


def test_measured_figures_of_the_comparison_are_those_of_the_reaction() -> None:
    runs = rows(BENCHMARKS / "reaction.md", "run | actuator | late, %")
    violations = {row[0]: f"{float(row[4]):.2f}" for row in runs}
    steps = {
        "Halcyon": "Planner, step",
        "Halcyon, `minReplicas: 2`": "Planner, minReplicas 2, step",
        "KEDA 2.21, an HPA at its 15 s": "KEDA 2.21 by requests in flight, step",
    }
    for name, step, _, bursts in rows(DOCS / "comparison.md", "autoscaler | a step, three seeds"):
        run = steps[name.replace("minReplicas: 2", "minReplicas: 2`") if name.endswith("2") else name]
        expected = [violations[f"{run}, seed {seed}"] for seed in (1, 2, 3)]
        assert step.partition("%")[0].split(", ") == expected
        assert bursts.partition("%")[0] == violations[run.replace("step", "bursts, seed 1")]


def test_memory_in_the_installation_guide_is_that_of_the_benchmark() -> None:
    guide = rows(DOCS / "guides" / "install.md", "models | under load")
    sizes = {
        row[0]: (round(float(row[3])), round(float(row[4])))
        for row in rows(BENCHMARKS / "size.md", "models | served after, s")
    }
    assert {row[0]: tuple(int(cell.removesuffix(" MiB")) for cell in row[1:3]) for row in guide} == sizes
    (constant, each) = next(
        row[1:3] for row in rows(BENCHMARKS / "size.md", "figure") if row[0] == "memory under load, MiB"
    )
    shown = f"{float(constant):.0f} MiB plus {float(each) * 1024 / 1000:.0f} KiB for each model"
    assert shown in (DOCS / "guides" / "install.md").read_text()


def test_changes_of_direction_are_at_most_those_of_the_benchmark() -> None:
    listed = rows(BENCHMARKS / "scaling.md", "scenario | law | start, s | planner alone")
    scenario, *_, most = max(((row[0], float(row[4])) for row in listed), key=lambda row: row[1])
    text = " ".join((BENCHMARKS / "figures.md").read_text().split())
    assert f"at most {most:.0f} times per hour. The maximum occurs in a replay of recorded bursts ({scenario})" in text
    assert f"at most {most:.0f} times per hour, for all reasons" in " ".join((DOCS / "planner.md").read_text().split())


def test_spare_replica_of_the_figures_is_that_of_the_reaction() -> None:
    runs = {row[0]: row for row in rows(BENCHMARKS / "reaction.md", "run | actuator | late, %")}
    before, after = runs["Planner, bursts, seed 1"], runs["Planner, minReplicas 2, bursts, seed 1"]
    text = " ".join((BENCHMARKS / "figures.md").read_text().split())
    more = 100 * (float(after[5]) / float(before[5]) - 1)
    assert re.search(rf"from {before[4]}% to {after[4]}%, and increased the pod time by {more:.0f}%", text)


def test_attacks_on_their_page_are_as_many_as_the_tests_have() -> None:
    shown = f"{len(OF_A_TENANT)} attacks of a tenant over the wire, and {len(OF_A_CLIENT)} of a client of one model"
    page = (DOCS / "security-tests.md").read_text()
    assert shown in page
    specs = [attempt for row in HOSTILE for attempt in row.attempts]
    assert f"| {len(HOSTILE)} kinds of hostile input x" in page
    assert f"{len(specs)} specs, each as" in page
    assert f"and {sum(bool(row.deed) for row in HOSTILE)} actions" in page
    assert f"| for {sum(bool(row.beside) for row in HOSTILE)} of these kinds of input:" in page
