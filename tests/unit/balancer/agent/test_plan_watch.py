"""Plans that an agent reads from the copy of an earlier one. With the real API: tests/integration/agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.agent import plan_watch
from halcyon.balancer.agent.plan_watch import PlanWatch
from halcyon.balancer.agent.settings import AgentSettings
from halcyon.balancer.config.writer import ConfigError

PLAN = BalancerPlan("ns", "m", "m", (Slot("a", "m-server-a", 100, 8),), 8, 200, 60000, 60000, 30000, None)


def watch(run_dir: Path, accepted: list[BalancerPlan], error: ConfigError | None = None) -> PlanWatch:
    def accept(plan: BalancerPlan) -> None:
        if error is not None:
            raise error
        accepted.append(plan)

    return PlanWatch(AgentSettings("ns", "m-balancer", "m-balancer-0", run_dir), accept)


def test_a_copy_is_the_plan_of_a_restarted_agent(tmp_path: Path) -> None:
    accepted: list[BalancerPlan] = []
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    watched = watch(tmp_path, accepted)
    watched.read_copy()
    assert (watched.plan, accepted, watched.errors) == (PLAN, [PLAN], 0)
    assert watched.changed.is_set()


def test_an_agent_without_a_copy_has_no_plan(tmp_path: Path) -> None:
    watched = watch(tmp_path, [])
    watched.read_copy()
    assert (watched.plan, watched.errors, watched.changed.is_set()) == (None, 0, False)


@pytest.mark.parametrize("text", ["{", "{}", ""])
def test_an_invalid_copy_counts_as_an_error_and_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    watched = watch(tmp_path, [])
    watched.read_copy()
    assert (watched.plan, watched.errors, watched.changed.is_set()) == (None, 1, False)


def test_a_plan_that_haproxy_rejects_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    watched = watch(tmp_path, [], ConfigError("HAProxy rejected it"))
    watched.read_copy()
    assert (watched.plan, watched.errors) == (None, 1)


def receive(watched: PlanWatch, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watch of the ConfigMap bring this text."""

    class Once:
        def __init__(self, *_: object, on_change: Callable[[Mapping[str, str]], None], **__: object) -> None:
            self._on_change = on_change

        async def run(self) -> None:
            self._on_change({"m-balancer": text})

    monkeypatch.setattr(plan_watch, "Watch", Once)
    nothing: Any = None
    asyncio.run(watched.run(nothing, nothing, lambda _: None))


def test_a_copy_is_complete_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    with (tmp_path / "plan.json").open() as before:
        receive(watch(tmp_path, []), PLAN.to_json().replace("m-server-a", "m-server-b"), monkeypatch)
        assert before.read() == PLAN.to_json()
    assert "m-server-b" in (tmp_path / "plan.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_plan_is_in_use_though_its_copy_cant_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").mkdir()
    accepted: list[BalancerPlan] = []
    watched = watch(tmp_path, accepted)
    receive(watched, PLAN.to_json(), monkeypatch)
    assert (watched.plan, accepted, watched.errors) == (PLAN, [PLAN], 0)
    assert watched.changed.is_set()
