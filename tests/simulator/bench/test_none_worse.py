"""Comparison of two benchmarks with an earlier commit: which figures count, in which direction, and what is missing."""

from __future__ import annotations

from benchmarks.dataplane import ways
from benchmarks.right import concurrency


def content(share: float, ours_us: float) -> dict[str, object]:
    details = {"share_of_haproxy": share, "cpu_us_per_request": {ways.HALCYON: ours_us, ways.HAPROXY: 25.4}}
    return {"parts": {"throughput": {"details": details}}, "unequal_p99_ratio": 1.007, "goodput_at_3x": 1.048}


def test_figures_of_the_earlier_commit_are_as_good_as_themselves() -> None:
    assert concurrency.worst(concurrency.worse(concurrency.dataplane_figures(content(0.846, 34.1)))) == 1.0
    rows = [{"part": "fleet"}, {"part": "one", "step_to_scale_p50_s": 1.31, "step_to_scale_p99_s": 2.179}]
    assert concurrency.worst(concurrency.worse(concurrency.reaction_figures(rows))) == 1.0


def test_worst_figure_counts_in_its_own_direction() -> None:
    # Half of the throughput is twice as bad, and half of the CPU time is better.
    ratios = concurrency.worse(concurrency.dataplane_figures(content(0.423, 17.05)))
    assert (ratios["share_of_haproxy"], ratios["cpu_of_haproxy"]) == (2.0, 0.5)
    assert concurrency.worst(ratios) == 2.0


def test_comparison_is_unknown_if_a_figure_is_missing() -> None:
    assert concurrency.worst(concurrency.worse(concurrency.dataplane_figures({}))) is None
    assert concurrency.worst(concurrency.worse(concurrency.reaction_figures([]))) is None
