"""A canary from the write of its change to its end: kept if it is as good, taken back in all other cases."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from halcyon_cli.bench.canary.canary_session import CanaryOutcome, CanarySession, UndoError, check
from halcyon_cli.errors import ClusterError, InputError
from tests.unit.cli.bench.canary.canary_models import (
    CHANGE,
    SERVED,
    SPEC,
    WORSE,
    ScriptedCluster,
    canary,
    model,
    status,
)

ABORT = "serving.halcyon.dev/abort"


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


def run(cluster: ScriptedCluster, shown: list[str] | None = None, *, limit_s: float = 3600) -> CanaryOutcome:
    clock = Clock()
    session = CanarySession(
        cluster,  # type: ignore[arg-type]
        "m",
        limit_s=limit_s,
        start_s=60,
        show=(shown if shown is not None else []).append,
        clock=lambda: clock.now,
        pause=clock.pause,
    )
    return session.run(CHANGE)


def is_as_before(cluster: ScriptedCluster) -> bool:
    return bool(cluster.stored["spec"] == SPEC)


def test_canary_as_good_stays_and_the_strategy_is_restored() -> None:
    cluster, shown = ScriptedCluster(status(generation=3), canary(1), canary(2), SERVED), list[str]()
    outcome = run(cluster, shown)
    assert (outcome.end, outcome.revision) == ("promoted", "m-2")
    assert "analysis" in outcome.why
    assert cluster.stored["spec"] == SPEC | {"batching": {"maxBatchSize": 32}} | {
        "runtime": {"gpu": {"count": 1}, "instancesPerGPU": 2}
    }
    assert any("observe" in line for line in shown)


def test_annotations_of_earlier_canaries_are_removed() -> None:
    first = model()
    first["metadata"]["annotations"] = {ABORT: "m-2", "serving.halcyon.dev/promote": "m-2"}
    cluster = ScriptedCluster(canary(), SERVED, first=first)
    run(cluster)
    assert cluster.stored["metadata"]["annotations"] == {}


def test_worse_canary_is_taken_back_with_the_reason() -> None:
    cluster = ScriptedCluster(canary(), WORSE)
    outcome = run(cluster)
    assert outcome.end == "undone"
    assert "p95 9 s; the previous settings serve all requests" in outcome.why
    assert is_as_before(cluster)
    assert cluster.stored["metadata"]["annotations"] == {ABORT: "m-2"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_canary_is_taken_back(number: int) -> None:
    def end(_: ScriptedCluster) -> None:
        os.kill(os.getpid(), number)

    # A job in the background of a shell begins with SIGINT ignored.
    before = signal.signal(number, signal.default_int_handler)
    try:
        cluster = ScriptedCluster(canary(), canary(), end)
        outcome = run(cluster)
    finally:
        signal.signal(number, before)
    assert outcome.end == "undone"
    assert "interrupted" in outcome.why
    assert is_as_before(cluster)


def test_interrupt_during_the_write_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(canary())
    write = cluster.change_version

    def interrupted(*args: Any) -> Any:
        stored = write(*args)
        if len(cluster.writes) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return stored

    monkeypatch.setattr(cluster, "change_version", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcome = run(cluster)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(cluster.writes) > 1
    assert outcome.end == "undone"
    assert is_as_before(cluster)


def test_error_of_the_command_takes_the_canary_back() -> None:
    def broken(_: ScriptedCluster) -> None:
        raise ZeroDivisionError

    cluster = ScriptedCluster(canary(), broken)
    with pytest.raises(ZeroDivisionError):
        run(cluster)
    assert is_as_before(cluster)


def test_api_server_that_is_gone_for_a_moment_changes_nothing() -> None:
    def outage(cluster: ScriptedCluster) -> None:
        cluster.stored["status"] = canary()
        cluster.fails = 5

    cluster, shown = ScriptedCluster(canary(), outage, canary(), SERVED), list[str]()
    assert run(cluster, shown).end == "promoted"
    assert sum("API server is gone" in line for line in shown) == 5


def test_canary_without_a_decision_is_taken_back_at_its_limit() -> None:
    cluster = ScriptedCluster(canary())
    outcome = run(cluster, limit_s=600)
    assert outcome.end == "undone"
    assert "wasn't decided within 10 min: step" in outcome.why
    assert is_as_before(cluster)


def test_canary_without_capacity_is_taken_back() -> None:
    cluster = ScriptedCluster(canary() | {"pods": {"unschedulable": 1}})
    outcome = run(cluster)
    assert "no node had capacity for its pod within 60 s" in outcome.why
    assert is_as_before(cluster)


def test_pods_that_took_over_without_a_comparison_are_taken_back() -> None:
    cluster = ScriptedCluster(SERVED)
    outcome = run(cluster)
    assert (outcome.end, is_as_before(cluster)) == ("undone", True)
    assert "without a comparison" in outcome.why


def test_spec_that_another_writer_changed_is_left_alone() -> None:
    def other(cluster: ScriptedCluster) -> None:
        cluster.stored["spec"]["batching"]["maxBatchSize"] = 64

    cluster = ScriptedCluster(canary(), other)
    outcome = run(cluster)
    assert (outcome.end, len(cluster.writes)) == ("left", 1)
    assert "another writer" in outcome.why
    assert cluster.stored["spec"]["batching"]["maxBatchSize"] == 64


def test_promotion_at_the_moment_of_an_interrupt_stays() -> None:
    def end(cluster: ScriptedCluster) -> None:
        cluster.stored["status"] = SERVED
        raise KeyboardInterrupt

    cluster = ScriptedCluster(canary(), end)
    assert run(cluster).end == "promoted"
    assert "rollout" not in cluster.stored["spec"]


def test_write_whose_response_was_lost_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(canary(), canary(), SERVED)
    write = cluster.change_version

    def lost(*args: Any) -> Any:
        stored = write(*args)
        if len(cluster.writes) == 1:
            raise ClusterError("timed out")
        return stored

    monkeypatch.setattr(cluster, "change_version", lost)
    assert run(cluster).end == "promoted"


def test_write_that_the_api_server_rejects_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster()

    def rejected(*_: Any) -> Any:
        raise ClusterError("rejects the change")

    monkeypatch.setattr(cluster, "change_version", rejected)
    with pytest.raises(ClusterError, match="rejects the change"):
        run(cluster)


def test_failed_write_is_an_error_although_another_writer_changed_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster()

    def rejected(*_: Any) -> Any:
        cluster.stored["spec"]["replicas"] += 1
        cluster.stored["metadata"]["generation"] += 1
        raise ClusterError("rejects the change")

    monkeypatch.setattr(cluster, "change_version", rejected)
    with pytest.raises(ClusterError, match="rejects the change"):
        run(cluster)


def test_undo_that_fails_names_the_commands_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(canary(), WORSE)
    write = cluster.change_version

    def once(*args: Any) -> Any:
        if cluster.writes:
            raise ClusterError("no access")
        return write(*args)

    monkeypatch.setattr(cluster, "change_version", once)
    with pytest.raises(UndoError, match=r'no access\. By hand: halcyon abort m -n team; .*"maxBatchSize":8') as caught:
        run(cluster)
    assert "p95 9 s" in str(caught.value)


def test_check_needs_the_right_to_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster()
    assert check(cluster, "m") == model()  # type: ignore[arg-type]
    monkeypatch.setattr(cluster, "may", lambda *_: False)
    with pytest.raises(InputError, match="needs patch on modeldeployments"):
        check(cluster, "m")  # type: ignore[arg-type]


def test_model_in_a_rollout_is_refused_before_any_write() -> None:
    cluster = ScriptedCluster(first=model(status("Progressing")))
    with pytest.raises(InputError, match=r"can't start a canary: m has a rollout \(Progressing\)"):
        run(cluster)
    assert cluster.writes == []


def test_undo_whose_response_was_lost_has_undone_the_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(canary(), WORSE)
    write = cluster.change_version

    def lost(*args: Any) -> Any:
        stored = write(*args)
        if len(cluster.writes) == 2:
            raise ClusterError("timed out")
        return stored

    monkeypatch.setattr(cluster, "change_version", lost)
    outcome = run(cluster)
    assert (outcome.end, outcome.revision, len(cluster.writes)) == ("undone", "m-2", 2)
    assert "p95 9 s; the previous settings serve all requests" in outcome.why
