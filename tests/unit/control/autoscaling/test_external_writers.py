"""Who else writes the count: once is a person's right, again and again is a conflict."""

from __future__ import annotations

import pytest

from halcyon.control.autoscaling.external_writers import CALM_S, LATELY_S, TIMES, WITHIN_S, ExternalWriters
from halcyon.kube.kinds import Key

DIGITS, OTHER = Key("team", "digits"), Key("team", "other")
Look = tuple[float, int, int]
"""When, the count in force, and the one that we ask for from then on."""


def conflict_messages(looks: list[Look], rivals: ExternalWriters | None = None, *, writer: str = "argocd") -> list[str]:
    watching = ExternalWriters() if rivals is None else rivals
    return [watching.compare(DIGITS, count, desired, writer, at) for at, count, desired in looks]


def fought(*, every_s: float = 30.0, times: int = TIMES) -> list[Look]:
    """We want 6 and get it, they put back 2; the last look is the one after their last change."""
    looks: list[Look] = [(0.0, 2, 6)]
    for n in range(times):
        looks += [(n * every_s + 9, 2, 6), (n * every_s + 10, 6, 6), (n * every_s + 20, 2, 6)]
    return looks


@pytest.mark.parametrize(
    ("looks", "conflict"),
    [
        (fought(times=1), False),
        (fought(times=2), False),
        (fought(times=3), True),
        (fought(every_s=WITHIN_S / 2), True),
        (fought(every_s=WITHIN_S / 2 + 1), False),
        # Nobody moves it.
        ([(float(at), 4, 6) for at in range(100)], False),
        # What is found first is nobody's change.
        ([(float(at), at, 50) for at in range(3)], False),
        ([(float(at), at, 50) for at in range(4)], True),
        # The count follows what we ask for, at once,
        ([(float(at), at % 7, (at + 1) % 7) for at in range(100)], False),
        # or when the HPA asks next, and we have asked for more meanwhile,
        ([(float(at), 15 * (at // 15), at + 1) for at in range(300)], False),
        # but not long after.
        ([(0.0, 2, 3), (1.0, 2, 4), (LATELY_S, 3, 4), (70.0, 2, 4), (71.0, 9, 4)], False),
        ([(0.0, 2, 3), (1.0, 2, 4), (LATELY_S + 1, 3, 4), (70.0, 2, 4), (71.0, 9, 4)], True),
    ],
)
def test_three_changes_by_others_within_five_minutes_are_a_conflict(looks: list[Look], conflict: bool) -> None:
    assert [bool(text) for text in conflict_messages(looks)] == [False] * (len(looks) - 1) + [conflict]


def test_a_conflict_names_the_writer_the_replicas_and_the_remedy() -> None:
    text = conflict_messages(fought())[-1]

    assert "field manager argocd has changed spec.replicas 3 times within 5 min, most recently to 2" in text
    assert "10 min" in text
    assert "mode: Paused" in text


@pytest.mark.parametrize("writer", ["", "halcyon", "kube-controller-manager"])
def test_an_anonymous_writer_gets_no_name(writer: str) -> None:
    assert conflict_messages(fought(), writer=writer)[-1].startswith(
        "another controller or user has changed spec.replicas"
    )


def test_a_conflict_ends_ten_minutes_after_the_last_change() -> None:
    rivals = ExternalWriters()
    last = fought()[-1][0]
    assert conflict_messages(fought(), rivals)[-1]

    assert conflict_messages([(last + CALM_S - 1, 2, 6)], rivals)[-1]
    assert conflict_messages([(last + CALM_S, 2, 6)], rivals) == [""]
    assert conflict_messages([(last + CALM_S + 1, 6, 6), (last + CALM_S + 2, 6, 6)], rivals) == ["", ""]


def test_a_change_during_a_conflict_makes_it_last() -> None:
    rivals = ExternalWriters()
    last = fought()[-1][0]
    conflict_messages(fought(), rivals)
    again = last + CALM_S - 10

    assert "most recently to 9" in conflict_messages([(again, 9, 6)], rivals)[-1]
    assert conflict_messages([(again + CALM_S - 1, 9, 6)], rivals)[-1]
    assert conflict_messages([(again + CALM_S, 9, 6)], rivals) == [""]


def test_desired_replicas_are_not_written_during_a_conflict() -> None:
    rivals = ExternalWriters()
    last = fought()[-1][0]
    conflict_messages(fought(), rivals)
    conflict_messages([(last + 200, 2, 9)], rivals)

    assert "most recently to 9" in conflict_messages([(last + 201, 9, 9)], rivals)[-1]
    assert conflict_messages([(last + 201 + CALM_S - 1, 9, 9)], rivals)[-1]


def test_replicas_that_were_restored_before_a_sample_count_too() -> None:
    rivals = ExternalWriters()
    messages = []
    for n in range(TIMES):
        messages += conflict_messages([(n * 10.0, 2, 6)], rivals)
        rivals.wrote(DIGITS, 6)
    messages += conflict_messages([(TIMES * 10.0, 2, 6)], rivals)

    assert [bool(text) for text in messages] == [False] * TIMES + [True]


def test_changes_of_replicas_that_others_own_are_no_conflict() -> None:
    rivals, messages = ExternalWriters(), []
    for n in range(2 * TIMES):
        messages += conflict_messages([(30.0 * n, 1, 2), (30.0 * n + 1, 2, 2)], rivals)
        rivals.pause(DIGITS)  # and the HPA takes it back to 1, by rules of its own
    assert set(messages) == {""}


def test_a_conflict_resumes_after_a_time_under_another_owner() -> None:
    rivals = ExternalWriters()
    assert conflict_messages(fought(), rivals)[-1]
    rivals.pause(DIGITS)
    assert conflict_messages([(100.0, 2, 6)], rivals) != [""]
    assert conflict_messages([(100.0 + CALM_S, 2, 6)], rivals) == [""]


def test_models_are_watched_apart_and_forgotten_with_their_history() -> None:
    rivals = ExternalWriters()
    assert conflict_messages(fought(), rivals)[-1]
    assert rivals.compare(OTHER, 2, 6, "argocd", 100.0) == ""

    rivals.forget(DIGITS)

    assert conflict_messages([(101.0, 5, 9), (102.0, 6, 9)], rivals) == ["", ""]


def test_an_adopted_conflict_has_its_writer_and_ends_with_the_leaders() -> None:
    rivals = ExternalWriters()
    message = conflict_messages(fought())[-1]
    assert rivals.adopt(DIGITS, message, 100.0) == message
    assert conflict_messages([(101.0, 2, 6)], rivals) == [message]
    assert conflict_messages([(100.0 + CALM_S, 2, 6)], rivals) == [""]

    rivals.adopt(DIGITS, message, 2000.0)
    assert rivals.adopt(DIGITS, "", 2001.0) == ""
    assert conflict_messages([(2002.0, 2, 6)], rivals) == [""]
