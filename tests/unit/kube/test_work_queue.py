"""The work queue: whatever is done with it, no key is lost and none is worked on twice at once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from halcyon.kube.kinds import Key
from halcyon.kube.work_queue import BACKOFF_MOST_S, MIN_RETRY_S, Priority, WorkQueue
from tests.clocks import DrivenClock
from tests.drawn import draws
from tests.unit.kube.virtual_time import VirtualTime, run

A, B, C = Key("ns", "a"), Key("ns", "b"), Key("ns", "c")
KEYS = st.sampled_from([A, B, C])
PRIORITIES = st.sampled_from(list(Priority))


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queue(clock: Clock | None = None) -> WorkQueue:
    return WorkQueue(DrivenClock(clock or Clock()), jitter=lambda: 1.0)


def drain(work: WorkQueue) -> list[Key]:
    keys = []
    while (key := work.take()) is not None:
        keys.append(key)
        work.done(key)
    return keys


class Machine(RuleBasedStateMachine):
    """Random operations, and beside them the least that a queue must remember."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = queue(self.clock)
        self.soon: set[Key] = set()
        self.later: dict[Key, float] = {}
        """The earliest time at which a key must come by itself."""
        self.working: set[Key] = set()
        self.resting: dict[Key, float] = {}
        """Until when a key that failed is left alone."""

    def promote(self) -> None:
        due = {key for key, at in self.later.items() if at <= self.clock.now}
        self.soon |= due
        for key in due:
            del self.later[key]

    def put_off(self, key: Key, at: float) -> None:
        self.later[key] = min(at, self.later.get(key, at))

    def ask(self, key: Key) -> None:
        rest = self.resting.get(key, 0.0)
        if key not in self.working and rest > self.clock.now:
            self.put_off(key, rest)
        else:
            self.soon.add(key)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: Key, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.ask(key)

    @rule(key=KEYS, delay_s=st.floats(0, 20), priority=PRIORITIES)
    def add_after(self, key: Key, delay_s: float, priority: Priority) -> None:
        self.queue.add_after(key, delay_s, priority)
        self.put_off(key, self.clock.now + delay_s)

    @rule(step_s=st.floats(0, 15))
    def wait(self, step_s: float) -> None:
        self.clock.now += step_s

    @rule()
    def take(self) -> None:
        self.promote()
        due = self.soon - self.working
        key = self.queue.take()
        assert (key is None) == (not due)
        if key is not None:
            assert key in due
            self.working.add(key)
            self.soon.discard(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), delay_s=st.floats(0, 20))
    def postpone(self, data: st.DataObject, delay_s: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.postpone(key, delay_s)
        self.put_off(key, self.clock.now + delay_s)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), succeeds=st.booleans())
    def let_go(self, data: st.DataObject, succeeds: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        if succeeds:
            self.queue.succeed(key)
            self.resting.pop(key, None)
        else:
            delay_s = self.queue.fail(key)
            self.put_off(key, self.clock.now + delay_s)
            self.resting[key] = self.clock.now + min(delay_s, MIN_RETRY_S)
        self.queue.done(key)
        self.working.discard(key)
        if key in self.soon:
            self.soon.discard(key)
            self.ask(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.working == len(self.working)

    def teardown(self) -> None:
        for key in self.working:
            self.queue.done(key)
        self.clock.now += 1000
        assert set(drain(self.queue)) == self.soon | set(self.later)
        assert len(self.queue) == self.queue.waiting == 0


TestMachine = Machine.TestCase
TestMachine.settings = draws(6, steps=30)


def test_a_key_is_in_it_once() -> None:
    work = queue()
    for _ in range(3):
        work.add(A)

    assert len(work) == 1
    assert drain(work) == [A]


def test_keys_that_scaling_waits_for_go_first() -> None:
    work = queue()
    work.add(A)
    work.add(B)
    work.add(C, Priority.COUNT)
    work.add(B, Priority.COUNT)

    assert drain(work) == [C, B, A]


def test_postponed_keys_are_as_urgent_as_before() -> None:
    clock = Clock()
    work = queue(clock)
    for key, priority in ((A, Priority.CHANGE), (B, Priority.COUNT), (C, Priority.RESYNC)):
        work.add(key, priority)
    while (key := work.take()) is not None:
        work.postpone(key, 0.05)
        work.done(key)
    clock.now += 0.1

    assert drain(work) == [B, A, C]


def test_a_change_goes_before_a_resync_and_equals_go_in_order() -> None:
    work = queue()
    work.add(A, Priority.RESYNC)
    work.add(B, Priority.CHANGE)
    work.add(C, Priority.CHANGE)

    assert drain(work) == [B, C, A]


def test_a_resync_becomes_a_change_and_never_the_other_way() -> None:
    work = queue()
    work.add(A, Priority.RESYNC)
    work.add(B, Priority.RESYNC)
    work.add(B, Priority.CHANGE)
    work.add(B, Priority.RESYNC)

    assert drain(work) == [B, A]


def test_a_key_added_during_its_work_returns_with_its_best_priority() -> None:
    work = queue()
    work.add(A)
    assert work.take() == A
    work.add(A, Priority.RESYNC)
    work.add(A, Priority.CHANGE)
    work.add(B, Priority.RESYNC)

    assert work.take() == B
    assert work.take() is None
    work.done(A)
    assert work.take() == A


def test_a_delayed_key_comes_at_the_earliest_of_its_times_and_once() -> None:
    clock = Clock()
    work = queue(clock)
    work.add_after(A, 10)
    work.add_after(A, 5)
    work.add_after(A, 7)
    assert work.waiting == 1

    clock.now += 4.9
    assert work.take() is None
    clock.now += 0.2
    assert drain(work) == [A]
    clock.now += 100
    assert work.take() is None


def test_the_backoff_grows_to_its_maximum_and_resets_after_a_success() -> None:
    work = queue()
    delays = [work.fail(A) for _ in range(15)]

    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays == sorted(delays)
    assert delays[-1] == BACKOFF_MOST_S
    assert work.fail(B) == 0.2
    work.succeed(A)
    assert work.fail(A) == 0.2


def test_a_backoff_waits_as_long_as_the_api_server_requests() -> None:
    assert queue().fail(A, at_least_s=30) == 30


def test_a_backoff_is_never_longer_than_the_longest() -> None:
    day_s = 86400  # Retry-After of a gateway under maintenance
    assert queue().fail(A, at_least_s=day_s) == BACKOFF_MOST_S


@pytest.mark.parametrize(("jitter", "delay_s"), [(0.0, 0.1), (1.0, 0.2)])
def test_jitter_takes_up_to_half_of_a_backoff(jitter: float, delay_s: float) -> None:
    assert WorkQueue(DrivenClock(Clock()), jitter=lambda: jitter).fail(A) == delay_s


def test_a_failed_key_comes_back_by_itself_with_a_change_s_priority() -> None:
    clock = Clock()
    work = queue(clock)
    work.add(A)
    work.take()
    work.fail(A)
    work.done(A)
    work.add(B, Priority.RESYNC)
    assert work.take() == B

    clock.now += 1
    work.add(C, Priority.RESYNC)
    assert drain(work) == [A, C]


def test_workers_wait_for_keys_and_share_them() -> None:
    async def scenario(time: VirtualTime) -> list[tuple[float, Key]]:
        work = WorkQueue(DrivenClock(time), jitter=lambda: 1.0)
        starts: list[tuple[float, Key]] = []
        busy: set[Key] = set()

        async def worker() -> None:
            while True:
                key = await work.get()
                assert key not in busy
                busy.add(key)
                starts.append((time(), key))
                await asyncio.sleep(1)
                busy.discard(key)
                work.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(2)]
        await asyncio.sleep(5)
        work.add(A)
        work.add(B)
        work.add(C)
        work.add_after(A, 0.5)
        work.add_after(B, 10)
        await asyncio.sleep(20)
        for task in workers:
            task.cancel()
        return starts

    starts = run(scenario)

    assert [key for _, key in starts] == [A, B, C, A, B]
    assert [round(at, 2) for at, _ in starts] == [5, 5, 6, 6, 15]


def test_a_worker_that_is_cancelled_while_it_waits_loses_no_key() -> None:
    async def scenario(time: VirtualTime) -> Key:
        work = WorkQueue(DrivenClock(time))
        waiting = asyncio.create_task(work.get())
        await asyncio.sleep(0)
        waiting.cancel()
        work.add(A)
        return await work.get()

    assert run(scenario) == A
