"""Part `throughput`: throughput and CPU cost of each way to the same two Triton servers.

The model does no work. Requests use gRPC. In each round, every way has a turn of one or two seconds with 32 requests in
flight, and one with a single request at a time. Shares and added latencies compare turns of the same round, and the
result is the median over the rounds.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.dataplane import h2load, tritons, ways
from benchmarks.dataplane.h2load import Loader
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.dataplane.ways import DIRECT, HALCYON, HALCYON_2, Way
from benchmarks.errors import BenchError
from e2e.cluster.progress import say

_WORK = Work("nowork")
_SERVERS = 2
_IN_FLIGHT = 32
FIRST = 2000
"""Number of requests in the first turn, which estimates the throughput of a way."""
_MIN_ANSWERED_SHARE = 0.999
"""Minimum share of the requests that h2load counts as done and that Triton counts as successful. h2load counts
rejections as done, too."""


@dataclass(frozen=True)
class Turn:
    """One turn of a way under load."""

    per_s: float
    proxy_us: float
    """CPU time of the proxies per request, in microseconds."""
    agent_us: float


def run(*, short: bool) -> PartResults:
    """Run the part. Full: 8 rounds, 3 minutes. Short: 3 rounds."""
    rounds, turn_s, singles = (3, 1.0, 500) if short else (8, 2.0, 2000)
    return asyncio.run(_run(rounds, turn_s, singles))


async def _run(rounds: int, turn_s: float, singles: int) -> PartResults:
    turns: dict[str, list[Turn]] = defaultdict(list)
    single_ms: dict[str, list[float]] = defaultdict(list)
    with tritons.running([_WORK] * _SERVERS) as servers, h2load.loader(tritons.request_body(_WORK.name)) as loader:
        addresses = [server.address for server in servers]
        with ways.peers([server.grpc for server in servers], ways.PEERS) as peers:
            async with ways.balancers(2, ways.plan(_WORK.name), addresses) as balancers:
                all_ways = [
                    Way(DIRECT, (servers[0].grpc,)),
                    ways.way(HALCYON, balancers[:1]),
                    ways.way(HALCYON_2, balancers),
                    *peers.available,
                ]
                # Estimate the throughput of each way, so that all turns take about the same time. This also opens
                # connections and runs Triton's first batches.
                rates = {
                    way.name: (await asyncio.to_thread(run_turn, loader, way, servers, FIRST)).per_s for way in all_ways
                }
                for number in range(rounds):
                    # The order is rotated, so that each way comes first equally often.
                    for way in [*all_ways[number % len(all_ways) :], *all_ways[: number % len(all_ways)]]:
                        count = max(round(rates[way.name] * turn_s), FIRST)
                        turns[way.name].append(await asyncio.to_thread(run_turn, loader, way, servers, count))
                        single_run = loader.begin(way.addresses[0], requests=singles, in_flight=1)
                        single_ms[way.name].append(await asyncio.to_thread(single_run.median_ms))
                    direct = turns[DIRECT][-1].per_s
                    shares = ", ".join(
                        f"{name} {way_turns[-1].per_s / direct:.2f}" for name, way_turns in turns.items()
                    )
                    say(f"bench: round {number + 1} of {rounds}: direct {direct:.0f}/s; shares: {shares}")
    return figures(turns, single_ms, peers.missing)


def run_turn(loader: Loader, way: Way, servers: Sequence[Triton], count: int) -> Turn:
    """Run one turn of a way with `count` requests.

    Raises:
        BenchError: these servers didn't answer all of them.
    """
    before, proxies, agents = sum(s.answered() for s in servers), way.cpu_s(), way.agents_cpu_s()
    running = [
        loader.begin(address, requests=count // len(way.addresses), in_flight=_IN_FLIGHT // len(way.addresses))
        for address in way.addresses
    ]
    rates = [load.rate() for load in running]
    proxies, agents = way.cpu_s() - proxies, way.agents_cpu_s() - agents
    answered = sum(s.answered() for s in servers) - before
    done = sum(rate.succeeded for rate in rates)
    if answered < _MIN_ANSWERED_SHARE * done or not done:
        raise BenchError(
            f"{way.name}: h2load counts {done} answers and Triton {answered}: the rest were refusals; "
            "see the way's configuration in benchmarks/dataplane"
        )
    return Turn(sum(rate.per_s for rate in rates), 1e6 * proxies / answered, 1e6 * agents / answered)


def figures(turns: dict[str, list[Turn]], single_ms: dict[str, list[float]], missing: dict[str, str]) -> PartResults:
    """Return the figures. The n-th turns of all ways belong to the same round."""
    names = [name for name in turns if name != DIRECT]
    shares = {
        name: [turn.per_s / direct.per_s for turn, direct in zip(turns[name], turns[DIRECT], strict=True)]
        for name in names
    }
    added = {
        name: [latency - direct for latency, direct in zip(single_ms[name], single_ms[DIRECT], strict=True)]
        for name in names
    }
    cpu_us = {name: round(median(turn.proxy_us for turn in turns[name]), 1) for name in names}
    added_ms = {name: round(median(added[name]), 3) for name in names}
    return PartResults(
        figures={
            "throughput_share": {name: round(median(shares[name]), 3) for name in names} | dict.fromkeys(missing),
            "cpu_us_per_request": cpu_us[HALCYON],
            "added_latency_ms_p50": added_ms[HALCYON],
        },
        details={
            "cpu_us_per_request": cpu_us | dict.fromkeys(missing),
            "added_latency_ms_p50": added_ms | dict.fromkeys(missing),
            "rounds": len(turns[DIRECT]),
            "direct_per_s": round(median(turn.per_s for turn in turns[DIRECT])),
            "direct_ms_p50": round(median(single_ms[DIRECT]), 3),
            "agent_us_per_request": round(median(turn.agent_us for turn in turns[HALCYON]), 1),
            "share_spread": {name: [round(min(values), 3), round(max(values), 3)] for name, values in shares.items()},
            "share_of_haproxy": round(
                median(
                    turn.per_s / peer.per_s
                    for turn, peer in zip(turns[HALCYON], turns.get(ways.HAPROXY, turns[HALCYON]), strict=True)
                ),
                3,
            ),
            "missing": missing,
        },
        stand_ins=ways.STAND_INS,
    )
