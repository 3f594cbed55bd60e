"""The planner's memory through JSON and back."""

from __future__ import annotations

import copy
import functools
import json
import random
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.dispersion import Dispersion
from halcyon.scaling.planner.forecast.seasonality import MAX_BINS, History
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.scaling.planner.serialization import MAX_BYTES, packed, resumed, unpacked
from tests.drawn import draws

WEIGHT_BYTES = 70_000
"""A planner lives for two weeks."""

EPOCH = 1_763_700_000.0
OBJECTIVES = Objectives(low=0, high=50, max_batch=16, latency_s=0.5, idle_after_s=600.0, queue_limit=400)


def reading(at: float, arrived: float, *, replicas: int = 3, waiting: float = 4.0) -> Reading:
    executions = int(arrived / 4)
    names = [f"some-model-server-a-6c9d7f8b5d-{n:05}" for n in range(replicas)]
    return Reading(
        at=at,
        replicas=replicas,
        arrived=arrived,
        waiting=waiting,
        inflight=waiting + 20.0,
        gpu=60.0 * replicas,
        batches={1: (3, 0.27), 4: (executions, executions * 0.11203), 16: (3, 0.6)},
        pods=tuple(PodReading(name, "ready", EPOCH - 500, EPOCH - 439.5) for name in names),
    )


def lived(seed: int = 1, *, seconds: int = 400, step_s: float = 1.0) -> PlannerMemory:
    """A memory after some minutes of load with bursts."""
    rng, memory, arrived = random.Random(seed), PlannerMemory(), 0.0
    for second in range(seconds):
        at = EPOCH + second * step_s + rng.random() / 10
        arrived += rng.randrange(0, 160) * (8 if second % 150 > 130 else 1)
        memory = plan(at, OBJECTIVES, reading(at, arrived, waiting=rng.randrange(0, 60)), memory).memory
    return memory


LIVED = functools.cache(lived)


def _weeks(seed: int) -> PlannerMemory:
    """A memory whose history is full, with gaps."""
    rng = random.Random(seed)
    means = [None if rng.random() < 0.05 else 10 ** rng.uniform(-3, 5) for _ in range(MAX_BINS)]
    return replace(LIVED(seed), history=History.of(means, end=EPOCH))


WEEKS = functools.cache(_weeks)


def again(memory: PlannerMemory) -> PlannerMemory:
    restored = unpacked(json.loads(json.dumps(packed(memory))))
    assert restored.problems == ()
    return restored.memory


def test_a_new_memory_comes_back_as_it_was() -> None:
    assert again(PlannerMemory()) == PlannerMemory()


@draws(0.5)
@given(st.integers(1, 6), st.integers(1, 120), st.booleans())
def test_a_restored_memory_is_equal_to_nine_digits_and_plans_the_same(seed: int, seconds: int, old: bool) -> None:
    memory = WEEKS(seed) if old else lived(seed, seconds=seconds)
    back = again(memory)
    assert packed(back) == packed(memory)
    assert again(back) == back
    for part in fields(PlannerMemory):
        assert type(getattr(back, part.name)) is type(getattr(memory, part.name))
    at = (memory.arrivals.times[-1] if memory.arrivals.times else EPOCH) + 1.0
    now = reading(at, (memory.arrivals.raw or 0.0) + 90.0, waiting=30.0)
    first, second = plan(at, OBJECTIVES, now, memory), plan(at, OBJECTIVES, now, back)
    assert first.count == second.count
    assert [t.name for t in first.parts] == [t.name for t in second.parts]
    assert [t.replicas for t in first.parts] == pytest.approx([t.replicas for t in second.parts], rel=0.001)


def test_two_weeks_of_a_busy_model_take_less_than_the_bound() -> None:
    assert 15_000 < len(json.dumps(packed(WEEKS(1)), separators=(",", ":"))) < MAX_BYTES


def test_bins_come_back_as_they_are_from_a_millionth_to_millions() -> None:
    means = [None, 0.0, 1e-6, 0.00123, 0.999, 1.0, 9.99, 10.0, 99.9, 100.0, 123.0, 1e4, 9.87e6]
    history = History.of(means, end=EPOCH)
    assert again(replace(PlannerMemory(), history=history)).history.bins == history.bins


def test_equal_bins_of_restored_histories_are_in_memory_once() -> None:
    means = [float(n % 50) + 100.5 for n in range(200)]
    first, second = (again(replace(PlannerMemory(), history=History.of(means, end=EPOCH))).history for _ in range(2))
    assert len(first.bins) >= 150
    assert len({id(mean) for mean in (*first.bins, *second.bins)}) <= 50


def test_a_long_list_with_one_invalid_number_restarts_its_part() -> None:
    memory = WEEKS(1)
    for invalid in ("7", True, 1e999, None):
        document = json.loads(json.dumps(packed(memory)))
        assert len(document["arrivals"]["times"]) >= 32
        document["arrivals"]["times"][3] = invalid
        restored = unpacked(document)
        assert restored.memory.arrivals == ArrivalRate()
        assert len(restored.problems) == 1


