"""Findings of scanners, and the reasons for which some are accepted. Pure."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

REASONS = Path(__file__).with_name("reasons.tsv")
_BAD_GRADE = 10
"""Grade from which kube-score's check has passed."""


@dataclass(frozen=True, order=True)
class Finding:
    """A check of a scanner that an object fails."""

    scanner: str
    check: str
    object: str
    """Kind and name, such as `Deployment/digits-a`."""
    text: str


@dataclass(frozen=True)
class Reason:
    """Reason why a check is not met by some objects."""

    scanner: str
    check: str
    objects: str
    """Pattern of `Finding.object` with `*`."""
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return True if the reason is for this finding."""
        return (self.scanner, self.check) == (finding.scanner, finding.check) and fnmatchcase(
            finding.object, self.objects
        )


def checkov_findings(text: str) -> list[Finding]:
    """Return the failed checks in checkov's JSON.

    Raises:
        ValueError: the text has no result of checked objects.
    """
    document = json.loads(text)
    if not document.get("results") or not document["summary"]["resource_count"]:
        raise ValueError(f"checkov has checked no object: {text[:200]}")
    findings = set()
    for check in document["results"]["failed_checks"]:
        # A resource is KIND.NAMESPACE.NAME; for a template of pods, labels follow.
        kind, _, qualified_name = check["resource"].partition(".")
        findings.add(
            Finding("checkov", check["check_id"], f"{kind}/{qualified_name.split('.')[1]}", check["check_name"])
        )
    return sorted(findings)


def kube_score_findings(text: str) -> list[Finding]:
    """Return the checks with a grade below OK in kube-score's JSON.

    Raises:
        ValueError: the text has no object.
    """
    objects = json.loads(text)
    if not objects:
        raise ValueError("kube-score has scored no object")
    findings = set()
    for scored in objects:
        name = f"{scored['type_meta']['kind']}/{scored['object_meta']['name']}"
        for check in scored["checks"]:
            if not check["skipped"] and check["grade"] < _BAD_GRADE:
                comments = "; ".join(sorted({comment["summary"] for comment in check["comments"] or ()}))
                findings.add(Finding("kube-score", check["check"]["id"], name, comments or check["check"]["name"]))
    return sorted(findings)


def reasons(path: Path = REASONS) -> list[Reason]:
    """Read the table of reasons."""
    with path.open() as file:
        return [Reason(**row) for row in csv.DictReader(file, delimiter="\t")]


def without_reason(findings: Iterable[Finding], reasons: Sequence[Reason]) -> list[Finding]:
    """Return the findings that no reason covers."""
    return [finding for finding in findings if not any(reason.covers(finding) for reason in reasons)]


def unused_reasons(findings: Sequence[Finding], reasons: Iterable[Reason]) -> list[Reason]:
    """Return the reasons that cover no finding, so they are out of date."""
    return [reason for reason in reasons if not any(reason.covers(finding) for finding in findings)]
