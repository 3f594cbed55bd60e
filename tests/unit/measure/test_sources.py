"""The page of claims: each once, with a state, and what it names exists."""

from __future__ import annotations

import re

from benchmarks.adoption.first_hour import Finding
from benchmarks.quality.rows import ROOT

PAGE = ROOT / "docs" / "quality" / "sources.md"
LINE = re.compile(r"^\| (\d+) \| (.+?) \| (yes|limits|later|n/a) \| (.+) \|$", re.MULTILINE)


def rows() -> list[tuple[int, str, str, str]]:
    return [(int(number), claim, state, evidence) for number, claim, state, evidence in LINE.findall(PAGE.read_text())]


def test_each_claim_stands_once() -> None:
    assert [number for number, *_ in rows()] == list(range(1, 119))
    assert len({claim for _, claim, *_ in rows()}) == 118


def test_evidence_of_what_a_user_can_do_exists() -> None:
    missing = {
        number: Finding(claim, "closed" if state == "yes" or ' has "' in evidence else "open", evidence).missing()
        for number, claim, state, evidence in rows()
    }
    assert {number: absent for number, absent in missing.items() if absent} == {}


def test_claims_that_are_not_met_have_a_reason() -> None:
    assert [
        number for number, _, state, evidence in rows() if state == "later" and not evidence.startswith("later: ")
    ] == []
    assert all(len(evidence.split()) > 2 for _, _, state, evidence in rows() if state != "yes")
