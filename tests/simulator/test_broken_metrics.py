"""Kinds of broken metrics, from the agents' JSON to the count: none of them moves a replica the wrong way.

Each case replaces what the agents say, from the moment that all is well (4 replicas, exactly at their targets) and for 55 s
on. The count must hold, by the HPA's rules (Direct), through the collector's parsing, the hub and the rules; and when all is
well again, the values must be known and right.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample, ReportError
from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.api.spec.scaling import Behavior
from halcyon.scaling.hpa.algorithm import desired
from halcyon.scaling.hpa.behavior import HpaMemory
from halcyon.scaling.hpa.metrics import RulesReading, read
from halcyon.scaling.observations import Missing, Value
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import validate
from tests.unit.signals.records import EPOCH

TARGETS = ResolvedTargets(queue_depth=10, gpu_utilization=80)
REPLICAS = 4
AT_ONCE = Behavior.model_validate({"scaleDown": {"stabilizationWindowSeconds": 0}})
"""No window hides a wrong step down."""
Document = dict[str, Any]
Breaker = Callable[[Document, int, int], Document | str | None]
"""(the good document, the second, the agent's number) -> what is sent instead; None: nothing."""


def good(second: int, agent: int) -> Document:
    at = EPOCH + second + 0.2 * agent
    pods = tuple(
        PodSample(
            f"m-a-{n}", "ready", at - 0.1, pending=6, succeeded=40 * second, failed=0, backend_failed=0,
            rows=80 * second, executions=10 * second, queue_us=1000 * second, compute_us=9000 * second, gpu=0.8, versions=("1",),
        )
        for n in range(REPLICAS)
    )  # fmt: skip
    balancer = BalancerSample(queued=8, inflight=40, requests=160 * second, rejected=0, errors=0)
    return dict(json.loads(AgentReport("ns", "m", f"m-balancer-{agent}", at, balancer, pods).to_json()))


def pods(**values: Any) -> Breaker:
    """Every pod says this."""
    return lambda d, _second, _agent: {**d, "pods": [{**pod, **values} for pod in d["pods"]]}


def first_pod(**values: Any) -> Breaker:
    return lambda d, _second, _agent: {**d, "pods": [{**d["pods"][0], **values}, *d["pods"][1:]]}


def haproxy(**values: Any) -> Breaker:
    return lambda d, _second, _agent: {**d, "balancer": {**d["balancer"], **values}}


def top(**values: Any) -> Breaker:
    return lambda d, _second, _agent: {**d, **values}


def every_third(breaker: Breaker) -> Breaker:
    return lambda d, second, agent: breaker(d, second, agent) if second % 3 == 0 else d


CASES: dict[str, Breaker] = {
    "nothing comes": lambda _d, _second, _agent: None,
    "one agent is silent": lambda d, second, agent: None if agent else haproxy(queued=16)(d, second, agent),
    "one record in three comes": lambda d, second, agent: None if (second + agent) % 3 else d,
    "every 9 s only": lambda d, second, _agent: d if second % 9 == 0 else None,
    "times stand still": lambda d, _second, _agent: {**d, "at": EPOCH + 30},
    "samples' times stand still": pods(at=EPOCH + 30.0),
    "times an hour behind": lambda d, _second, _agent: {
        **d, "at": d["at"] - 3600, "pods": [{**p, "at": p["at"] - 3600} for p in d["pods"]],
    },
    "one agent's times an hour ahead": lambda d, _second, agent: {
        **d, "at": d["at"] + 3600 * agent, "pods": [{**p, "at": p["at"] + 3600 * agent} for p in d["pods"]],
    },
    "samples from the future": lambda d, second, agent: pods(at=d["at"] + 100.0)(d, second, agent),
    "HAProxy does not respond": top(balancer=None),
    "queue negative": haproxy(queued=-5),
    "queue NaN": haproxy(queued=math.nan),
    "queue infinite": haproxy(queued=math.inf),
    "queue absurd": haproxy(queued=10**12),
    "queue a text": haproxy(queued="8"),
    "queue true": haproxy(queued=True),
    "queue null": haproxy(queued=None),
    "queue left out": lambda d, _second, _agent: {**d, "balancer": {k: v for k, v in d["balancer"].items() if k != "queued"}},
    "refused negative": haproxy(rejected=-1),
    "refused NaN": haproxy(rejected=math.nan),
    "refused jumps to 2^60": haproxy(rejected=2**60),
    "refused jumps by 1e15 each second": lambda d, second, agent: haproxy(rejected=10**15 * second % 2**53)(d, second, agent),
    "refused a bad sample now and then": every_third(haproxy(rejected=900_000)),
    "requests reset each second": haproxy(requests=0),
    "pending missing": pods(pending=None),
    "pending negative": pods(pending=-1),
    "pending NaN": pods(pending=math.nan),
    "pending absurd": pods(pending=1e18),
    "pending missing in one pod": first_pod(pending=None),
    "gpu missing": pods(gpu=None),
    "gpu negative": pods(gpu=-0.5),
    "gpu NaN": pods(gpu=math.nan),
    "gpu infinite": pods(gpu=math.inf),
    "gpu in percent": pods(gpu=80.0),
    "gpu missing in one pod": first_pod(gpu=None),
    "gpu absurd in one pod": first_pod(gpu=1e9),
    "gpu missing now and then": every_third(pods(gpu=None)),
    "one pod can't be read": first_pod(
        state="unreachable", pending=None, gpu=None, succeeded=None, failed=None, backend_failed=None,
        rows=None, executions=None, queue_us=None, compute_us=None,
    ),
    "no pod can be read": pods(state="unreachable", pending=None, gpu=None, rows=None),
    "one pod restarts": lambda d, second, agent: first_pod(rows=second % 7, executions=second % 7)(d, second, agent),
    "rows fall": lambda d, second, agent: pods(rows=10**6 - second)(d, second, agent),
    "no pods": top(pods=[]),
    "pods twice": lambda d, _second, _agent: {**d, "pods": d["pods"] * 2},
    "unknown state": pods(state="fine"),
    "state a list": pods(state=["ready"]),
    "a pod without a name": first_pod(name=""),
    "another version": top(version=99),
    "unknown field": top(surprise=1),
    "times NaN": top(at=math.nan),
    "times a text": top(at="now"),
    "not JSON": lambda d, _second, _agent: "{" + json.dumps(d),
    "empty": lambda _d, _second, _agent: "",
    "a list": lambda _d, _second, _agent: "[]",
    "brackets without end": lambda _d, _second, _agent: "[" * 100_000,
    "a number without end": lambda _d, _second, _agent: '{"version": ' + "9" * 5000 + "}",
}  # fmt: skip


def receive_report(hub: ObservationStore, sent: Document | str | None, *, at: float) -> None:
    """The hub is told what an agent sent, as the collector would: what is no record is dropped."""
    if sent is None:
        return
    text = sent if isinstance(sent, str) else json.dumps({"version": 1, **sent})
    with contextlib.suppress(ReportError, ValueError, RecursionError):
        hub.receive(validate(AgentReport.from_json(text)).report, at)


def play(breaker: Breaker) -> tuple[list[int], list[RulesReading]]:
    """The counts of each sync, and the readings behind them: half a minute well, 55 s broken, 20 s well."""
    hub, current, memory = ObservationStore(), REPLICAS, HpaMemory()
    counts, readings = [], []
    for second in range(105):
        for agent in range(2):
            sent: Document | str | None = good(second, agent)
            if 30 <= second < 85 and isinstance(sent, dict):
                sent = breaker(sent, second, agent)
            receive_report(hub, sent, at=second + 0.2 * agent)
        now = second + 0.9
        if second % 15 == 14:
            observation = hub.observe("ns", "m", now)
            assert observation is not None
            reading = read(observation, targets=TARGETS, replicas=current)
            decision = desired(now, current, reading, TARGETS, AT_ONCE, low=1, high=20, memory=memory)
            current, memory = decision.count, decision.memory
            counts.append(current)
            readings.append(reading)
    return counts, readings


def test_sound_metrics_hold_the_replicas_and_are_known() -> None:
    counts, readings = play(lambda d, _second, _agent: d)
    assert counts == [REPLICAS] * 7
    assert all(not isinstance(reading.queue_depth, Missing) for reading in readings)


def test_a_true_change_moves_the_replicas() -> None:
    counts, _ = play(haproxy(queued=40))
    assert max(counts) > REPLICAS
    counts, _ = play(lambda d, _second, _agent: {**d, "pods": [{**p, "pending": 0, "gpu": 0.2} for p in d["pods"]]})
    assert min(counts) < REPLICAS


@pytest.mark.parametrize("kind", CASES)
def test_a_broken_metric_moves_nothing_and_leaves_nothing_behind(kind: str) -> None:
    counts, readings = play(CASES[kind])
    assert set(counts) == {REPLICAS}
    queue, gpu = readings[-1].queue_depth, readings[-1].gpu_utilization
    assert isinstance(queue, Value)
    assert queue.value == pytest.approx(40, abs=0.5)
    assert isinstance(gpu, Value)
    assert gpu.value == pytest.approx(320)


def test_the_number_of_broken_kinds_is_sufficient() -> None:
    assert len(CASES) >= 30
