"""`halcyon refresh`: who is asked, what is said, and how long is waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from halcyon.main import main
from halcyon_cli.arguments.options import Output
from halcyon_cli.commands import refresh
from halcyon_cli.commands.refresh import OutdatedModel, State, rollout_state, wait
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import NoSuchModelError, Target


def model(
    *, target: str | None = "m-new", current: str | None = "m-new", phase: str = "Complete", **conditions: str
) -> dict[str, Any]:
    return {
        "status": {
            "revision": {key: value for key, value in (("target", target), ("current", current)) if value},
            "rollout": {"phase": phase},
            "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
        }
    }


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (model(), "served"),
        (model(target="m-old", current="m-old"), "waiting"),
        (model(target=None, current=None), "waiting"),
        (model(current="m-old", phase="Progressing"), "waiting"),
        (model(phase="Progressing"), "waiting"),
        (model(current="m-old", phase="RolledBack", Stalled="True"), "stalled"),
        ({}, "waiting"),
    ],
)
def test_a_model_is_served_once_its_new_rendering_is_all_there_is(document: dict[str, Any], state: State) -> None:
    assert rollout_state(document, "m-old") == state


class Clock:
    """Time that passes by waiting."""

    def __init__(self, states: Sequence[State]) -> None:
        self.now, self._states = 0.0, iter(states)

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def state(self) -> State:
        return next(self._states, "waiting")


@pytest.mark.parametrize(
    ("states", "end", "at"),
    [
        (["served"], "served", 0.0),
        (["waiting", "waiting", "served"], "served", 2.0),
        (["waiting", "stalled"], "stalled", 1.0),
        ([], "waiting", 5.0),
    ],
)
def test_the_refresh_waits_for_an_outcome_or_the_timeout(states: list[State], end: State, at: float) -> None:
    clock = Clock(states)

    assert (wait(clock.state, 5.0, clock, clock.pause), clock.now) == (end, at)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a name or --all"),
        (["m", "--all"], "--all is for all models, and m names one"),
        (["m", "-A"], "-A needs --all, and m is one model"),
        (["m", "--within", "5m"], "--within limits the wait of --all; wait for one model with halcyon status m -w"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["refresh", *arguments]) == 2
    assert message in capsys.readouterr().err


class ClusterWithoutB:
    """A cluster in which each model serves its new template at once. The model b was deleted meanwhile."""

    target = Target("refresh")

    def __init__(self, *, deleted_at: str) -> None:
        self._deleted_at = deleted_at

    def in_namespace(self, _: str) -> ClusterWithoutB:
        return self

    def annotate(self, name: str, _: object) -> None:
        if name == "b" and self._deleted_at == "annotate":
            raise NoSuchModelError("no ModelDeployment b")

    def model(self, name: str) -> dict[str, Any]:
        if name == "b":
            raise NoSuchModelError("no ModelDeployment b")
        return model()


@pytest.mark.parametrize("deleted_at", ["annotate", "model"])
def test_deleted_models_are_skipped_at_once(deleted_at: str, capsys: pytest.CaptureFixture[str]) -> None:
    outdated = [OutdatedModel("team", name, "m-old", "") for name in "abc"]
    results = refresh._Results(Output("table"))
    cluster: Any = ClusterWithoutB(deleted_at=deleted_at)

    assert refresh._refresh_in_sequence(cluster, outdated, 5.0, results) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 of 3: team/a serves its new template",
        "2 of 3: team/b was deleted",
        "3 of 3: team/c serves its new template",
    ]


def test_failed_requests_are_retried_until_the_timeout() -> None:
    class Unreachable(ClusterWithoutB):
        def model(self, _: str) -> dict[str, Any]:
            raise ClusterError("no cluster")

    cluster: Any = Unreachable(deleted_at="")
    outdated = [OutdatedModel("team", "a", "m-old", "")]
    assert refresh._refresh_in_sequence(cluster, outdated, 0.0, refresh._Results(Output("json"))) == 1
