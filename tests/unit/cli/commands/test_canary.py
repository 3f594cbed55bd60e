"""`halcyon abort`: which revision it is said of."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.main import main
from halcyon_cli.commands import canary
from halcyon_cli.commands.canary import superseded_canary


def resource(phase: str, *results: str, **more: Any) -> dict[str, Any]:
    history = [{"revision": f"m-{number}", "result": result} for number, result in enumerate(results)]
    return {"status": {"rollout": {"phase": phase, "history": history, **more}}}


@pytest.mark.parametrize(
    ("document", "revision"),
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
def test_the_canary_that_the_spec_has_left(document: dict[str, Any], revision: str | None) -> None:
    assert superseded_canary(document) == revision


class Annotated:
    """A cluster with one model whose canary is at step 2, and the last annotations set on it."""

    def __init__(self, _: object) -> None:
        self.set: dict[str, str | None] = {}
        _CLUSTERS.append(self)

    def model(self, _: str) -> dict[str, Any]:
        rollout = {"phase": "Progressing", "canary": {"step": 2, "weight": 50, "paused": True}}
        return {"status": {"rollout": rollout, "revision": {"target": "m-2"}}}

    def annotate(self, name: str, annotations: dict[str, str | None]) -> dict[str, Any]:
        self.set = {key.partition("/")[2]: value for key, value in annotations.items()}
        return {"metadata": {"name": name}}


_CLUSTERS: list[Annotated] = []


@pytest.mark.parametrize(
    ("command", "annotations", "words"),
    [
        (["promote", "m"], {"promote": "m-2", "promote-step": None, "abort": None}, "it receives all requests"),
        (
            ["promote", "m", "--step"],
            {"promote": None, "promote-step": "m-2/2", "abort": None},
            "goes to the next step",
        ),
        (["abort", "m"], {"promote": None, "promote-step": None, "abort": "m-2"}, "the previous revision serves"),
    ],
)
def test_a_command_sets_its_annotation_and_removes_the_others(
    command: list[str],
    annotations: dict[str, str | None],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(canary, "Cluster", Annotated)

    assert main(command) == 0
    assert _CLUSTERS[-1].set == annotations
    assert words in capsys.readouterr().out


def test_an_annotation_of_an_earlier_rollout_is_removed_and_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str | None] = []

    class Left(Annotated):
        def model(self, _: str) -> dict[str, Any]:
            return super().model(_) | {"metadata": {"annotations": {"serving.halcyon.dev/promote": "m-2"}}}

        def annotate(self, name: str, annotations: dict[str, str | None]) -> dict[str, Any]:
            sent.append(annotations["serving.halcyon.dev/promote"])
            return super().annotate(name, annotations)

    monkeypatch.setattr(canary, "Cluster", Left)
    assert main(["promote", "m"]) == 0
    assert sent == [None, "m-2"]


def test_canary_without_a_step_in_its_status_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class WithoutStep(Annotated):
        def model(self, _: str) -> dict[str, Any]:
            return {"status": {"rollout": {"canary": {"weight": 5}}, "revision": {"target": "m-2"}}}

    monkeypatch.setattr(canary, "Cluster", WithoutStep)
    assert main(["promote", "m", "--step"]) == 2
    assert "status.rollout.canary of m has no step yet" in capsys.readouterr().err
