"""Requests that would miss the latency objective and wait behind all others, on the real HAProxy 3.0."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.api.documents.balancer_plan import LOWER_CLASS_HEADER
from halcyon.balancer.config import overload_rules
from halcyon.balancer.config.model import LOWER_ROWS, ROOM
from halcyon.balancer.runtime.lower_room import MAX_ROWS
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from tests.integration.balanced import PLAN, Balanced, http_response, new_balanced, until
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from tests.unit.balancer.stand_ins import Pod

pytestmark = pytest.mark.more

OBJECTIVE_S = 0.5
LIMITED = replace(
    PLAN,
    queue_limit=100_000,
    queue_timeout_ms=30_000,
    response_timeout_ms=30_000,
    max_connections=1,
    objective_ms=int(1000 * OBJECTIVE_S),
)
LONG = replace(LIMITED, objective_ms=5000)
"""Plan whose late requests wait longer than a test takes."""
IN_TIME, HOPELESS, LATE_MOST = 2, 9, 3
PACE_RPS = 10
REFUSED = "RESOURCE_EXHAUSTED"
INFER = "/v2/models/m/infer"


@dataclass
class Crowd:
    """Clients of a balancer with one pod, which computes one request at a time and answers none at first."""

    balanced: Balanced
    pod: Pod
    channel: grpc.aio.Channel
    answered: list[str] = field(default_factory=list)
    """Names of the requests that have ended, in their order."""
    codes: dict[str, str] = field(default_factory=dict)
    """Status of each request that has ended, by its name."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def send(self, *names: str) -> None:
        """Send a request of each name, and wait until it is in HAProxy or has ended."""
        for name in names:
            before = await self.present()
            self.tasks[name] = asyncio.create_task(self._send(name))

            async def has_arrived(name: str = name, before: int = before) -> bool:
                return name in self.codes or await self.present() > before

            await until(has_arrived)

    async def fill(self) -> None:
        """Send as many requests as can be in time, and as many late ones as may wait."""
        await self.send("in pod", *(f"in time {number}" for number in range(IN_TIME)))
        await self.send(*(f"late {number}" for number in range(LATE_MOST)))
        assert await self.late() == LATE_MOST

    async def present(self) -> int:
        reading = await self.balanced.haproxy.runtime.read()
        return reading.queued + reading.inflight + reading.held

    async def late(self) -> int:
        return (await self.balanced.haproxy.runtime.held_requests()).late

    async def is_late(self, count: int) -> bool:
        return await self.late() == count

    async def end(self) -> Counter[str]:
        """Let the pod answer everything, and return the number of requests by status."""
        self.go()
        await asyncio.gather(*self.tasks.values())
        return Counter(self.codes.values())

    def go(self) -> None:
        assert self.pod.hold is not None
        self.pod.hold.set()

    async def _send(self, name: str) -> None:
        call = self.channel.unary_unary(SERVICE + "ModelInfer")(b"x", timeout=30 * PATIENCE)
        try:
            self.codes[name] = str((await call.code()).name)
        except asyncio.CancelledError:
            call.cancel()
            raise
        self.answered.append(name)


@contextlib.asynccontextmanager
async def crowd(plan: BalancerPlan = LONG, *, pod_takes_s: float = 0.02) -> AsyncIterator[Crowd]:
    async with new_balanced() as balanced:
        [pod] = await balanced.start(hold=asyncio.Event(), delay_s=pod_takes_s)
        await balanced.begin(plan)
        await limit(balanced)
        async with balanced.channel as channel:
            yield Crowd(balanced, pod, channel)
        assert balanced.haproxy.worker_exits() == 0


async def limit(
    balanced: Balanced,
    *,
    in_pod: int = 1,
    late_most: int = LATE_MOST,
    late_room: int = 1,
    spread: int = 1000,
    pace_rps: int = PACE_RPS,
) -> None:
    """Set the limits that the agent computes. Limits of requests within the objective are all the same."""
    present = in_pod + IN_TIME
    values = (present, present, HOPELESS, present, late_most, late_room, 1000 * pace_rps, 100 * spread)
    names = (*overload_rules.LIMITS, *overload_rules.LATE_LIMITS)
    await balanced.haproxy.runtime.set(dict(zip(names, values, strict=True)))


