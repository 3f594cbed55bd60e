"""Batches of a model in the pages of other commands: one sentence for each that hasn't ended."""

from __future__ import annotations

from typing import Any

from halcyon_cli.commands.inference.batch import row
from halcyon_cli.kube.batches import failure, state, unended
from tests.unit.cli.commands.inference.test_batch import RUNNING


def waiting(name: str, reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "Complete", "status": "False", "reason": reason, "message": message}
    return {**RUNNING, "metadata": {"name": name}, "status": {"conditions": [condition]}}


def test_a_sentence_has_the_progress_or_the_reason() -> None:
    ended = [waiting("a", "Completed", "all rows have a result"), waiting("b", "Failed", "it has failed")]
    assert unended([RUNNING, waiting("late", "Waiting", "503: no server"), {"metadata": {"name": "new"}}, *ended]) == [
        (
            "Running",
            "batch night is Running, 405/1000 rows, 5 without a result, 50 rows/s, expected end 2026-11-24T16:10:00Z",
        ),
        ("Waiting", "batch late is Waiting: 503: no server"),
        ("Pending", "batch new is Pending"),
    ]


def test_an_invalid_batch_has_ended() -> None:
    invalid = waiting("night", "Invalid", "spec.rowsPerRequest is 0")
    invalid["status"]["conditions"].insert(0, invalid["status"]["conditions"][0] | {"type": "Failed", "status": "True"})
    assert unended([invalid]) == []
    assert (state(invalid), failure(invalid)) == (("Failed", "spec.rowsPerRequest is 0"), "Invalid")


def test_conditions_are_read_by_type_in_any_order() -> None:
    """Another client may add a condition, and the API server may keep the order of an earlier status."""
    complete = waiting("night", "Failed", "the batch has failed")["status"]["conditions"][0]
    failed = {"type": "Failed", "status": "True", "reason": "OutputFull", "message": "no space is left"}
    foreign = {"type": "Audited", "status": "True", "reason": "Signed", "message": "by the auditor"}
    for conditions in ([foreign, complete, failed], [failed, foreign, complete]):
        batch = RUNNING | {"status": {"conditions": conditions}}
        assert (state(batch), failure(batch)) == (("Failed", "no space is left"), "OutputFull")
        assert row(batch)[2] == "OutputFull"
    assert state(RUNNING | {"status": {"conditions": [foreign, *RUNNING["status"]["conditions"]]}})[0] == "Running"
    assert row(RUNNING | {"status": {"conditions": [foreign, *RUNNING["status"]["conditions"]]}})[2] == "Running"
