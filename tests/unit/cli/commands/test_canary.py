"""`halcyon abort`: which revision it is said of."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.commands.canary import superseded_canary


def resource(phase: str, *results: str, **more: Any) -> dict[str, Any]:
    history = [{"revision": f"m-{number}", "result": result} for number, result in enumerate(results)]
    return {"status": {"rollout": {"phase": phase, "history": history, **more}}}


@pytest.mark.parametrize(
    ("found", "revision"),
    [
        (resource("Progressing", "Superseded", "Served"), "m-0"),
        (resource("Blocked", "Superseded"), "m-0"),
        (resource("Progressing", "Served", "Superseded"), None),
        (resource("Progressing"), None),
        (resource("Complete", "Superseded"), None),
        (resource("Progressing", "Superseded", canary={"step": 1}), None),
        ({}, None),
        ({"status": {"rollout": {"phase": "Progressing", "history": [{"result": "Superseded"}]}}}, None),
    ],
    ids=[
        "left, and the next is on its way",
        "left, and the next finds no room",
        "another was served since",
        "nothing has ended yet",
        "nothing is left of it",
        "another canary is under way: that one is meant",
        "no status",
        "no name",
    ],
)
def test_the_canary_that_the_spec_has_left(found: dict[str, Any], revision: str | None) -> None:
    assert superseded_canary(found) == revision