async def test_late_requests_go_last_and_in_their_order() -> None:
    async with crowd() as clients:
        await clients.fill()
        clients.tasks["in time 0"].cancel()
        await until(lambda: clients.is_late(LATE_MOST))

        async def has_left() -> bool:
            return await clients.present() == IN_TIME + LATE_MOST

        await until(has_left)
        del clients.tasks["in time 0"]
        await clients.send("after them")
        assert await clients.late() == LATE_MOST
        assert await clients.end() == {"OK": 3 + LATE_MOST}
        assert clients.answered == ["in pod", "in time 1", "after them", "late 0", "late 1", "late 2"]
        assert await clients.balanced.counters() == (7, 0, 0)


async def test_a_late_request_waits_until_servers_have_room() -> None:
    async with crowd(replace(LONG, max_connections=4), pod_takes_s=0.2) as clients:
        await limit(clients.balanced, in_pod=4, late_room=2)
        await clients.send(*(f"in pod {number}" for number in range(4)), "in time 0", "in time 1")
        await clients.send("late 0", "late 1", "late 2")
        assert await clients.end() == {"OK": 9}
        await limit(clients.balanced, in_pod=4, late_room=0)
        clients.pod.hold = asyncio.Event()
        await clients.send(*(f"again {number}" for number in range(6)), "late again")
        clients.go()
        await asyncio.gather(*(clients.tasks[f"again {number}"] for number in range(6)))
        await asyncio.sleep(0.2)
        assert "late again" not in clients.codes, "there is no room for it"
        await limit(clients.balanced, in_pod=4, late_room=1)
        await clients.tasks["late again"]


async def test_a_late_request_is_rejected_when_its_time_is_over() -> None:
    async with crowd(LIMITED) as clients:
        began = time.monotonic()
        await clients.fill()
        port = clients.balanced.haproxy.ports.http
        await until(lambda: clients.is_late(0), 10)
        assert time.monotonic() - began > OBJECTIVE_S * overload_rules.LATE_OBJECTIVES * 0.9
        late = [clients.tasks[f"late {number}"] for number in range(LATE_MOST)]
        await asyncio.gather(*late)
        assert [clients.codes[f"late {number}"] for number in range(LATE_MOST)] == [REFUSED] * LATE_MOST
        # An overload that lasts: the next one is rejected at once, and later ones wait again.
        status, headers, body = await http_response(port, "POST", INFER)
        assert (status, headers["retry-after"]) == (429, "1")
        assert b"more requests for model m arrive than its pods can answer within 500 ms; retry later" in body
        assert await clients.balanced.counters() == (1 + IN_TIME + LATE_MOST + 1, LATE_MOST + 1, 0)
        await asyncio.sleep(OBJECTIVE_S * 1.1)
        await clients.send("later")
        assert await clients.late() == 1
        assert (await clients.end())[REFUSED] == LATE_MOST


async def test_too_many_late_requests_are_rejected_at_once() -> None:
    objective_s = 3 * OBJECTIVE_S
    async with crowd(replace(LIMITED, objective_ms=int(1000 * objective_s))) as clients:
        await clients.fill()
        began = time.monotonic()
        await clients.send("one too many")
        assert clients.codes["one too many"] == REFUSED
        # A place becomes free, but requests were just rejected.
        await limit(clients.balanced, late_most=LATE_MOST + 1)
        await clients.send("the next")
        assert time.monotonic() - began < objective_s, "the machine is too busy for this test"
        assert clients.codes["the next"] == REFUSED
        await asyncio.sleep(objective_s * 1.1)
        await clients.send("later")
        assert "later" not in clients.codes
        assert await clients.late() == LATE_MOST + 1
        assert await clients.end() == {REFUSED: 2, "OK": 2 + IN_TIME + LATE_MOST}


async def test_late_requests_that_come_one_after_the_other_are_an_overload() -> None:
    async with crowd() as clients:
        await clients.send("in pod", "in time 0", "in time 1")
        await limit(clients.balanced, late_most=100, spread=4)
        began = time.monotonic()
        # All of these come within half the time of an answer.
        names = [f"at once {number}" for number in range(10)]
        clients.tasks |= {name: asyncio.create_task(clients._send(name)) for name in names}
        await until(lambda: clients.is_late(10))
        assert time.monotonic() - began < 1.5 / PACE_RPS, "the machine is too busy for this test"
        for number in range(20):
            await asyncio.sleep(0.6 / PACE_RPS)
            await clients.send(f"later {number}")
            if f"later {number}" in clients.codes:
                break
        assert 2 <= number <= 5
        assert clients.codes == {f"later {number}": REFUSED}
        assert (await clients.end())["OK"] == 3 + 10 + number


