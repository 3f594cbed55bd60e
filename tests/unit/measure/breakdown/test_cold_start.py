"""The parts of a replica's start, from its boundaries."""

from __future__ import annotations

import pytest

from halcyon_measure.breakdown import cold_start
from halcyon_measure.breakdown.cold_start import Boundaries

COMPLETE = Boundaries(
    "a", 100.0, bound=100.5, first_container=102.5, server_container=103.5, server_answers=105.0, model_loaded=111.0,
    ready=113.0, first_answer=113.2, steady=118.2,
)  # fmt: skip


def test_parts_of_a_start_add_up_to_the_whole() -> None:
    durations, notes = cold_start.parts(COMPLETE)
    assert list(durations.values()) == pytest.approx([0.5, 2, 1, 1.5, 6, 2, 0.2, 5])
    assert sum(durations.values()) == pytest.approx(18.2)
    assert notes == []


def test_a_boundary_that_was_not_seen_joins_two_parts() -> None:
    durations, notes = cold_start.parts(Boundaries("a", 0, bound=1, server_container=5, ready=9))
    assert durations == {"scheduling": 1, "fetching": 4, "warm_up": 4}
    assert "fetching contains pulling, whose end wasn't seen" in notes[0]
    assert "warm_up contains server_start, loading" in notes[1]


def test_a_boundary_before_the_preceding_one_is_not_believed() -> None:
    durations, notes = cold_start.parts(Boundaries("a", 100, bound=101, first_container=99.0, ready=105))
    assert durations == {"scheduling": 1, "warm_up": 4}
    assert "first_container is 2.0 s before the boundary that precedes it: not believed" in notes[0]


def test_starts_have_their_spread_and_failures_a_note() -> None:
    slower = Boundaries("b", 0, bound=1.5, first_answer=20)
    failed = Boundaries("c", 0, failure="ImagePullBackOff")
    section = cold_start.build([COMPLETE, slower, failed])
    scheduling = section.parts[0]
    assert (scheduling.mean.value, scheduling.least.value, scheduling.most.value) == (1.0, 0.5, 1.5)
    assert section.starts == 2
    assert section.total.value == pytest.approx((13.2 + 20) / 2)
    assert section.notes[0] == "c didn't start: ImagePullBackOff"


def test_a_start_without_an_answer_ends_when_it_is_ready() -> None:
    assert cold_start.build([Boundaries("a", 0, bound=1, ready=9)]).total.value == 9
