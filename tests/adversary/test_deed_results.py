"""Results of the adversaries' deeds: which are kept, and which deeds are measured next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hold.deed_results import DeedResult, load, remaining, save

if TYPE_CHECKING:
    from pathlib import Path

DEEDS = ("a", "b", "c", "d")
KNOWN = {
    "a": DeedResult(60.0, "now", "1", "2026-11-29", {"restarts": 0}),
    "b": DeedResult(60.0, "before", "0", "2026-11-28", {"restarts": 0}),
    "c": DeedResult(8.0, "now", "1", "2026-11-29", {"restarts": 0}),
}


def test_results_of_deeds_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert load("clients", tmp_path) == {}
    save("clients", KNOWN, tmp_path)
    assert load("clients", tmp_path) == KNOWN
    assert len((tmp_path / "clients.json").read_text().splitlines()) == len(KNOWN) + 2


def test_deeds_without_a_result_are_measured_before_those_of_other_code() -> None:
    assert remaining(DEEDS, KNOWN, code="now", seconds=60.0) == ["d", "b", "c"]
    assert remaining(DEEDS, KNOWN, code="now", seconds=8.0) == ["d", "b"]
    assert remaining(DEEDS, KNOWN, code="now", seconds=60.0, again=True)[-1] == "a"
