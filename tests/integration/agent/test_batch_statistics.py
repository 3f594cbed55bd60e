"""When an agent reads the batches of its pods, over real connections. Not here: what is read (tests/unit/balancer)."""

from __future__ import annotations

import aiohttp

from halcyon.api.documents.observation_report import BatchStats
from halcyon.triton.client import Endpoint, TritonClient
from halcyon.triton.pod_sampler import MAX_WITH_BATCHES, PodSampler
from tests.ports import free_ports
from tests.unit.balancer.batch_statistics import size, stats, version
from tests.unit.balancer.stand_ins import Pod


def pods(count: int) -> list[Endpoint]:
    return [Endpoint("a", f"p-{n}", "127.76.2.1", serving=True, terminating=False) for n in range(count)]


async def test_statistics_of_a_pod_are_read_every_five_seconds_and_repeated_meanwhile() -> None:
    http, grpc, metrics = free_ports(3)
    pod = await Pod("127.76.2.1", http, grpc, metrics, page="", stats=stats(version(size(4, 10, 90_000_000)))).start(
        with_grpc=False
    )
    now = 1000.0
    async with aiohttp.ClientSession() as session:
        sensor = PodSampler(TritonClient(session, "digits", http, metrics), lambda: now)
        readings = []
        for _ in range(7):
            readings.append((await sensor.sample(pods(1)))["p-0"].batches)
            now += 1.0
        assert pod.stats_count == 2
        assert [reading.at for reading in readings if reading is not None] == [1000.0] * 5 + [1005.0] * 2
        assert readings[0] == BatchStats(1000.0, ((4, 10, 90_000),), 90_000)

        pod.stats = None
        now += 5.0
        assert (await sensor.sample(pods(1)))["p-0"].batches == BatchStats(1005.0, ((4, 10, 90_000),), 90_000)
        assert pod.stats_count == 3
        now -= 3600.0
        await sensor.sample(pods(1))
        assert pod.stats_count == 4, "a clock that was set back silences nobody"

        leaving = Endpoint("a", "p-0", "127.76.2.1", serving=True, terminating=True)
        now += 3600.0
        await sensor.sample([leaving])
        assert pod.stats_count == 4
        assert (await sensor.sample([])) == {}
    await pod.stop()


async def test_many_pods_are_read_in_turns() -> None:
    http, grpc, metrics = free_ports(3)
    pod = await Pod("127.76.2.1", http, grpc, metrics, page="", stats=stats(version(size(4, 10, 9)))).start(
        with_grpc=False
    )
    many = pods(2 * MAX_WITH_BATCHES)
    now = 1000.0
    async with aiohttp.ClientSession() as session:
        sensor = PodSampler(TritonClient(session, "digits", http, metrics), lambda: now)
        read_pods: list[set[str]] = []
        for _ in range(2):
            seen = await sensor.sample(many)
            read_pods.append({name for name, sighting in seen.items() if sighting.batches is not None})
            now += 1.0
        assert [len(names) for names in read_pods] == [MAX_WITH_BATCHES] * 2
        assert read_pods[0] | read_pods[1] == {endpoint.pod for endpoint in many}
    await pod.stop()
