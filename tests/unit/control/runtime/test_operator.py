"""The probes of the operator's process, in its start and afterwards."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from halcyon.control.runtime import operator
from halcyon.control.runtime.operator import REPORTS_TIMEOUT_S, STUCK_TIMEOUT_S, Operator
from halcyon.kube.kinds import Key


@dataclass
class Process:
    """What the probes read of an operator."""

    now: float = 0.0
    synced: bool = False
    is_leader: bool = False
    tls: object = field(default_factory=object)
    unserved: tuple[Key, ...] = (Key("team", "digits"),)

    def __post_init__(self) -> None:
        self.parts = SimpleNamespace(
            workers=SimpleNamespace(idle_s=lambda: self.now),
            queue=self.unserved,
            elector=SimpleNamespace(leading=SimpleNamespace(is_set=lambda: True)),
            leadership=SimpleNamespace(is_leader=False),
            clock=SimpleNamespace(monotonic=lambda: self.now),
            caches=SimpleNamespace(synced=False),
            identity=SimpleNamespace(tls=self.tls),
            served=SimpleNamespace(unserved=lambda: list(self.unserved)),
            _reports_due_at=math.inf,
            _reports_are_in=False,
        )
        self.parts.base = self.parts

    def probed(self) -> tuple[str, str]:
        """Return the problems that the liveness and the readiness probe report."""
        self.parts.leadership.is_leader, self.parts.caches.synced = self.is_leader, self.synced
        process: Any = cast("Operator", self.parts)
        return Operator._stuck(process), Operator._awaited_reports(process)


def test_a_new_leader_is_alive_while_its_caches_are_filled() -> None:
    process = Process(now=2 * STUCK_TIMEOUT_S)
    assert process.probed() == ("", "")
    process.synced = process.is_leader = True
    assert "no reconcile began or ended for 240 s" in process.probed()[0]


def test_the_wait_for_reports_begins_when_the_caches_are_filled() -> None:
    process = Process(now=2 * REPORTS_TIMEOUT_S)
    assert not process.probed()[1]
    process.synced = True
    assert "no agent has reported yet on 1 models" in process.probed()[1]
    process.now += REPORTS_TIMEOUT_S
    assert process.probed()[1]
    process.now += 0.1
    assert not process.probed()[1]


async def test_a_new_leader_begins_although_the_check_of_the_metrics_api_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while an admission webhook for HPAs hangs, which the check's dry run calls."""
    monkeypatch.setattr(operator, "FIRST_CHECK_S", 0.05)
    hanging = SimpleNamespace(
        metrics_api=SimpleNamespace(is_certain=False),
        _check_metrics_api=asyncio.Event().wait,
    )
    async with asyncio.timeout(5):
        await Operator._find_metrics_api(cast("Operator", hanging))
