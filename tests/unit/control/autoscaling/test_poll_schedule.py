"""Many are asked once a period each, and never all at once."""

from __future__ import annotations

from collections import Counter

import pytest

from halcyon.control.autoscaling.poll_schedule import PollSchedule

KEYS = [f"team-{n % 7}/model-{n}" for n in range(1000)]
TICK_S = 0.05


def test_each_key_has_one_turn_a_period_and_turns_are_spread() -> None:
    rota = PollSchedule[str](1.0)
    rota.keep(KEYS, 100.0)
    turns: Counter[str] = Counter()
    for tick in range(1, 201):
        due = rota.take(100.0 + tick * TICK_S)
        assert len(due) <= 2 * TICK_S * len(KEYS)
        turns.update(due)
        for key in due:
            rota.done(key)
    assert set(turns.values()) == {10}
    assert turns.keys() == set(KEYS)


def test_the_moment_is_the_key_s_own_whatever_else_is_listed() -> None:
    alone, among = PollSchedule[str](1.0), PollSchedule[str](1.0)
    alone.keep(["a/b"], 0.0)
    among.keep(["a/b", *KEYS], 0.0)
    for tick in range(1, 41):
        now = tick * TICK_S
        assert ("a/b" in alone.take(now)) == ("a/b" in among.take(now))
        alone.done("a/b")
        among.done("a/b")


def test_a_hanging_poll_has_no_second_turn_and_delays_no_other() -> None:
    rota = PollSchedule[str](1.0)
    rota.keep(["hangs", "other"], 0.0)
    assert sorted(rota.take(1.0)) == ["hangs", "other"]
    rota.done("other")
    assert rota.take(2.0) == ["other"]
    rota.done("hangs")
    assert rota.take(2.0) == ["hangs"]


def test_missed_turns_are_not_made_up_for() -> None:
    rota = PollSchedule[str](1.0)
    rota.keep(["a"], 0.0)
    assert rota.take(1.0) == ["a"]
    rota.done("a")
    assert rota.take(60.0) == ["a"]
    rota.done("a")
    assert rota.take(60.0) == []
    assert rota.take(61.0) == ["a"]


@pytest.mark.parametrize("listed", [[], ["b"]])
def test_an_unlisted_key_has_no_turn_and_starts_afresh(listed: list[str]) -> None:
    rota = PollSchedule[str](1.0)
    rota.keep(["a"], 0.0)
    assert rota.take(1.0) == ["a"]
    rota.keep(listed, 1.5)
    assert "a" not in rota.take(10.0)
    rota.done("a")
    rota.keep(["a", *listed], 20.0)
    assert "a" in rota.take(21.0)
