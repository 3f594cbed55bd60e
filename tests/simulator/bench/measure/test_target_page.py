"""docs/benchmarks/measure.md: the text of rows without wrong cases, and of targets without a row."""

from benchmarks.measure.page import SECTIONS, page
from benchmarks.measure.table import names_or_none

TARGETS = [target for _, section in SECTIONS for target in section]


def row(number: str, **value: object) -> dict[str, object]:
    """Return a recorded row that holds."""
    return {"id": number, "value": value, "why": "", "stand_ins": "none", "n": 1, "holds": True}


def test_row_without_wrong_cases_shows_none_in_place_of_unknown() -> None:
    [line] = [line for line in page([row("1.6", wrong=names_or_none([]))]).splitlines() if line.startswith("| 1.6 |")]
    assert "wrong none;" in line
    [line] = [line for line in page([row("1.6", wrong=names_or_none(["a", "b"]))]).splitlines() if "| 1.6 |" in line]
    assert "wrong ['a', 'b'];" in line


def test_page_counts_one_target_without_a_row_in_the_singular() -> None:
    rows = [row(target.id, s=1) for target in TARGETS]
    assert "and 1 has no figure yet." in page(rows[1:])
    assert "and 2 have no figure yet." in page(rows[2:])
