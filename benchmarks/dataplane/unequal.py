"""Part `unequal`: three Triton servers, one of them three times slower, and one gRPC channel at 80 % of their capacity.

The balancer and HAProxy alone take turns. The result is the ratio of their p99 latencies within a round, as the median
over the rounds.
"""

import asyncio
from statistics import median

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.results import Found
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.dataplane.ways import ENVOY, HALCYON, HAPROXY, NGINX, Way
from benchmarks.errors import BenchError
from e2e.cluster.progress import say
from e2e.load import process
from e2e.load.settings import Load, Report

_T0_MS, _A_MS, _BATCH, _SLOWER = 20.0, 2.0, 16, 3
_LOAD = 0.8
_MOST_UNDER_WAY = 2000
_SETTLE_S = 1.0
STAND_INS = (
    f"the servers have no GPU: each server sleeps for {_T0_MS:g} + {_A_MS:g} b ms per batch of b rows, and one of the three servers sleeps three times as long",
)


def rate_rps() -> float:
    """Return 80 % of the three servers' capacity with full batches, in requests per second."""
    one = 1000 * _BATCH / (_T0_MS + _A_MS * _BATCH)
    return _LOAD * one * (2 + 1 / _SLOWER)


def run(*, short: bool) -> Found:
    """Run the part. Full: 6 rounds of 8 s for the balancer and HAProxy, 2 of 8 s for the others, 2.5 minutes.

    Short: 2 rounds of 4 s, without the others.
    """
    rounds, turn_s = (2, 4.0) if short else (6, 8.0)
    return asyncio.run(_run(rounds, turn_s, others=() if short else (NGINX, ENVOY)))


async def _run(rounds: int, turn_s: float, *, others: tuple[str, ...]) -> Found:
    quick, slow = Work("sleeps", _T0_MS, _A_MS), Work("sleeps", _T0_MS * _SLOWER, _A_MS * _SLOWER)
    reports: dict[str, list[Report]] = {}
    shares: dict[str, list[float]] = {}
    with tritons.running([quick, quick, slow]) as servers:
        addresses = [server.address for server in servers]
        with ways.peers([server.grpc for server in servers], (HAPROXY, *others)) as peers:
            if HAPROXY in peers.missing:
                raise BenchError(f"there is nothing to compare with: {peers.missing[HAPROXY]}")
            async with ways.balancers(1, ways.plan(quick.name), addresses) as made:
                pair = [ways.way(HALCYON, made), *(way for way in peers.found if way.name == HAPROXY)]
                rest = [way for way in peers.found if way.name != HAPROXY]
                for number in range(rounds):
                    turn = pair if number % 2 == 0 else pair[::-1]
                    for way in [*turn, *(rest if number < 2 else ())]:
                        before = [server.answered() for server in servers]
                        report = await asyncio.to_thread(_loaded, way, servers[0], turn_s)
                        after = [server.answered() for server in servers]
                        counts = [b - a for a, b in zip(before, after, strict=True)]
                        shares[way.name] = [round(count / max(sum(counts), 1), 3) for count in counts]
                        reports.setdefault(way.name, []).append(report)
                    p99 = ", ".join(f"{name} {told[-1].p99_ms} ms" for name, told in reports.items())
                    say(f"bench: round {number + 1} of {rounds} at {rate_rps():.0f}/s: p99 {p99}")
    return found(reports, shares, peers.missing)


def _loaded(way: Way, server: Triton, for_s: float) -> Report:
    load = Load(
        address=way.addresses[0],
        model=server.model,
        clients=_MOST_UNDER_WAY,
        rate_rps=rate_rps(),
        duration_s=for_s + _SETTLE_S,
        channels=1,
        input="x",
        shape=(1, 1),
        batch_output=None,
        who_output=None,
    )
    return process.run(load)


def found(reports: dict[str, list[Report]], shares: dict[str, list[float]], missing: dict[str, str]) -> Found:
    """Return the figures. The n-th reports of the balancer and of HAProxy belong to the same round."""
    pairs = zip(reports[HALCYON], reports[HAPROXY], strict=True)
    ratios = [mine.p99_ms / alone.p99_ms for mine, alone in pairs if mine.p99_ms and alone.p99_ms]
    return Found(
        figures={"unequal_p99_ratio": round(median(ratios), 3) if ratios else None},
        details={
            "rate_rps": round(rate_rps(), 1),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "p50_ms": {name: round(median(r.p50_ms or 0.0 for r in told), 1) for name, told in reports.items()},
            "p99_ms": {name: round(median(r.p99_ms or 0.0 for r in told), 1) for name, told in reports.items()},
            "failed": {name: sum(r.failed for r in told) for name, told in reports.items()},
            "shares": shares,
            "missing": missing,
        },
        stand_ins=(*ways.STAND_INS, *STAND_INS),
    )
