"""Batches on the page of a model: their order, their figures, and what is unknown."""

from __future__ import annotations

from typing import Any

from halcyon.dashboard.batches import MAX_BATCHES, batches


def batch(name: str, created: str, reason: str = "Running", model: str = "digits", **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Complete", "status": "False", "reason": reason, "message": f"{name} {reason}"}]
    if reason == "Failed":
        conditions.insert(
            0, {"type": "Failed", "status": "True", "reason": "OutputFull", "message": "no space is left"}
        )
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"modelDeployment": model},
        "status": {"conditions": conditions, **status},
    }


def test_batches_of_the_model_that_have_not_ended_come_first() -> None:
    stored = [
        batch("old", "2026-01-01T00:00:00Z"),
        batch("ended", "2026-01-03T00:00:00Z", "Completed"),
        batch("other", "2026-01-04T00:00:00Z", model="letters"),
        batch("new", "2026-01-02T00:00:00Z", "Waiting"),
    ]
    assert [entry["name"] for entry in batches(stored, "digits")] == ["new", "old", "ended"]
    many = [batch(f"b{n}", "2026-01-01T00:00:00Z") for n in range(MAX_BATCHES + 1)]
    assert len(batches(many, "digits")) == MAX_BATCHES


def test_a_batch_shows_its_figures_and_why_it_is_late() -> None:
    running = batch("night", "t", rows={"total": 100, "done": 40, "failed": 2}, rate="50", eta="2026-01-01T01:00:00Z")
    running["status"]["conditions"].append({"type": "OnTime", "status": "False", "message": "after spec.deadline"})
    assert batches([running], "digits") == [
        {
            "name": "night", "created": "t", "state": "Running", "message": "night Running", "late": "after spec.deadline",
            "total": 100, "done": 40, "failed": 2, "rate": "50", "eta": "2026-01-01T01:00:00Z", "completed": None,
        }
    ]  # fmt: skip


def test_a_failed_batch_shows_the_reason_and_a_new_one_no_figures() -> None:
    failed, new = batches(
        [batch("a", "1", "Failed"), {"metadata": {"name": "b"}, "spec": {"modelDeployment": "digits"}}], "digits"
    )[::-1]
    assert (failed["state"], failed["message"]) == ("Failed", "no space is left")
    assert (new["state"], new["done"], new["total"], new["eta"]) == ("Pending", None, None, None)


def test_a_batch_with_an_invalid_spec_has_ended() -> None:
    invalid = batch("a", "2", "Invalid")
    invalid["status"]["conditions"].insert(0, invalid["status"]["conditions"][0] | {"type": "Failed", "status": "True"})
    shown = batches([invalid, batch("b", "1")], "digits")
    assert [(entry["name"], entry["state"]) for entry in shown] == [("b", "Running"), ("a", "Failed")]
