"""The ablation's runs, figures and section of the page."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from halcyon_simulator.benchmark import ablation, ablation_section, page
from halcyon_simulator.benchmark.ablation_section import PARTS, Ablation, Column, counts, existing_lines, write
from halcyon_simulator.benchmark.result_store import Store, digest
from halcyon_simulator.benchmark.statistics import Cell
from halcyon_simulator.benchmark.table import Effort, Table
from halcyon_simulator.policies.ablation import NEUTRAL
from halcyon_simulator.policies.registry import parsed

_PAGE = "# Title\n\n## Result\n\nrows\n\n## Pictures\n\n![one](one.svg)\n"


def _ablation(violations: float = 1.0) -> Ablation:
    unablated = Column({"S1": (1.0, 2.0, 3.0), "S2": (0.0, 1.0, 0.0)}, 0)
    without = Column({"S1": (violations, 1.5, 3.2), "S2": (0.5, 1.005, 2.0)}, 4)
    return Ablation(unablated, unablated, dict.fromkeys(PARTS, without))


@pytest.fixture
def _own_sigterm() -> Iterator[None]:
    """The command ends by SIGTERM in a way of its own; the tests after it don't."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_own_sigterm")
def test_the_command_writes_the_rows_and_the_section_and_resumes(tmp_path: Path) -> None:
    out, text = tmp_path / "bench", tmp_path / "scaling.md"
    text.write_text(_PAGE)
    chosen = ["--only", "S6-aibrix", "--seeds", "1", "--jobs", "1", "--out", str(out), "--page", str(text)]
    assert ablation.main(chosen) == 0
    rows = orjson.loads((out / "ablation.json").read_bytes())
    assert [row["without"] for row in rows] == [None, None, *PARTS]
    assert {row["policy"] for row in rows if row["without"] in {None, "rejections"}} == {"halcyon", "halcyon+balancer"}

    unablated, patience = rows[0], next(row for row in rows if row["without"] == "patience")
    assert unablated["gpu_ratio_clairvoyant"] != patience["gpu_ratio_clairvoyant"]
    change = patience["gpu_ratio_clairvoyant"] - unablated["gpu_ratio_clairvoyant"]
    listed = re.findall(r"^\| S6-aibrix \| (.*) \|$", text.read_text(), re.MULTILINE)[1].split(" | ")
    assert listed[0] == f"{unablated['gpu_ratio_clairvoyant']:.2f}"
    assert listed[7] == f"{change:+.2f}"

    files = {path: path.read_bytes() for path in (*(out / "cells").iterdir(), out / "ablation.json", text)}
    assert ablation.main(chosen) == 0
    assert {path: path.read_bytes() for path in files} == files


def test_the_whole_planners_runs_are_those_of_the_table(tmp_path: Path) -> None:
    cell = Cell("S6-aibrix", "L1", 60.0)
    Table(Store(tmp_path), jobs=1, names=("halcyon",), seeds=lambda _: Effort(0, 1)).run((cell,))
    assert Store(tmp_path).find(cell, parsed("halcyon"), 1) is not None
    assert Store(tmp_path).find(cell, parsed("halcyon:without=hold"), 1) is None


def test_ablated_runs_depend_on_the_neutral_parts_and_the_others_do_not() -> None:
    assert digest("halcyon-without") != digest("halcyon")


def test_every_part_is_described() -> None:
    assert list(PARTS) == list(NEUTRAL)
    folder = Path(ablation_section.__file__).parents[3] / "operator" / "halcyon" / "scaling" / "planner"
    assert [
        part.module for part in PARTS.values() if not (folder / f"{part.module.replace('.', '/')}.py").exists()
    ] == []


def test_scenarios_are_counted_beyond_the_threshold() -> None:
    assert counts([0.2, 0.1, 0.0, -0.1, -0.3, 5.0], 0.1) == (2, 1, 3)


def test_the_summary_counts_scenarios_and_the_tables_show_changes(tmp_path: Path) -> None:
    path = tmp_path / "scaling.md"
    write(_ablation(0.5), path, seeds="3 for S1, S2")
    text = path.read_text()
    assert text.count("| 1 / 1 / 0; 0 | 0 / 1 / 1; -0.25 | 1 / 0 / 1; +1.1 | 4 (0) |") == len(PARTS)
    assert re.findall(r"^\| S1 \| 1\.00 \| -0\.50 \|.*\| 1\.00 \| -0\.50 \|$", text, re.MULTILINE)
    assert "(3 for S1, S2)" in text


def test_the_section_is_inserted_before_the_pictures_and_replaced_there(tmp_path: Path) -> None:
    path = tmp_path / "scaling.md"
    path.write_text(_PAGE)
    write(_ablation(), path, seeds="1")
    first = path.read_text()
    assert first.startswith("# Title\n\n## Result\n\nrows\n\n<!-- make bench-ablation: begin -->\n")
    assert first.endswith("<!-- make bench-ablation: end -->\n\n## Pictures\n\n![one](one.svg)\n")
    write(_ablation(), path, seeds="1")
    assert path.read_text() == first
    write(_ablation(9.0), path, seeds="1")
    assert path.read_text() != first
    assert "\n".join(existing_lines(path)) in path.read_text()


def test_the_table_keeps_the_section_of_its_page(tmp_path: Path) -> None:
    path = tmp_path / "scaling.md"
    page.write({}, {}, path)
    bare = path.read_text()
    assert existing_lines(path) == []
    write(_ablation(), path, seeds="1")
    with_section = path.read_text()
    assert with_section != bare
    page.write({}, {}, path)
    assert path.read_text() == with_section
