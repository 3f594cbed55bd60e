"""How the unit tests' files are divided among processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parts import divided, run

WEIGHT_BYTES = 55_000
"""Processes of pytest are started."""


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processes that are started here; loading them takes longer than the rest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_each_file_is_in_one_part_and_parts_are_equally_large(tmp_path: Path, parts: int) -> None:
    files = [tmp_path / f"test_{n}.py" for n in range(7)]
    for n, file in enumerate(files):
        file.write_text("#" * 10 * (n + 1))

    division = divided(files, parts)

    assert sorted(file for part in division for file in part) == files
    assert len(division) == min(parts, 7)
    sizes = [sum(file.stat().st_size for file in part) for part in division]
    assert max(sizes) - min(sizes) <= 70


def test_a_file_with_drawn_examples_outweighs_larger_ones(tmp_path: Path) -> None:
    files = [tmp_path / f"test_{n}.py" for n in range(3)]
    files[0].write_text("@given(x)")
    for file in files[1:]:
        file.write_text("#" * 4000)

    assert divided(files, 2) == [files[:1], files[1:]]


def test_a_failure_in_any_part_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_large.py").write_text("def test_large(): pass\n" + "#" * 100)
    (tmp_path / "test_small.py").write_text("def test_small(): assert len('small') == 6\n")

    assert run(tmp_path, ["-q"]) == 1

    output = capfd.readouterr().out
    assert "1 passed" in output
    assert "assert len('small') == 6" in output
    # Plain at first, and then with the values, of the failed test alone. The summary repeats the values if CI is set.
    assert output.count("1 failed") == 2
    assert len(re.findall(r"^E .*assert 5 == 6$", output, re.MULTILINE)) == 1


def test_a_part_that_is_killed_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_large.py").write_text("def test_large(): pass\n" + "#" * 100)
    (tmp_path / "test_small.py").write_text("import os\ndef test_small(): os.kill(os.getpid(), 9)\n")

    assert run(tmp_path, ["-q"]) == 1
