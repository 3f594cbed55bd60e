"""The parts of a request's way: each from its own times, and their sum."""

from __future__ import annotations

import math

import pytest

from halcyon_measure.breakdown import phases
from halcyon_measure.breakdown.phases import ClientFacts, Means
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.durations import Durations
from halcyon_measure.results.folded import PARTS
from halcyon_measure.results.observations import Counters

MS = 0.001


def answers(count: int = 100, *, written: bool = True) -> dict[str, Durations]:
    """Return requests of 2 prepare, 1 encode, 1 late, 3 send, 40 server, 4 receive, 1 decode and 2 finish, in ms."""
    rows = []
    for number in range(count):
        due = number * 0.1
        prepared, sent = due + 3 * MS, due + 4 * MS
        done = due + 51 * MS
        first = due + 47 * MS
        sent_all = due + 7 * MS if written else math.nan
        rows.append(
            (due, prepared, sent, sent_all, first, done, due + 54 * MS, 1 * MS, 1 * MS, 0, -1, 1, 10, 10, -1)
        )  # fmt: skip
    return durations(Columns.of(rows))


def durations(columns: Columns) -> dict[str, Durations]:
    return {name: Durations.of(part(columns)) for name, part in PARTS.items()}


SERVER = Counters(100, 100, 50, 100 * 10 * MS, 100 * 1 * MS, 100 * 20 * MS, 100 * 2 * MS)
BOTH = ClientFacts(prepares=True, finishes=True)
KNOWN = Means(server=SERVER, held_s=0.0, queued_s=5 * MS)


def test_parts_add_up_to_the_latency() -> None:
    section = phases.build(answers(), BOTH, KNOWN)
    means_ms = {part.name: part.mean.value for part in section.parts}
    expected = {
        "prepare": 2, "serialise": 1, "late": 1, "send": 3, "balancer_held": 0, "balancer_queued": 5, "queue": 10,
        "input": 1, "model": 20, "output": 2, "receive": 4, "decode": 1, "finish": 2, "rest": 2,
    }  # fmt: skip
    assert means_ms == pytest.approx(expected, abs=1e-6)
    assert section.end_to_end.value == section.total.value == pytest.approx(54)
    assert section.adds_up
    assert section.reason == ""


def test_unmeasured_parts_are_named_in_the_rest() -> None:
    client = ClientFacts(prepares=True, finishes=True, has_first_byte=False)
    section = phases.build(answers(written=False), client, Means(no_server="closed", no_balancer="none"))
    parts = {part.name: part for part in section.parts}
    for name, reason in (
        ("send", "gRPC's client"), ("queue", "closed"), ("balancer_queued", "none"), ("receive", "gRPC's client")
    ):  # fmt: skip
        assert parts[name].mean.value is None  # type: ignore[index]  # a name of the parts
        assert reason in parts[name].mean.reason  # type: ignore[index]  # a name of the parts
    assert "send, balancer_held, balancer_queued, queue" in parts["rest"].mean.reason
    assert section.reason == "closed"


def test_absent_parts_are_zero_with_a_reason() -> None:
    client = ClientFacts(prepares=False, finishes=False, encode_each_s=40e-6)
    means = {part.name: part.mean for part in phases.build(answers(), client, KNOWN).parts}
    assert (means["prepare"].value, means["serialise"].value, means["decode"].value) == (0, 0, 0)
    assert "in 40 us each" in means["serialise"].reason
    assert "--finish" in means["decode"].reason


def test_counters_longer_than_the_latency_do_not_add_up() -> None:
    slow = Means(server=Counters(100, 100, 50, 100 * 900 * MS, 0, 2, 0), held_s=0, queued_s=0)
    section = phases.build(answers(), BOTH, slow)
    assert not section.adds_up
    assert "the counters include other requests" in section.reason


def test_parts_of_the_server_have_no_percentiles() -> None:
    parts = {part.name: part for part in phases.build(answers(2000), BOTH, KNOWN).parts}
    assert parts["model"].p99.value is None
    assert parts["send"].p99.value == pytest.approx(3)
    assert parts["send"].p99.reason == ""


def test_a_run_without_answers_has_no_parts() -> None:
    none = durations(Columns.of([]))
    assert phases.build(none, BOTH, KNOWN).parts == ()
