"""Late requests in the simulation of two balancers with the agents' own code."""

from __future__ import annotations

from benchmarks.right.queues.late_requests import LAWS, Outcome, Rule, outcomes

LAW = LAWS[0]
WAIT, REJECT, LATE = Rule("mode Wait", "wait"), Rule("0049", "reject"), Rule("late")


def simulated(rule: Rule, load: float, for_s: float, variation: float) -> Outcome:
    [outcome] = outcomes(rule, LAW, load, for_s, variation, parts=(0.5, 0.5), seeds=1)
    return outcome


def test_late_requests_of_bursts_are_answered_and_delay_fewer_others() -> None:
    waiting, late = (simulated(rule, 0.7, 120.0, 3.0) for rule in (WAIT, LATE))
    assert late.offered == waiting.offered
    assert waiting.rejected == 0
    assert late.rejected < 0.5
    assert late.lost(LAW) < waiting.lost(LAW)


def test_late_requests_of_an_overload_are_rejected_at_once() -> None:
    before, late = (simulated(rule, 3.0, 30.0, 1.0) for rule in (REJECT, LATE))
    assert late.goodput(LAW, 30.0) > before.goodput(LAW, 30.0)
    assert late.rejected_slowly < 1
    assert late.late(LAW) < before.late(LAW)
