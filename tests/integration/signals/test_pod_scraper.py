"""Servers of models without a balancer are read over real sockets: so many models at once, whoever hangs.

Time is virtual. Each pod has an address of its own on this machine, and one listener is all of them: it answers as a Triton does,
or accepts and says nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import pytest
from typing_extensions import override

from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.pod_scraper import EVERY_S, MAX_AT_ONCE, PodScraper
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.observation_store import ObservationStore
from tests.clocks import DrivenClock
from tests.ports import free_ports
from tests.specs import OneSpec
from tests.unit.control.scope_builders import PVC
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run

ARRIVES_S = 0.002
LIVED_S = 12.0
SPEC = parse("any", {"model": {"source": PVC}, "traffic": {"mode": "Direct"}})


class ScrapedModels:
    """Models without a balancer, the hub, and who reads for it."""

    def __init__(self, time: VirtualTime) -> None:
        self.caches = ClusterState(MemoryKube(), enqueue=lambda _: None)
        self.hub = ObservationStore(on_report=lambda _, name, __: self._record_read(name))
        self.read: dict[str, list[float]] = defaultdict(list)
        """When each model was read to the end."""
        self.states: dict[str, set[str]] = defaultdict(set)
        """What was found of the pods of each."""
        self.hanging: set[str] = set()
        """Addresses."""
        self.talking: set[asyncio.Transport] = set()
        self.open: Counter[str] = Counter()
        """Connections to those, by address."""
        self.most = 0
        """So many of those were asked at the same moment, at most."""
        self._time = time

    def models(self, prefix: str, count: int, *, pods_each: int = 1, hang: bool = False) -> list[str]:
        """So many new models; their names."""
        names = [f"{prefix}-{n}" for n in range(count)]
        for name in names:
            meta = {"namespace": "team", "name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
            self.caches.resources._store(Key("team", name), {"metadata": meta, "spec": {}})
            for number in range(pods_each):
                address = f"127.77.{len(self.caches.pods) // 250}.{len(self.caches.pods) % 250 + 1}"
                self.caches.pods._store(Key("team", f"{name}-a-{number}"), pod(name, number, address))
                if hang:
                    self.hanging.add(address)
        return names

    async def live(self, seconds: float) -> None:
        """Read for so long."""
        [port] = free_ports(1)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Talk(self), "0.0.0.0", port, backlog=1000)
        scraping = PodScraper(
            self.caches, self.hub, OneSpec(SPEC), DrivenClock(self._time), http_port=port, metrics_port=port
        )
        reading = asyncio.ensure_future(scraping.run())
        await asyncio.sleep(seconds)
        reading.cancel()
        await asyncio.wait({reading})
        listener.close()
        for transport in [*self.talking]:
            transport.abort()
        await asyncio.sleep(EVERY_S)

    def longest_pause_s(self, models: Iterable[str]) -> float:
        """Between two reads of one of these; before its first and after its last as well."""
        every = [[0.0, *self.read[name], self._time()] for name in models]
        return max(after - before for times in every for before, after in itertools.pairwise(times))

    def _record_read(self, name: str) -> None:
        self.read[name].append(self._time())
        seen = self.hub.observe("team", name, self._time())
        assert seen is not None
        self.states[name].update(pod.state for pod in seen.pods)


class Talk(asyncio.Protocol):
    """One connection to a pod."""

    def __init__(self, world: ScrapedModels) -> None:
        self._world = world

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._world.talking.add(transport)
        self._address = str(transport.get_extra_info("sockname")[0])
        if self._hangs:
            self._world.open[self._address] += 1
            self._world.most = max(self._world.most, len(+self._world.open))

    @property
    def _hangs(self) -> bool:
        return self._address in self._world.hanging

    @override
    def data_received(self, data: bytes) -> None:
        if self._hangs:
            return
        head = data.decode().lower()
        body: object = {"model_stats": []}
        if "/repository/index" in head:
            body = [{"name": name, "version": "1", "state": "READY"} for name in self._world.read]
        text = json.dumps(body).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        if "connection: close" in head:
            self._transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._world.talking.discard(self._transport)

    @override
    def eof_received(self) -> None:
        if self._hangs:
            self._world.open[self._address] -= 1


def pod(model: str, number: int, address: str) -> Object:
    labels = {names.OWNER_LABEL: model, names.COMPONENT_LABEL: names.SERVER}
    meta = {
        "namespace": "team",
        "name": f"{model}-a-{number}",
        "uid": f"{model}-{number}",
        "resourceVersion": "1",
        "labels": labels,
    }
    ready = {"type": "Ready", "status": "True"}
    return pods.project({"metadata": meta, "status": {"phase": "Running", "podIP": address, "conditions": [ready]}})


def lived(prepare: Callable[[ScrapedModels], list[str]], seconds: float = LIVED_S) -> tuple[ScrapedModels, list[str]]:
    """The world after so long, and what was prepared in it."""

    async def scenario(time: VirtualTime) -> tuple[ScrapedModels, list[str]]:
        world = ScrapedModels(time)
        prepared = prepare(world)
        await world.live(seconds)
        return world, prepared

    return run(scenario, sockets_s=ARRIVES_S)


def test_a_bounded_number_of_hanging_models_is_read_at_once() -> None:
    def prepare(world: ScrapedModels) -> list[str]:
        world.models("hangs", 200, hang=True)
        return world.models("well", 20)

    world, well = lived(prepare)

    assert world.most == MAX_AT_ONCE
    assert world.longest_pause_s(well) < MAX_AGE_S
    assert all(world.states[name] == {"ready"} for name in well)
    hang = [name for name in world.read if name not in well]
    assert len(hang) == 200
    assert all(world.states[name] == {"unreachable"} for name in hang)


def test_a_few_hanging_models_delay_no_other() -> None:
    def prepare(world: ScrapedModels) -> list[str]:
        world.models("hangs", MAX_AT_ONCE - 4, hang=True)
        return world.models("well", 4)

    world, well = lived(prepare)

    assert world.most == MAX_AT_ONCE - 4
    assert world.longest_pause_s(well) < 2 * EVERY_S
    assert all(world.states[name] == {"ready"} for name in well)


def test_any_number_of_hanging_pods_leaves_the_others_ready() -> None:
    def prepare(world: ScrapedModels) -> list[str]:
        world.models("hangs", 40, pods_each=16, hang=True)
        return world.models("well", 20)

    world, well = lived(prepare, seconds=4.0)

    assert all(world.states[name] == {"ready"} for name in well)


def test_an_unexpected_failure_of_a_model_is_logged_and_others_are_read(caplog: pytest.LogCaptureFixture) -> None:
    def prepare(world: ScrapedModels) -> list[str]:
        [odd] = world.models("odd", 1)
        world.caches.pods.find("team", odd)[0]["status"] = None
        return world.models("well", 4)

    world, well = lived(prepare)

    assert world.longest_pause_s(well) < 2 * EVERY_S
    assert world.read.keys() == {*well}
    assert {record.message for record in caplog.records} == {"cannot read the metrics of server pods"}
