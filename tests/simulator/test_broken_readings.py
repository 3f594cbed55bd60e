"""The kinds of broken metrics once more, from the agents' JSON to the planner's count: none of them scales anything.

All is well for 10 s (4 replicas, which is what the planner wants), broken for 16 s and well again for 10 s. The planner keeps
what was needed for one second only, so that its patience hides no wrong step down.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import ReadingResult, SignalMemory, reading
from tests.simulator.test_broken_metrics import (
    CASES,
    REPLICAS,
    Breaker,
    Document,
    first_pod,
    good,
    pods,
    receive_report,
    top,
)
from tests.unit.signals.records import EPOCH

OBJECTIVES = Objectives(low=1, high=20, max_batch=8, start_s=1.0)
"""Peak of a replica: 8 rows, 2 to a request, in 32 ms: 125 requests/s; 80 % of four of them serve 320 and a tenth more."""
WELL, BROKEN, END = 10, 26, 36
IMPATIENT = PlannerMemory(hold=ScaleDownHold(patience_s=0.0, min_s=0.0))
BATCHES: dict[str, Breaker] = {
    "batches missing": pods(batches=None),
    "batches negative": lambda d, _s, _a: pods(batches={"at": d["at"], "sizes": [[8, -1, 5]]})(d, _s, _a),
    "batches absurd": lambda d, _s, _a: pods(batches={"at": d["at"], "sizes": [[8, 10**30, 5]]})(d, _s, _a),
    "batches a text": pods(batches="many"),
    "batches begin anew each second": lambda d, _s, _a: pods(batches={"at": d["at"], "sizes": [[8, 10, 320_000]]})(d, _s, _a),
    "batches of the future": lambda d, _s, _a: pods(batches={"at": d["at"] + 500, "sizes": [[8, 10, 320_000]]})(d, _s, _a),
    "one pod's backend is dead": first_pod(state="maintenance", pending=500, gpu=1.0),
    "a pod in a hundred is unknown": lambda d, _s, _a: top(pods=d["pods"][1:])(d, _s, _a),
}  # fmt: skip


SEEN_AS_LOAD = {"requests reset each second"}
"""A counter that stood at 0 and shows thousands again: nothing tells that from thousands of requests."""


@cache
def document_with_batches(second: int, agent: int) -> Document:
    document = good(second, agent)
    batches = {"at": document["at"] - 0.1, "sizes": [[8, 10 * second, 320_000 * second]]}
    return {**document, "pods": [{**pod, "batches": batches} for pod in document["pods"]]}


def play(breaker: Breaker) -> tuple[list[Plan], list[ReadingResult]]:
    hub, memory, signals = ObservationStore(), IMPATIENT, SignalMemory()
    epoch = WallClock(EPOCH)
    listed = tuple(PodReading(f"m-a-{n}", "ready", EPOCH - 500) for n in range(REPLICAS))
    plans, readings = [], []
    for second in range(END):
        for agent in range(2):
            sent: Document | str | None = document_with_batches(second, agent)
            if WELL <= second < BROKEN and isinstance(sent, dict):
                sent = breaker(sent, second, agent)
            receive_report(hub, sent, at=second + 0.2 * agent)
        now = second + 0.9
        picture = hub.snapshot("ns", "m", now)
        assert picture is not None
        gathered = reading(
            picture,
            replicas=REPLICAS,
            pods=listed,
            epoch=epoch,
            memory=signals,
            balancers={"m-balancer-0", "m-balancer-1"},
        )
        signals = gathered.memory
        planned = plan(epoch.at(now), OBJECTIVES, gathered.reading, memory)
        memory = planned.memory
        plans.append(planned)
        readings.append(gathered)
    return plans, readings


def test_sound_readings_are_known_and_hold_the_replicas() -> None:
    plans, readings = play(lambda d, _second, _agent: d)
    assert {planned.count for planned in plans} == {REPLICAS}
    assert all(not gathered.unknown for gathered in readings[1:])
    assert plans[-1].winner == "rate"
    assert plans[-1].parts[0].replicas == REPLICAS
    assert readings[-1].reading.rows_per_request == pytest.approx(2.0, rel=0.02)


def test_a_true_rise_moves_the_replicas() -> None:
    def rise(d: Any, second: int, _agent: int) -> Any:
        return {**d, "balancer": {**d["balancer"], "requests": 160 * second + 200 * (second - WELL)}}

    assert max(planned.count for planned in play(rise)[0]) > REPLICAS


@pytest.mark.parametrize("kind", [*CASES, *BATCHES])
def test_a_broken_signal_scales_nothing_and_leaves_nothing_behind(kind: str) -> None:
    plans, readings = play({**CASES, **BATCHES}[kind])
    assert {planned.count for planned in plans[: BROKEN if kind in SEEN_AS_LOAD else END]} == {REPLICAS}
    assert readings[-1].unknown == ()
    assert plans[-1].parts, "it decides again"
