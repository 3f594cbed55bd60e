"""Room for the lower class in the servers of one balancer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config.model import (
    BATCH_US,
    LOWER_ROWS,
    LOWER_VARIABLES,
    NEXT_LESS,
    NEXT_ROWS,
    ROOM,
    ROW_US,
    USER_ROWS,
)
from halcyon.balancer.runtime.class_load import ClassLoad, all_counters, class_load, lower_stats
from halcyon.balancer.runtime.lower_room import MAX_ROWS, LowerRoom, PodWork, Room, fleet_room, next_batch, own_room
from halcyon.balancer.runtime.overload_limits import BatchTime, PodStatistics
from halcyon.balancer.runtime.shares import BalancerLoad, PodLoad

BATCHED = PodWork(8, batches=True, time=BatchTime(8, 0.080, 0.006))
SERIAL = PodWork(1, batches=False, time=BatchTime(1, 0.05, 0.0))
FULL_RPS = 8 / 0.128
PLAN = BalancerPlan(
    "default",
    "m",
    "m",
    (Slot("a", "m-a", 100, 8),),
    16,
    200,
    60000,
    60000,
    30000,
    max_batch=8,
    balancers=2,
    lower_class="Fill",
)


def test_a_pod_without_users_has_room_for_nearly_two_batches() -> None:
    assert fleet_room(BATCHED, 1, 0.0, gentle=False).rows == pytest.approx(8 + 0.775 * 8)


def test_the_room_shrinks_to_one_batch_as_the_users_rate_grows() -> None:
    rooms = [fleet_room(BATCHED, 1, share * FULL_RPS, gentle=False).rows for share in (0.0, 0.5, 0.9, 1.0, 2.0)]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[1] == pytest.approx(8 + 0.775 * 4)
    assert rooms[-1] == rooms[-2] == pytest.approx(8)


def test_single_requests_have_room_for_one_in_each_instance() -> None:
    assert fleet_room(SERIAL, 1, 10.0, gentle=False).rows == pytest.approx(1)
    # Users of another balancer are in the pod for a quarter of the time, unseen.
    assert fleet_room(SERIAL, 1, 10.0, gentle=False, balancers=2).rows == pytest.approx(0.875)
    assert fleet_room(replace(SERIAL, at_once=32, time=BatchTime(1, 16.0, 0.0)), 1, 1.0, gentle=False).rows == 32
    # The way of a request to the pod takes longer than this execution, so one more is on the way.
    assert fleet_room(replace(SERIAL, time=BatchTime(1, 0.001, 0.0)), 1, 0.0, gentle=False).rows == pytest.approx(2)


def test_gentle_class_has_rows_for_a_tenth_of_a_batch() -> None:
    room = fleet_room(BATCHED, 1, 0.5 * FULL_RPS, gentle=True)
    # Batches with the 3.1 rows that users send during one take 98.5 ms, and a tenth of that is 1.64 rows.
    assert room.rows == pytest.approx(0.9 * 8)
    assert room.lower_rows == pytest.approx(1.4 * 1.64, rel=0.01)
    four = fleet_room(BATCHED, 4, 4 * 0.5 * FULL_RPS, gentle=True)
    assert four == Room(pytest.approx(4 * room.rows), pytest.approx(4 * room.lower_rows))  # type: ignore[arg-type]  # compared


def test_gentle_class_has_fewer_rows_as_users_fill_the_batches() -> None:
    rows = [fleet_room(BATCHED, 1, share * FULL_RPS, gentle=True).lower_rows for share in (0.6, 0.8, 0.9, 1.0)]
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] == 0


@pytest.mark.parametrize("work", [BATCHED, SERIAL, replace(BATCHED, time=None)], ids=["no users", "serial", "no time"])
def test_gentle_class_is_like_others_if_it_lengthens_no_batch(work: PodWork) -> None:
    rate = 0.0 if work is BATCHED else 10.0
    assert fleet_room(work, 1, rate, gentle=True) == fleet_room(work, 1, rate, gentle=False)
    assert math.isinf(fleet_room(work, 1, rate, gentle=True).lower_rows)


def test_before_the_first_statistics_there_is_room_for_one_batch() -> None:
    assert fleet_room(replace(BATCHED, time=None), 2, 0.0, gentle=False).rows == pytest.approx(2 * 8 + 2)
    assert fleet_room(BATCHED, 0, 10.0, gentle=False).rows == 0


def load(agent: str, *, lower: int = 4, users_rps: float = 10.0, inflight: int = 0, waiting: int = 0) -> BalancerLoad:
    pods = {"10.0.0.1": PodLoad((inflight, 0), (16, 16))}
    return BalancerLoad(agent, waiting={"a": waiting}, pods=pods, users_rps=users_rps, lower=lower)


def parts(room: float, *loads: BalancerLoad, turn: int = 0, is_long: bool = False) -> list[int]:
    rooms = [
        own_room(Room(room), own, [o for o in loads if o is not own], users_rows=0.5 * room, turn=turn, is_long=is_long)
        for own in loads
    ]
    return [rows for rows, _ in rooms]


def test_balancers_divide_the_room_and_leave_none_while_users_wait_anywhere() -> None:
    assert parts(12, load("a"), load("b")) == [6, 6]
    assert parts(12, load("a"), load("b", lower=0)) == [9, 3]
    assert parts(12, load("a"), load("b", waiting=1)) == [0, 0]


def test_users_of_another_balancer_that_fill_the_pods_leave_nothing() -> None:
    own, other = load("a"), load("b", inflight=10)
    counted = own_room(Room(12), own, [other], users_rows=6, turn=0, is_long=False, counts_others=True)
    assert (counted, parts(12, own, other)) == ((2, MAX_ROWS), [6, 6])
    full = own_room(Room(12), own, [load("b", inflight=20)], users_rows=6, turn=0, is_long=False, counts_others=True)
    assert full == (0, MAX_ROWS)


def test_rows_of_a_gentle_class_are_divided_by_its_requests() -> None:
    loads = load("a", lower=9), load("b", lower=3)
    rows = [
        own_room(Room(7.2, 2.5), own, [other], users_rows=3, turn=turn, is_long=False)[1]
        for turn in range(40)
        for own, other in (loads, loads[::-1])
    ]
    assert sum(rows) / 40 == pytest.approx(2.5, abs=0.1)
    assert sum(rows[::2]) > 2 * sum(rows[1::2]) > 0


def test_room_for_a_single_request_changes_hands_with_time() -> None:
    owners = [parts(1, load("a"), load("b"), turn=turn).index(1) for turn in range(20)]
    assert 7 <= sum(owners) <= 13


def test_long_executions_leave_only_what_no_balancer_uses() -> None:
    assert parts(2, load("a", inflight=1), load("b", inflight=1), is_long=True) == [1, 1]
    assert sum(parts(4, load("a", inflight=1), load("b", inflight=1), is_long=True)) == 4
    # Three are above the room: one that ends makes none.
    assert parts(1, load("a"), load("b", inflight=3), is_long=True) == [0, 1]


@given(
    room=st.floats(0.1, 500),
    users=st.lists(st.floats(0, 1000), min_size=1, max_size=6),
    lower=st.lists(st.integers(0, 500), min_size=6, max_size=6),
    turn=st.integers(0, 10**9),
)
def test_the_parts_of_all_balancers_add_up_to_the_room(
    room: float, users: list[float], lower: list[int], turn: int
) -> None:
    loads = [load(str(index), users_rps=rate, lower=lower[index]) for index, rate in enumerate(users)]
    assert sum(parts(room, *loads, turn=turn)) in {math.floor(room), math.floor(room) + 1}


def test_the_users_rate_is_averaged_and_survives_a_new_process() -> None:
    lower_room = LowerRoom()
    for number in range(40):
        lower_room.count(ClassLoad(number * 10, 0, 0), number * 0.25)
    assert lower_room.users_rps == pytest.approx(40, rel=0.01)
    lower_room.count(ClassLoad(3, 0, 0), 10.0)
    assert lower_room.users_rps == pytest.approx(40, rel=0.01)


def test_the_users_rate_survives_seconds_without_haproxy() -> None:
    lower_room = LowerRoom()
    lower_room.count(ClassLoad(1_000_000, 0, 0), 0.0)
    lower_room.count(ClassLoad(3, 0, 0), 5.0)
    assert lower_room.users_rps == 0


def test_rows_of_users_are_measured_while_the_lower_class_is_idle() -> None:
    lower_room = LowerRoom()
    for number in range(20):
        lower_room.sample(PLAN, {"p": PodStatistics(100 * number, 300 * number)}, idle=True)
    assert lower_room.user_rows == pytest.approx(3, rel=0.01)
    for number in range(20, 40):
        lower_room.sample(PLAN, {"p": PodStatistics(100 * number, 3000 * number)}, idle=False)
    lower_room.sample(PLAN, {"p": PodStatistics(5000, 500_000)}, idle=True)
    assert lower_room.user_rows == pytest.approx(3, rel=0.01)


def test_the_variables_follow_from_the_loads() -> None:
    lower_room = LowerRoom()
    lower_room.sample(PLAN, {"p": PodStatistics(100, 100, ((1, 10, 860_000), (8, 10, 1_280_000)))}, idle=True)
    own, other = load("a", users_rps=FULL_RPS / 4), load("b", users_rps=FULL_RPS / 4)
    first = lower_room.values(PLAN, own, (other,), at_once=1, batches=True, pods=1, turn=0)
    second = lower_room.values(PLAN, other, (own,), at_once=1, batches=True, pods=1, turn=0)
    # The users leave 4 rows of the next batch, of which 3.1 are taken.
    assert first[ROOM] + second[ROOM] == 11
    # A balancer that is not known is taken to be like this one.
    alone = lower_room.values(PLAN, own, (), at_once=1, batches=True, pods=1, turn=0)
    untimed = dict.fromkeys(LOWER_VARIABLES, 0) | {USER_ROWS: 1}
    assert alone in (untimed | {ROOM: 5, LOWER_ROWS: MAX_ROWS}, untimed | {ROOM: 6, LOWER_ROWS: MAX_ROWS})
    assert lower_room.values(PLAN, own, (other,), at_once=1, batches=True, pods=0, turn=0) == untimed


def test_rows_of_a_gentle_class_are_timed_for_a_single_pod() -> None:
    lower_room = LowerRoom()
    lower_room.sample(PLAN, {"p": PodStatistics(100, 100, ((1, 10, 860_000), (8, 10, 1_280_000)))}, idle=True)
    gentle = replace(PLAN, lower_class="Gentle")
    own, other = load("a", users_rps=FULL_RPS / 4), load("b", users_rps=FULL_RPS / 4)
    variables = lower_room.values(gentle, own, (other,), at_once=1, batches=True, pods=1, turn=0)
    # A batch takes 80 ms and 6 ms a row, and rows are sent 3 ms before its end. Users alone have 3.08 rows in a batch, and 1.64 rows take
    # a tenth longer. Half of the users' rows aren't known, and each balancer sends half of the rest.
    assert variables == {
        ROOM: 16,
        LOWER_ROWS: MAX_ROWS,
        USER_ROWS: 1,
        BATCH_US: 77_000,
        ROW_US: 6000,
        NEXT_ROWS: pytest.approx(100 * (3.08 + 1.64 - 1.54) / 2, abs=1),
        NEXT_LESS: 50,
    }
    for waiting in (replace(other, waiting={"a": 1}), replace(other, late=1)):
        assert lower_room.values(gentle, own, (waiting,), at_once=1, batches=True, pods=1, turn=0)[ROOM] == 0
    for others, pods in (((other,), 2), ((replace(other, users_rps=0.0),), 0)):
        assert lower_room.values(gentle, own, others, at_once=1, batches=True, pods=pods, turn=0)[BATCH_US] == 0


@pytest.mark.parametrize(
    ("work", "rate"),
    [
        (BATCHED, 0.0),
        (SERIAL, 10.0),
        (replace(BATCHED, time=None), 10.0),
        (replace(BATCHED, at_once=16), 10.0),
        (replace(BATCHED, time=BatchTime(8, 0.02, 0.002)), 10.0),
    ],
    ids=["no users", "serial", "no time", "two instances", "short batches"],
)
def test_rows_are_sent_at_any_time_if_no_next_batch_is_known(work: PodWork, rate: float) -> None:
    assert next_batch(work, 1, rate, part=0.5, unseen=0.5, balancers=2) is None


def test_a_gentle_class_leaves_room_for_bursts_of_other_balancers_users() -> None:
    def rows(load: float, unseen: float, balancers: int) -> float:
        batch = next_batch(BATCHED, 1, load * FULL_RPS, part=1.0, unseen=unseen, balancers=balancers)
        assert batch is not None
        return batch.rows

    # One balancer knows all users.
    assert rows(0.5, 0.0, 1) == pytest.approx(3.08 + 1.64, abs=0.02)
    assert rows(0.7, 0.0, 1) > rows(0.5, 0.0, 1)
    # With two of them and a full pod, a burst of the other one would exceed a batch.
    assert rows(0.9, 0.5, 2) < rows(0.7, 0.5, 2) < rows(0.5, 0.5, 2)
    assert rows(0.5, 2 / 3, 3) < rows(0.5, 0.5, 2)
    assert rows(1.0, 0.9, 10) == 0


TABLE = """# table: counters, type: integer, size:16, used:3
0x7f: key=1 use=3 exp=0 shard=0 conn_cur=3 gpc0=70 gpc1=2 gpc2=1 gpc6=60
0x7e: key=2 use=9 exp=0 shard=0 conn_cur=9 gpc0=20 gpc1=1 gpc2=0 gpc6=15
0x7d: key=3 use=5 exp=0 shard=0 conn_cur=5 gpc0=0"""


def test_counters_of_the_classes_are_kept_apart() -> None:
    assert class_load(TABLE) == ClassLoad(users=70, present=9, sent=5)
    counts = all_counters(TABLE)
    assert (counts[0], counts[1], counts[6]) == (70, 2, 60)
    lower = lower_stats(counts, class_load(TABLE))
    assert lower is not None
    assert (lower.waiting, lower.sent, lower.requests, lower.rejected, lower.answered) == (4, 5, 20, 1, 15)
    only_users = TABLE.splitlines()[1]
    assert lower_stats(all_counters(only_users), class_load(only_users)) is None


def test_the_load_of_an_older_agent_has_no_lower_class() -> None:
    text = load("a").to_json()
    assert BalancerLoad.from_json(text) == load("a")
    older = text.replace(',"users_rps":10.0,"lower":4,"lower_sent":0', "")
    assert older != text
    assert BalancerLoad.from_json(older) == replace(load("a"), users_rps=0.0, lower=0)