@pytest.mark.parametrize("clock_back_s", [0, 3600])
async def test_moments_of_waiting_requests_count_before_one_is_late(clock_back_s: int) -> None:
    async with crowd() as clients:
        await limit(clients.balanced, in_pod=6, spread=2, pace_rps=1)
        if clock_back_s:
            last_us = round(1e6 * (time.time() + clock_back_s))
            await clients.balanced.haproxy.runtime.set({overload_rules._MOMENT_AT: last_us})
        # Most of these find another one waiting. A quarter of a moment is forgotten until the next, or more on a busy machine.
        for number in range(8):
            await clients.send(f"in time {number}")
            await asyncio.sleep(0.5)
        await clients.send("late")
        assert clients.codes == {"late": REFUSED}
        assert await clients.end() == {"OK": 8, REFUSED: 1}


async def test_a_rejection_is_over_after_the_clock_was_set_back() -> None:
    async with crowd() as clients:
        later_ms = round(1000 * (time.time() + 3600))
        await clients.balanced.haproxy.runtime.set({overload_rules._REFUSED_AT: later_ms})
        await clients.fill()
        assert await clients.end() == {"OK": 1 + IN_TIME + LATE_MOST}


async def test_moments_of_a_long_overload_are_soon_forgotten() -> None:
    async with crowd(LIMITED) as clients:
        await clients.send("in pod", "in time 0", "in time 1")
        await limit(clients.balanced, late_most=100, spread=2)
        for number in range(30):
            await clients.send(f"late {number}")
            await asyncio.sleep(0.6 / PACE_RPS)
        assert clients.codes["late 29"] == REFUSED
        # Twice the two moments, of which five are forgotten per second.
        await asyncio.sleep(2 * OBJECTIVE_S)
        await clients.send("later")
        assert "later" not in clients.codes
        await clients.end()


async def test_late_requests_in_vain_are_rejected_before_their_time_is_over() -> None:
    objective_s = 3 * OBJECTIVE_S
    async with crowd(replace(LIMITED, objective_ms=int(1000 * objective_s))) as clients:
        began = time.monotonic()
        await clients.fill()
        await limit(clients.balanced, late_most=LATE_MOST + 1)
        port = clients.balanced.haproxy.ports.http
        extra = asyncio.create_task(http_response(port, "POST", INFER))
        await until(lambda: clients.is_late(LATE_MOST + 1))
        while await clients.late() and time.monotonic() - began < 5 * objective_s:
            assert (await http_response(port, "POST", INFER))[0] == 429
            await asyncio.sleep(0.2 * OBJECTIVE_S)
        assert 1.9 * objective_s < time.monotonic() - began < 5 * objective_s
        status, headers, _ = await extra
        assert (status, headers["retry-after"]) == (429, "1")
        assert (await clients.end()) == {"OK": 1 + IN_TIME, REFUSED: LATE_MOST}


async def test_late_requests_in_turn_stay_while_others_are_rejected() -> None:
    count = 3 * LATE_MOST
    async with crowd(replace(LIMITED, objective_ms=3 * LIMITED.objective_ms), pod_takes_s=0.4) as clients:
        await limit(clients.balanced, late_most=count)
        await clients.send("in pod", "in time 0", "in time 1", *(f"late {number}" for number in range(count)))
        # As if rejections went on.
        later_ms = round(1000 * (time.time() + 60))
        await clients.balanced.haproxy.runtime.set({overload_rules._REFUSED_AT: later_ms})
        began = time.monotonic()
        clients.go()
        clients.pod.hold = None  # from now on, each answer takes a time
        await asyncio.gather(*clients.tasks.values())
        assert Counter(clients.codes.values()) == {"OK": 3 + count}
        assert time.monotonic() - began > 2.5 * 3 * OBJECTIVE_S, "none waited for longer than two objectives"


