"""The page of findings: what its lines name exists, and open lines have a reason."""

from __future__ import annotations

from benchmarks.adoption.first_hour import Finding, findings


def test_tests_pages_and_words_that_close_a_finding_exist() -> None:
    found = findings()
    assert len(found) > 100
    assert {one.finding: one.missing() for one in found if one.missing()} == {}


def test_a_line_without_its_evidence_is_noticed() -> None:
    missing = ["tests/none.py::test_none", "README.md::test_none", "docs/none.md", 'README.md has "no such words"']
    assert Finding("f", is_closed=True, evidence="README.md; " + "; ".join(missing)).missing() == missing


def test_findings_stand_once_and_open_ones_have_a_reason() -> None:
    names = [one.finding for one in findings()]
    assert len(names) == len(set(names))
    assert all(len(one.evidence.split()) > 3 for one in findings() if not one.is_closed)
