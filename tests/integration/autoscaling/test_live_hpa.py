"""What an HPA does that reads our metric and syncs every second: hand-overs, modes that leave the count to people, restarts.

The API server, the HPA controller, the aggregated API, the operator and the way of the agents' records are real; the pods are
KWOK's, and what the agents say is made up (`benchmarks.stand_in`).
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmarks.agents import Agents
from benchmarks.counts import Counts
from benchmarks.plane import Plane, alone, model, namespace_of, plane
from halcyon.kube import kinds
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

RATE_RPS = 180.0
"""3.3 replicas' worth."""
NEEDED = 4
SYNCS_S = 4.0
"""In which the HPA syncs three times at least."""
AT_REST_S = 12.0
LIMIT_S = 60.0 * PATIENCE


@pytest.fixture(scope="module")
def live_plane() -> Iterator[Plane]:
    with alone(beside=True), plane(hpa_sync_s=1, pods=60) as started:
        yield started


class Subject:
    """One model under a steady load."""

    def __init__(self, name: str, counts: Counts) -> None:
        self.name, self.counts = name, counts

    @property
    def count(self) -> int:
        return self.counts.count(self.name)

    async def mode(self) -> str | None:
        """The one that is in force."""
        return ((await self.status()).get("scaling") or {}).get("mode")

    async def actuator(self) -> str | None:
        return self.counts.actuator(self.name)

    def changes_since(self, when_s: float) -> list[int]:
        """The counts that were written."""
        return [count for at, count in self.counts.replicas[self.name] if at >= when_s]

    async def change(self, **scaling: Any) -> None:
        await self._merge({"spec": {"scaling": scaling}})

    async def pause(self, count: int) -> None:
        """Pause scaling at this count, in one update."""
        await self._merge({"spec": {"replicas": count, "scaling": {"mode": "Paused"}}})

    async def scale(self, count: int) -> None:
        """As a person does it."""
        await self._merge({"spec": {"replicas": count}}, subresource="scale")

    async def status(self) -> dict[str, Any]:
        resource = await self.counts.client.get(kinds.MODEL_DEPLOYMENT, namespace_of(self.name), self.name)
        return dict((resource or {}).get("status") or {})

    async def hpa_reads(self) -> str | None:
        """The value that the HPA has last read; None where there is no HPA, or it has read none."""
        hpa = await self.counts.client.get(kinds.HPA, namespace_of(self.name), self.name)
        metrics = ((hpa or {}).get("status") or {}).get("currentMetrics") or [{}]
        current = (metrics[0].get("external") or {}).get("current") or {}
        return current.get("averageValue")

    async def _merge(self, patch: dict[str, Any], *, subresource: str = "") -> None:
        await self.counts.client.patch(
            kinds.MODEL_DEPLOYMENT, namespace_of(self.name), self.name, patch, subresource=subresource
        )


@asynccontextmanager
async def loaded(live_plane: Plane, name: str, **scaling: Any) -> AsyncIterator[Subject]:
    """A model that has come to rest under its load."""
    async with (
        Counts(live_plane.kubeconfig, namespace_of) as counts,
        Agents(live_plane, counts, spread_s=0.0) as agents,
    ):
        document = model(name, most=10, targets={"latency": "500ms"}, **scaling)
        await counts.client.create(kinds.MODEL_DEPLOYMENT, document, namespace=namespace_of(name))
        await counts.until_served([name], limit_s=LIMIT_S)
        await agents.begin([name])
        agents.set_rate(name, 30.0)
        await asyncio.sleep(5)
        agents.set_rate(name, RATE_RPS)
        await counts.until(lambda: counts.count(name) >= NEEDED, goal="the load is planned for", limit_s=LIMIT_S)
        await asyncio.sleep(AT_REST_S)
        yield Subject(name, counts)
        agents.check()
        await counts.client.delete(kinds.MODEL_DEPLOYMENT, namespace_of(name), name)
    await sockets_end()


async def sockets_end() -> None:
    """TLS says goodbye behind aiohttp's back, and its peer may take its time: a loop that ended first would leave the socket open."""
    watched = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # no public name tells
    end_s = time.monotonic() + LIMIT_S
    # Its own pipe stays.
    while len(watched.get_map()) > 1:
        assert time.monotonic() < end_s, list(watched.get_map().values())
        await asyncio.sleep(0.01)


async def is_so(read: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """Until it is; `read` is asked four times a second."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        value = await read()
        if value == expected:
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"it is {value!r}; {expected!r} was waited for {LIMIT_S:.0f} s")


async def test_a_hand_over_between_live_hpa_and_operator_changes_no_replicas(live_plane: Plane) -> None:
    async with loaded(live_plane, "handed-over", actuator="HPA") as subject:
        held, began_s = subject.count, time.monotonic()
        await is_so(subject.hpa_reads, "1")  # the desired count over the present one
        for actuator in ("Direct", "HPA", "Direct", "HPA"):
            await subject.change(actuator=actuator)
            await is_so(subject.actuator, actuator)
            await asyncio.sleep(SYNCS_S)
        await is_so(subject.hpa_reads, "1")
        assert (subject.count, subject.changes_since(began_s)) == (held, [])


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
async def test_replicas_set_by_a_person_stay_despite_a_live_hpa(live_plane: Plane, mode: str) -> None:
    async with loaded(live_plane, mode.lower(), actuator="HPA") as subject:
        held = subject.count
        await subject.change(mode=mode)
        await is_so(subject.mode, mode)
        await asyncio.sleep(SYNCS_S)
        began_s = time.monotonic()
        await subject.scale(held + 3)
        await asyncio.sleep(2 * SYNCS_S)
        assert subject.changes_since(began_s) == [held + 3]
        assert (await subject.status())["scaling"]["desired"] == held

        await subject.change(mode="Active")
        await subject.counts.until(lambda: subject.count == held, goal="it is as planned", limit_s=LIMIT_S)


@pytest.mark.parametrize("actuator", ["HPA", "Direct"])
async def test_replicas_set_with_a_pause_stay_despite_a_live_scaler(live_plane: Plane, actuator: str) -> None:
    async with loaded(live_plane, f"paused-{actuator.lower()}", actuator=actuator) as subject:
        held = subject.count
        for more in (3, 2, 3, 2):
            began_s = time.monotonic()
            await subject.pause(held + more)
            await is_so(subject.mode, "Paused")
            await asyncio.sleep(SYNCS_S)
            assert subject.changes_since(began_s) == [held + more]

            await subject.change(mode="Active")
            await subject.counts.until(lambda: subject.count == held, goal="it is as planned", limit_s=LIMIT_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ends", "is killed"])
async def test_an_operator_that_restarts_under_load_changes_no_replicas(
    live_plane: Plane, number: signal.Signals
) -> None:
    async with loaded(live_plane, f"restarted-{number}", actuator="HPA") as subject:
        held, began_s = subject.count, time.monotonic()
        live_plane.operator.signal(number)
        await asyncio.to_thread(live_plane.operator.stop)
        await asyncio.sleep(SYNCS_S)  # the HPA hears nothing
        live_plane.operator.start()
        await asyncio.to_thread(live_plane.operator.wait_ready, LIMIT_S)
        await asyncio.sleep(AT_REST_S)
        await is_so(subject.hpa_reads, "1")
        assert (subject.count, subject.changes_since(began_s)) == (held, [])
