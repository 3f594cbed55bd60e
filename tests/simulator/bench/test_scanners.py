"""Findings of scanners: what is read from their output, and which reasons cover which findings."""

import json

import pytest

from benchmarks.hold.scanners.findings import (
    Finding,
    Reason,
    checkov_findings,
    kube_score_findings,
    reasons,
    unused_reasons,
    without_reason,
)

CPU = Finding("checkov", "CKV_K8S_11", "Deployment/digits-a", "CPU limits should be set")


def checkov(*failed: dict[str, str], count: int = 3) -> str:
    return json.dumps({"results": {"failed_checks": failed}, "summary": {"resource_count": count}})


def test_object_of_a_finding_is_its_kind_and_name() -> None:
    check = {"check_id": "CKV_K8S_11", "check_name": "CPU limits should be set"}
    pod = "Pod.default.digits-a.serving.halcyon.dev/slot-a"
    findings = checkov_findings(checkov(check | {"resource": "Deployment.default.digits-a"}, check | {"resource": pod}))
    assert findings == [CPU, Finding("checkov", "CKV_K8S_11", "Pod/digits-a", "CPU limits should be set")]


@pytest.mark.parametrize("text", [checkov(count=0), json.dumps({"passed": 0})])
def test_result_without_checked_objects_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="checkov has checked no object"):
        checkov_findings(text)


def test_grades_below_ok_are_findings_unless_skipped() -> None:
    def check(name: str, grade: int, *, skipped: bool = False) -> dict[str, object]:
        return {
            "check": {"id": name, "name": name}, "grade": grade, "skipped": skipped,
            "comments": [{"summary": "CPU limit is not set"}],
        }  # fmt: skip

    scored = {
        "type_meta": {"kind": "Deployment"},
        "object_meta": {"name": "halcyon"},
        "checks": [check("a", 10), check("b", 5), check("c", 1), check("d", 1, skipped=True)],
    }
    assert [finding.check for finding in kube_score_findings(json.dumps([scored]))] == ["b", "c"]
    with pytest.raises(ValueError, match="kube-score has scored no object"):
        kube_score_findings("[]")


def test_reason_covers_its_check_on_objects_of_its_pattern() -> None:
    covering = Reason("checkov", "CKV_K8S_11", "Deployment/*", "no throttling")
    others = [Reason("checkov", "CKV_K8S_11", "Pod/*", ""), Reason("kube-score", "CKV_K8S_11", "*", "")]
    assert without_reason([CPU], [covering]) == []
    assert without_reason([CPU], others) == [CPU]
    assert unused_reasons([CPU], [covering, *others]) == others


def test_every_reason_is_a_sentence() -> None:
    assert reasons()
    assert [entry for entry in reasons() if not entry.reason.endswith(".") or len(entry.reason.split()) < 3] == []
