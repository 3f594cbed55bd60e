"""The page of findings: what its lines name exists, features that are left out have a page, and open lines have a reason."""

from __future__ import annotations

from benchmarks.adoption.first_hour import Finding, findings, row
from benchmarks.quality.rows import holds


def test_tests_pages_and_words_that_close_a_finding_exist() -> None:
    known = findings()
    assert len(known) > 100
    assert {finding.finding: finding.missing() for finding in known if finding.missing()} == {}


def test_a_line_without_its_evidence_is_noticed() -> None:
    missing = ["tests/none.py::test_none", "README.md::test_none", "docs/none.md", 'README.md has "no such words"']
    assert Finding("f", "closed", evidence="README.md; " + "; ".join(missing)).missing() == missing


def test_a_feature_that_is_left_out_needs_words_of_a_page() -> None:
    words = 'docs/limits.md has "## What Halcyon leaves out, and what to use instead"'
    assert Finding("f", "left out", words).missing() == []
    for evidence in (
        "docs/limits.md",
        "tests/unit/test_first_hour.py::test_none",
        'docs/limits.md has "no such words"',
    ):
        assert Finding("f", "left out", evidence).missing() == [evidence]


def test_the_row_counts_left_out_features_apart_from_closed_findings() -> None:
    closed, reason = Finding("a", "closed", "README.md"), Finding("c", "open", "an owner is needed for it")
    left_out = Finding("b", "left out", 'docs/limits.md has "## What Halcyon leaves out"')
    answered = row([closed, left_out])
    assert list(answered.value.values()) == [1, 1, 0, 0]
    assert (holds(answered), holds(row([closed, left_out, reason]))) == (True, False)
    assert not holds(row([closed, Finding("b", "left out", "README.md")]))


def test_findings_stand_once_and_open_ones_have_a_reason() -> None:
    names = [finding.finding for finding in findings()]
    assert len(names) == len(set(names))
    assert all(len(finding.evidence.split()) > 3 for finding in findings() if finding.state == "open")
