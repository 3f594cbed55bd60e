"""The rows' file, quantiles, histograms, the page, and the comparison of two series of counts."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import page, parity
from benchmarks.cost import cpu_s, histogram_quantile, rss_mib
from benchmarks.rows import PARTS, Row, merged, quantile, read, write

NEEDED = {
    "models",
    "hpa_sync_s",
    "actuator",
    "step_to_scale_s",
    "cpu_cores",
    "rss_mib",
    "decision_us_p50",
    "decision_age_p99_s",
}


def row(part: str = "fleet", **fields: object) -> Row:
    return Row(**{"part": part, "what": "a run", "models": 200, "actuator": "HPA", **fields})  # type: ignore[arg-type]  # in few words


def test_a_part_that_is_run_again_replaces_its_rows_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "reaction.json"
    write("parity", [row("parity")], file)
    write("fleet", [row(models=200), row(models=1000)], file)
    write("fleet", [row(models=300)], file)
    assert [(entry["part"], entry["models"]) for entry in read(file)] == [("fleet", 300), ("parity", 200)]
    assert [entry.name for entry in file.parent.iterdir()] == ["reaction.json"]


def test_every_row_has_the_fields_that_are_read_by_machines(tmp_path: Path) -> None:
    file = tmp_path / "reaction.json"
    write("one", [row("one", step_to_scale_s=(1.0, 2.0, 3.0), figures={"not_raised": 1})], file)
    (entry,) = json.loads(file.read_text())
    assert entry.keys() >= NEEDED
    assert entry["step_to_scale_s"] == [1.0, 2.0, 3.0]
    assert (entry["step_to_scale_p50_s"], entry["step_to_scale_p99_s"], entry["not_raised"]) == (2.0, 3.0, 1)


@given(st.lists(st.sampled_from(PARTS), max_size=8))
def test_rows_stand_in_the_order_of_the_parts(parts: list[str]) -> None:
    known: list[dict[str, object]] = []
    for part in parts:
        known = merged(known, part, [row(part)])
    assert [entry["part"] for entry in known] == [part for part in PARTS if part in parts]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_one_of_the_values_with_enough_below_it(values: list[float], share: float) -> None:
    chosen = quantile(values, share)
    assert chosen in values
    assert sum(value <= chosen for value in values) >= share * len(values) - 1e-9


def test_of_few_values_the_99th_percentile_is_the_largest() -> None:
    assert quantile([3, 1, 2], 0.99) == 3
    assert quantile([], 0.5) is None


def buckets(**counts: float) -> dict[str, float]:
    bounds = {"a": "0.0001", "b": "0.001", "inf": "+Inf"}
    return {f'x_seconds_bucket{{le="{bounds[name]}"}}': count for name, count in counts.items()}


def test_a_histograms_quantile_is_of_what_came_between_two_scrapes() -> None:
    before, after = buckets(a=90, b=100, inf=100), buckets(a=95, b=110, inf=110)
    assert histogram_quantile(before, after, "x_seconds", 0.5) == pytest.approx(0.0001)
    assert histogram_quantile(before, after, "x_seconds", 0.75) == pytest.approx(0.00055)
    assert histogram_quantile({}, buckets(a=0, b=0, inf=4), "x_seconds", 0.5) == 0.001
    assert histogram_quantile(after, after, "x_seconds", 0.5) is None
    assert histogram_quantile({}, after, "other_seconds", 0.5) is None


def test_the_cost_of_this_process_can_be_read() -> None:
    before_s = cpu_s(os.getpid())
    sum(range(200_000))
    assert cpu_s(os.getpid()) >= before_s
    assert 10 < rss_mib(os.getpid()) < 10_000


def test_the_page_has_a_table_per_part_and_names_its_stand_ins() -> None:
    listed = [
        row("fleet", step_to_scale_s=(1.234,), cpu_cores=0.5, stand_ins=("pods are KWOK's",)).to_dict(),
        row("step", figures={"violations_pct": 7.5, "pod_seconds_ratio": 1.3, "counts": "60s:4"}).to_dict(),
    ]
    text = page.text(listed)
    assert "| a run | HPA | 1.234 | 1.234 | 1 | 0.5 |" in text
    assert "| a run | HPA | 7.5 | 1.3 | 60s:4 |" in text
    assert "This measurement differs from production:\n\n- Pods are KWOK's.\n" in text
    assert "The decision loop alone" not in text
    assert "None" not in text


def test_counts_within_the_window_of_each_other_agree_and_others_do_not() -> None:
    early = [(0.0, 1), (10.0, 2), (20.0, 3)]
    late = [(0.0, 1), (11.5, 2), (21.5, 3)]
    samples, agreed = parity.agreement(early, late, begin_s=0, end_s=30, window_s=2)
    assert agreed == samples > 100
    samples, agreed = parity.agreement(early, late, begin_s=0, end_s=30, window_s=1)
    assert agreed < samples
    stuck = [(0.0, 1), (10.0, 2)]
    samples, agreed = parity.agreement(early, stuck, begin_s=0, end_s=40, window_s=2)
    assert agreed / samples == pytest.approx(0.52, abs=0.05)


@given(st.integers(1, 40))
def test_the_rate_for_some_replicas_needs_exactly_these(count: int) -> None:
    per_replica = parity.rate_for(2) - parity.rate_for(1)
    assert (count - 1) * per_replica < parity.rate_for(count) < count * per_replica
