"""How a list of conditions is kept."""

from __future__ import annotations

import pytest

from generators.conditions_reference import REASONS
from halcyon.api.conditions import MESSAGE_LIMIT, Condition, Reason, Type, ending, find, keep

READY = Condition(Type.READY, status=True, reason=Reason.READY, message="3 of 3 servers are ready")
UNKNOWN = Condition(Type.MODEL_LOADED, status=None, reason=Reason.LOADING, message="")


def test_conditions_are_in_the_order_of_their_types() -> None:
    stalled = Condition(Type.STALLED, status=True, reason=Reason.INVALID, message="")

    kept = keep([stalled, UNKNOWN, READY], [], generation=3, now="t1")

    assert [c["type"] for c in kept] == ["Ready", "ModelLoaded", "Stalled"]
    assert [c["status"] for c in kept] == ["True", "Unknown", "True"]
    assert {c["observedGeneration"] for c in kept} == {3}


def test_the_transition_time_moves_with_the_status_only() -> None:
    before = keep([READY], [], generation=1, now="t1")
    same = Condition(Type.READY, status=True, reason=Reason.SCALED_TO_ZERO, message="0 replicas are desired")
    other = Condition(Type.READY, status=False, reason=Reason.NO_SERVERS_READY, message="")

    assert keep([same], before, generation=2, now="t2")[0]["lastTransitionTime"] == "t1"
    assert keep([same], before, generation=2, now="t2")[0]["reason"] == "ScaledToZero"
    assert keep([other], before, generation=2, now="t2")[0]["lastTransitionTime"] == "t2"


def test_a_condition_that_is_no_longer_decided_goes() -> None:
    before = keep([READY, UNKNOWN], [], generation=1, now="t1")

    assert [c["type"] for c in keep([READY], before, generation=1, now="t2")] == ["Ready"]


def test_a_condition_that_was_stored_broken_is_replaced() -> None:
    (kept,) = keep([READY], [{}, {"type": "Ready", "status": "True"}], generation=1, now="t2")

    assert kept["lastTransitionTime"] == "t2"


def test_a_message_is_cut_to_what_the_schema_takes() -> None:
    long = Condition(Type.READY, status=False, reason=Reason.LOAD_FAILED, message="x" * 5000)

    assert len(keep([long], [], generation=1, now="t")[0]["message"]) == MESSAGE_LIMIT


def test_a_condition_is_found_by_its_type() -> None:
    assert find([UNKNOWN, READY], Type.READY) is READY
    assert find([UNKNOWN], Type.READY) is None


@pytest.mark.parametrize("length", [10, MESSAGE_LIMIT - 4, MESSAGE_LIMIT - 3, 5000])
def test_the_end_of_a_message_is_not_what_is_cut(length: int) -> None:
    message = ending("x" * length, "end")

    assert message.endswith("end")
    assert len(message) == min(length + 3, MESSAGE_LIMIT)
    assert ("…" in message) == (length + 3 > MESSAGE_LIMIT)


def test_each_type_has_its_reasons_and_only_rollouts_have_others() -> None:
    listed = {reason for reasons in REASONS.values() for reason in reasons}

    assert list(REASONS) == list(Type)
    assert all(len(set(reasons)) == len(reasons) for reasons in REASONS.values())
    assert set(Reason) - listed == {Reason.CANARY_ANALYSIS_FAILED, Reason.CANARY_ABORTED}