async def test_late_requests_count_towards_the_queue_limit() -> None:
    async with crowd(replace(LONG, queue_limit=IN_TIME + 1)) as clients:
        await clients.send("in pod", "in time 0", "in time 1", "late 0", "late 1")
        assert clients.codes == {"late 1": REFUSED}
        assert await clients.end() == {"OK": 4, REFUSED: 1}


async def test_late_requests_are_reported_as_waiting() -> None:
    async with crowd() as clients:
        await clients.fill()
        reading = await clients.balanced.haproxy.runtime.read()
        sample = balancer_sample(reading, "")
        assert sample is not None
        assert (sample.queued, sample.inflight, sample.held) == (IN_TIME + LATE_MOST, 1, 0)
        assert (await clients.balanced.haproxy.runtime.loads(classes=True, late=True)).late == LATE_MOST
        await clients.end()
        assert await clients.present() == 0


async def test_late_requests_whose_clients_leave_are_forgotten() -> None:
    async with crowd() as clients:
        await clients.fill()
        for number in range(LATE_MOST):
            clients.tasks.pop(f"late {number}").cancel()
        await until(lambda: clients.is_late(0))
        await clients.send("late again")
        assert await clients.late() == 1
        assert await clients.end() == {"OK": 2 + IN_TIME}
        assert clients.pod.grpc_count == 2 + IN_TIME, "requests without a client reach no server"


async def test_late_requests_are_held_when_the_last_server_leaves() -> None:
    async with crowd() as clients:
        await clients.fill()
        for _ in range(2):
            await clients.balanced.turn([])
        [other] = await clients.balanced.start()
        await until(lambda: clients.is_late(0))
        await clients.balanced.turn([other])
        assert await clients.end() == {"OK": 1 + IN_TIME + LATE_MOST}
        assert other.grpc_count == IN_TIME + LATE_MOST


async def test_late_requests_are_answered_across_a_reload() -> None:
    async with crowd() as clients:
        await clients.fill()
        before = (await clients.balanced.haproxy.runtime.read()).process
        clients.balanced.pilot.accept(replace(LONG, queue_limit=99_999))
        await clients.balanced.turn()
        assert (await clients.balanced.haproxy.runtime.read()).process != before
        assert await clients.end() == {"OK": 1 + IN_TIME + LATE_MOST}


async def test_late_requests_go_when_the_limits_are_off() -> None:
    async with crowd() as clients:
        await clients.fill()
        await clients.balanced.haproxy.runtime.set(
            dict.fromkeys((*overload_rules.LIMITS, *overload_rules.LATE_LIMITS), 0)
        )

        async def all_wait_in_haproxy() -> bool:  # one that goes is in no counter between Lua and the queue
            return await clients.late() == 0 and await clients.present() == 1 + IN_TIME + LATE_MOST

        await until(all_wait_in_haproxy)
        assert await clients.end() == {"OK": 1 + IN_TIME + LATE_MOST}


async def test_a_late_request_is_answered_after_an_error_in_lua() -> None:
    async with crowd() as clients:
        await clients.send("in pod", "in time 0", "in time 1")
        # A comparison with text is an error.
        await clients.balanced.haproxy.runtime._request(
            clients.balanced.haproxy.runtime.path,
            f"experimental-mode on;set var {overload_rules.LATE_MOST} str(many)",
            2.0,
        )
        await clients.send("late")
        assert await clients.end() == {"OK": 4}


async def test_batch_inference_waits_behind_late_requests() -> None:
    async with crowd(replace(LONG, lower_class="Fill", max_connections=4)) as clients:
        await limit(clients.balanced, in_pod=4, late_room=0)
        await clients.send(*(f"in pod {number}" for number in range(4)), "in time 0", "in time 1")
        await clients.send("late")
        await clients.balanced.haproxy.runtime.set({ROOM: 4, LOWER_ROWS: MAX_ROWS})
        port, headers = clients.balanced.haproxy.ports.http, f"{LOWER_CLASS_HEADER}: nightly\r\n"
        job = asyncio.create_task(http_response(port, "POST", INFER, headers=headers))
        clients.go()

        async def only_late_waits() -> bool:
            return await clients.present() == 1

        await until(only_late_waits)
        await asyncio.sleep(0.3)
        assert not job.done()
        assert clients.pod.http_count == 0
        await limit(clients.balanced, in_pod=4, late_room=1)
        assert (await job)[0] == 200
        assert await clients.end() == {"OK": 7}