def huge() -> PlannerMemory:
    """More of everything than can be kept."""
    times = tuple(EPOCH + n / 100 + 0.00123 for n in range(7000))
    counts = tuple(n * 1234.56789 for n in range(7000))
    coarse = tuple(EPOCH - 5 * n for n in range(400, 0, -1))
    needs = tuple((EPOCH + n / 3, 5000 - n) for n in range(5000))
    return replace(
        WEEKS(1),
        arrivals=ArrivalRate(times, counts, coarse, counts[:400], 1e9, Dispersion(3.3333333333, first=counts[:31])),
        hold=ScaleDownHold(needs=needs, held=5000, bare=needs, bare_held=5000),
        headroom=Headroom(0.1234567891, tuple((EPOCH + n / 7, n / 7) for n in range(3000))),
        capacity=replace(
            WEEKS(1).capacity,
            seen=tuple((n, 10**9 + n, 1e6 / 7 + n) for n in range(1, 3000)),
            started=frozenset(f"{'x' * 50}{n:05}-{n}" for n in range(3000)),
        ),
    )


def test_a_memory_never_exceeds_the_bound_and_keeps_what_is_needed() -> None:
    document = packed(huge())
    assert len(json.dumps(document, separators=(",", ":"))) < MAX_BYTES
    back = again(huge())
    assert back.hold.needs[0][1] == back.hold.held == 5000
    assert back.hold.needs[-1] == (pytest.approx(EPOCH + 4999 / 3, abs=0.001), 1)
    assert back.arrivals.times[-1] == pytest.approx(EPOCH + 69.99123, abs=0.001)
    assert back.capacity.line == pytest.approx(WEEKS(1).capacity.line) or back.capacity.line is not None


def test_fewer_needs_never_hold_less_nor_shorter() -> None:
    needs = tuple((EPOCH + n, 300 - n) for n in range(300))
    back = again(replace(PlannerMemory(), hold=ScaleDownHold(needs=needs, held=300)))
    kept = back.hold.needs
    assert len(kept) <= 64
    for at, count in needs:
        assert max(c for t, c in kept if t >= at) >= count


def test_pods_names_come_back_in_any_form() -> None:
    names = frozenset({"a-b-c", "a-b-d", "plain", "", "-", "a-", 7, 0, "7"})
    assert again(replace(PlannerMemory(), capacity=Capacity(started=names))).capacity.started == names


def test_an_unreadable_part_restarts_and_says_so_while_others_stay() -> None:
    memory = LIVED(1)
    for part, wrong in {
        "arrivals": {"times": ["x"]},
        "capacity": {"weight": "much"},
        "hold": {"needs": [[1.0]]},
        "drain": 5,
        "headroom": {"value": None},
        "damping": {"share": 0.5, "due": [[1.0, 5.0, 4.0]]},
        "zero": {"left": [1.0, 0]},
        "history": {"bins": "?"},
        "spikes": [],
        "still": {"since": "inf"},
    }.items():
        document = packed(memory)
        document[part] = wrong
        restored = unpacked(document)
        assert getattr(restored.memory, part) == getattr(PlannerMemory(), part)
        assert len(restored.problems) == 1
        assert restored.problems[0].startswith(part)
        assert restored.problems[0].endswith(f"{part} starts from scratch")
        for other in fields(PlannerMemory):
            if other.name != part:
                assert getattr(restored.memory, other.name) == getattr(again(memory), other.name)


@pytest.mark.parametrize("document", [None, [], "x", 5, {}, {"version": 2}, {"version": "1"}])
def test_a_malformed_memory_is_a_new_one_with_a_reason(document: Any) -> None:
    restored = unpacked(document)
    assert restored.memory == PlannerMemory()
    assert len(restored.problems) == 1


def test_memories_of_older_and_later_versions_are_read() -> None:
    document = packed(LIVED(1))
    del document["hold"]["eased_at"]
    document["hold"]["later"] = document["later"] = {"any": 1}
    restored = unpacked(document)
    assert restored.problems == ()
    assert restored.memory.hold.patience_s == LIVED(1).hold.patience_s
    del document["drain"]["patience_s"]
    assert unpacked(document).memory.drain.patience_s == PlannerMemory().drain.patience_s
    del document["damping"], document["zero"]
    assert unpacked(document).problems == ()
    del document["spikes"]
    assert unpacked(document).problems == ("spikes is missing; it starts from scratch",)


def test_new_counters_replace_the_old_ones_alone() -> None:
    memory = LIVED(1)
    assert resumed(memory).capacity.seen == ()
    assert replace(resumed(memory), capacity=memory.capacity) == memory


PACKED = functools.cache(
    lambda: packed(replace(WEEKS(1), history=History.of([5.0 + n % 7 for n in range(400)], end=EPOCH)))
)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(), st.text(max_size=4), st.just([]), st.just({}), st.just("-inf")
)  # fmt: skip


@draws(2.5)
@given(st.data())
def test_the_planner_continues_with_any_broken_memory(data: st.DataObject) -> None:
    document = copy.deepcopy(PACKED())
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = document
        key: Any = data.draw(st.sampled_from([name for name in place if name != "version"]))
        while isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 9)) > 0:
            place = place[key]
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = data.draw(st.sampled_from(list(keys)))
        place[key] = data.draw(ODD)
    memory = unpacked(document).memory
    arrived = 1e5
    for step in range(3):
        at = EPOCH + 500 + step * 150
        arrived += 50
        new_plan = plan(at, OBJECTIVES, reading(at, arrived, waiting=500.0 * step), memory)
        memory = new_plan.memory
        assert 0 <= new_plan.count <= OBJECTIVES.high
    assert unpacked(packed(memory)).memory.history.open == memory.history.open
