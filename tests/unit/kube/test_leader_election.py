"""Leader election: at most one leads, whatever the network does, and one leads soon."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.kinds import LEASE
from halcyon.kube.leader_election import (
    DURATION_S,
    RENEW_DEADLINE_S,
    RENEW_INTERVAL_S,
    ElectionStep,
    LeaderElector,
    decide,
)
from halcyon.kube.lease_fence import LeaseFence
from tests.clocks import DrivenClock
from tests.drawn import draws
from tests.unit.kube.memory_kube import Fault, Faulty, MemoryKube, no_fault
from tests.unit.kube.virtual_time import VirtualTime, run


@pytest.mark.parametrize(
    ("holder", "unchanged_s", "step"),
    [
        ("", 0, ElectionStep.ACQUIRE),
        ("", 99, ElectionStep.ACQUIRE),
        ("me", 0, ElectionStep.RENEW),
        ("me", 99, ElectionStep.RENEW),
        ("other", 0, ElectionStep.WAIT),
        ("other", 10, ElectionStep.WAIT),
        ("other", 10.1, ElectionStep.ACQUIRE),
    ],
)
def test_the_table_of_the_lease(holder: str, unchanged_s: float, step: ElectionStep) -> None:
    assert decide(holder, "me", unchanged_s=unchanged_s, duration_s=10) is step


@dataclass
class Replica:
    """An operator replica, as far as the election goes: it leads from `leading` to the end of its run."""

    elector: LeaderElector
    time: VirtualTime
    clock: DrivenClock
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    led: list[tuple[float, float]] = field(default_factory=list)
    lost: bool = False

    async def live(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self.elector.run(self.stop)
        except errors.LeaseLost:
            self.lost = True
        finally:
            if self.elector.leading.is_set():
                await watching
                self.led[-1] = (self.led[-1][0], self.time())
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        await self.elector.leading.wait()
        self.led.append((self.time(), float("inf")))

    @property
    def leads(self) -> bool:
        return self.elector.leading.is_set() and self.led[-1][1] == float("inf")


def replica(kube: MemoryKube, name: str, time: VirtualTime, fault: Fault = no_fault) -> Replica:
    client = kube.seen_by(fault)
    clock = DrivenClock(time)
    fence = LeaseFence("halcyon-system/halcyon", clock, deadline_s=RENEW_DEADLINE_S, duration_s=DURATION_S)
    return Replica(LeaderElector(client, "halcyon-system", "halcyon", name, clock, fence), time, clock)


class Slow(Faulty):
    """Each request takes so long."""

    def __init__(self, behind: MemoryKube, *, by_s: float) -> None:
        super().__init__(behind, no_fault)
        self._by_s = by_s

    @override
    async def _before(self, verb: str) -> str:
        await asyncio.sleep(self._by_s)
        return await super()._before(verb)


async def holder(kube: MemoryKube) -> str:
    lease = await kube.get(LEASE, "halcyon-system", "halcyon")
    return str(lease["spec"]["holderIdentity"]) if lease else ""


def test_the_first_leads_at_once_and_the_second_stands_by() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        first, second = replica(kube, "one", time), replica(kube, "two", time)
        async with asyncio.TaskGroup() as group:
            group.create_task(first.live())
            await asyncio.sleep(0.5)
            group.create_task(second.live())
            await asyncio.sleep(300)
            assert first.leads
            assert not second.leads
            assert second.elector.holder == "one"
            lease = await kube.get(LEASE, "halcyon-system", "halcyon")
            assert lease is not None
            assert lease["spec"]["leaseTransitions"] == 1
            second.stop.set()
            await asyncio.sleep(1)
            first.stop.set()

    run(scenario)


def test_a_leader_that_ends_hands_over_in_less_than_two_seconds() -> None:
    async def scenario(time: VirtualTime) -> float:
        kube = MemoryKube()
        first, second = replica(kube, "one", time), replica(kube, "two", time)
        async with asyncio.TaskGroup() as group:
            group.create_task(first.live())
            await asyncio.sleep(0.3)
            group.create_task(second.live())
            await asyncio.sleep(20.2)
            first.stop.set()
            stopped = time()
            await second.elector.leading.wait()
            took = time() - stopped
            second.stop.set()
        assert first.led[0][1] <= second.led[0][0]
        assert await holder(kube) == ""
        return took

    assert run(scenario) < 2


def test_a_crashed_leader_is_replaced_within_fifteen_seconds_after_its_lease_ends() -> None:
    async def scenario(time: VirtualTime) -> float:
        kube = MemoryKube()
        first, second = replica(kube, "one", time), replica(kube, "two", time)
        crashing = asyncio.create_task(first.live())
        await asyncio.sleep(0.3)
        async with asyncio.TaskGroup() as group:
            group.create_task(second.live())
            await asyncio.sleep(20)
            crashing.cancel()
            crashed = time()
            await second.elector.leading.wait()
            second.stop.set()
            return time() - crashed
        raise AssertionError

    assert DURATION_S - RENEW_INTERVAL_S <= run(scenario) < 15


@pytest.mark.parametrize("fate", ["refuse", "hang", "lose", "hang after"])
def test_a_leader_that_cannot_renew_ends_before_another_may_lead(fate: str) -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        broken = asyncio.Event()
        first = replica(kube, "one", time, lambda _: fate if broken.is_set() else "ok")
        second = replica(kube, "two", time)
        async with asyncio.TaskGroup() as group:
            group.create_task(first.live())
            await asyncio.sleep(0.3)
            group.create_task(second.live())
            await asyncio.sleep(20.9)
            broken.set()
            began = time()
            await second.elector.leading.wait()
            assert first.lost
            assert first.led[0][1] - began <= RENEW_DEADLINE_S
            assert first.led[0][1] < second.led[0][0]
            second.stop.set()

    run(scenario)


def test_a_leader_keeps_its_lease_where_each_request_takes_three_seconds() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        leader = replica(kube, "one", time)
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.live())
            await leader.elector.leading.wait()
            leader.elector.client = Slow(kube, by_s=3.0)
            await asyncio.sleep(120)
            assert leader.leads
            leader.stop.set()

    run(scenario)


def test_a_renewal_whose_answer_was_lost_is_no_reason_to_end() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube, fates = MemoryKube(), itertools.chain(["ok"] * 6, ["lose"], itertools.repeat("ok"))
        leader = replica(kube, "one", time, lambda _: next(fates))
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.live())
            await asyncio.sleep(60)
            assert leader.leads
            leader.stop.set()

    run(scenario)


def test_a_leader_that_another_has_replaced_ends() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        leader = replica(kube, "one", time)
        living = asyncio.create_task(leader.live())
        await asyncio.sleep(5)
        await kube.patch(LEASE, "halcyon-system", "halcyon", {"spec": {"holderIdentity": "somebody"}})
        await living
        assert leader.lost
        assert time() < 5 + 2 * RENEW_INTERVAL_S

    run(scenario)


def test_a_restarted_replica_of_the_same_name_goes_on_at_once() -> None:
    async def scenario(time: VirtualTime) -> float:
        kube = MemoryKube()
        crashing = asyncio.create_task(replica(kube, "one", time).live())
        await asyncio.sleep(5)
        crashing.cancel()
        again = replica(kube, "one", time)
        began = time()
        living = asyncio.create_task(again.live())
        await again.elector.leading.wait()
        again.stop.set()
        await living
        return time() - began

    assert run(scenario) == 0


def test_a_lease_without_a_holder_is_taken() -> None:
    async def scenario(time: VirtualTime) -> str:
        kube = MemoryKube()
        await kube.create(LEASE, {"metadata": {"name": "halcyon"}}, namespace="halcyon-system")
        leader = replica(kube, "one", time)
        living = asyncio.create_task(leader.live())
        await leader.elector.leading.wait()
        holder_name = await holder(kube)
        leader.stop.set()
        await living
        return holder_name

    assert run(scenario) == "one"


def test_a_hand_over_that_fails_ends_all_the_same() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        broken = asyncio.Event()
        leader = replica(kube, "one", time, lambda _: "hang" if broken.is_set() else "ok")
        living = asyncio.create_task(leader.live())
        await asyncio.sleep(1)
        broken.set()
        leader.stop.set()
        began = time()
        await living
        assert time() - began < 5

    run(scenario)


FATES = st.lists(st.sampled_from(["ok", "ok", "ok", "refuse", "lose", "hang", "hang after"]), max_size=40)


@given(first=FATES, second=FATES, third=FATES)
@draws(2.5)
def test_two_never_lead_at_once_and_one_leads_when_faults_are_over(
    first: list[str], second: list[str], third: list[str]
) -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        stop = asyncio.Event()
        lives: list[Replica] = []

        faults = {"one": deque(first), "two": deque(second), "three": deque(third)}

        async def again_and_again(name: str, left: deque[str]) -> None:
            # A process that ends is started anew, under another name as a pod would be.
            for n in range(100):
                born = replica(kube, f"{name}-{n}", time, lambda _: left.popleft() if left else "ok")
                born.stop = stop
                lives.append(born)
                await born.live()
                if stop.is_set():
                    return
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            for name, left in faults.items():
                group.create_task(again_and_again(name, left))
            for _ in range(400):
                if any(faults.values()):
                    await asyncio.sleep(1)
            assert not any(faults.values())
            await asyncio.sleep(4 * DURATION_S)
            assert sum(r.leads for r in lives) == 1
            stop.set()
        led = sorted(interval for r in lives for interval in r.led)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(led))

    run(scenario)


def knows(standby: Replica) -> bool:
    """Whether it knows that somebody leads."""
    return standby.elector.has_leader


def test_a_standby_knows_of_a_leader_until_the_lease_has_run_out() -> None:
    async def scenario(time: VirtualTime) -> None:
        kube = MemoryKube()
        first, second = replica(kube, "one", time), replica(kube, "two", time)
        assert not knows(second)
        crashing = asyncio.create_task(first.live())
        await asyncio.sleep(0.3)
        standing_by = asyncio.create_task(second.live())
        for _ in range(60):
            await asyncio.sleep(0.5)
            assert knows(second)
        assert not second.leads
        crashing.cancel()
        crashed = time()
        # Whoever asks hears the leader's last word while it may still lead, and then somebody else's at once.
        await second.elector.leading.wait()
        assert time() - crashed > DURATION_S - RENEW_INTERVAL_S
        assert knows(second)
        second.stop.set()
        await standing_by

    run(scenario)


def test_a_standby_cut_off_from_the_lease_trusts_the_leader_meanwhile() -> None:
    async def scenario(time: VirtualTime) -> float:
        kube = MemoryKube()
        cut = asyncio.Event()
        first = replica(kube, "one", time)
        second = replica(kube, "two", time, lambda _: "refuse" if cut.is_set() else "ok")
        living = asyncio.create_task(first.live())
        await asyncio.sleep(0.3)
        standing_by = asyncio.create_task(second.live())
        await asyncio.sleep(20)
        cut.set()
        began = time()
        for _ in range(200):
            if not knows(second):
                break
            await asyncio.sleep(0.1)
        took = time() - began
        for replica_ in (first, second):
            replica_.stop.set()
        await asyncio.gather(living, standing_by)
        return took

    assert DURATION_S - RENEW_INTERVAL_S <= run(scenario) <= DURATION_S + 0.1


def test_a_leader_past_its_deadline_may_not_write_until_it_renews() -> None:
    async def scenario(time: VirtualTime) -> None:
        broken = asyncio.Event()
        leader = replica(MemoryKube(), "one", time, lambda _: "hang" if broken.is_set() else "ok")
        leader.elector.fence.left_s()  # who never led isn't fenced: the API server decides about what it writes
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.live())
            for _ in range(30):
                await asyncio.sleep(1)
                leader.elector.fence.left_s()
            broken.set()
            await asyncio.sleep(RENEW_DEADLINE_S - RENEW_INTERVAL_S - 0.1)
            leader.elector.fence.left_s()
            # As after a pause: time has passed, and the elector's own round hasn't had its turn.
            leader.clock.time = lambda: time() + RENEW_INTERVAL_S + 0.2
            with pytest.raises(errors.LeaseLost, match=r"was renewed [789]\.\d s ago"):
                leader.elector.fence.left_s()

    run(scenario)
