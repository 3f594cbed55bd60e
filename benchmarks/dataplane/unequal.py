"""Part `unequal`: three Triton servers, one of them three times slower, and one gRPC channel at 80 % of their capacity.

The balancer and HAProxy alone take turns. The result is the ratio of their p99 latencies within a round, as the median
over the rounds.
"""

import asyncio
from statistics import median

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.dataplane.ways import ENVOY, HALCYON, HAPROXY, NGINX, Way
from benchmarks.errors import BenchError
from e2e.cluster.progress import say
from e2e.load import process
from e2e.load.settings import Load, Report

_T0_MS, _A_MS, _BATCH, _SLOWER = 20.0, 2.0, 16, 3
_LOAD = 0.8
_MAX_IN_FLIGHT = 2000
_SETTLE_S = 1.0
STAND_INS = (
    f"the servers have no GPU: each server sleeps for {_T0_MS:g} + {_A_MS:g} b ms per batch of b rows, and one of the three servers sleeps three times as long",
)


def rate_rps() -> float:
    """Return 80 % of the three servers' capacity with full batches, in requests per second."""
    server_rps = 1000 * _BATCH / (_T0_MS + _A_MS * _BATCH)
    return _LOAD * server_rps * (2 + 1 / _SLOWER)


def run(*, short: bool) -> PartResults:
    """Run the part. Full: 6 rounds of 8 s for the balancer and HAProxy, 2 of 8 s for the others, 2.5 minutes.

    Short: 2 rounds of 4 s, without the others.
    """
    rounds, turn_s = (2, 4.0) if short else (6, 8.0)
    return asyncio.run(_run(rounds, turn_s, others=() if short else (NGINX, ENVOY)))


async def _run(rounds: int, turn_s: float, *, others: tuple[str, ...]) -> PartResults:
    quick, slow = Work("sleeps", _T0_MS, _A_MS), Work("sleeps", _T0_MS * _SLOWER, _A_MS * _SLOWER)
    reports: dict[str, list[Report]] = {}
    shares: dict[str, list[float]] = {}
    with tritons.running([quick, quick, slow]) as servers:
        addresses = [server.address for server in servers]
        with ways.peers([server.grpc for server in servers], (HAPROXY, *others)) as peers:
            if HAPROXY in peers.missing:
                raise BenchError(f"there is nothing to compare with: {peers.missing[HAPROXY]}")
            async with ways.balancers(1, ways.plan(quick.name), addresses) as balancers:
                pair = [ways.way(HALCYON, balancers), *(way for way in peers.available if way.name == HAPROXY)]
                other_ways = [way for way in peers.available if way.name != HAPROXY]
                for number in range(rounds):
                    turn = pair if number % 2 == 0 else pair[::-1]
                    for way in [*turn, *(other_ways if number < 2 else ())]:
                        before = [server.answered() for server in servers]
                        report = await asyncio.to_thread(_run_load, way, servers[0], turn_s)
                        after = [server.answered() for server in servers]
                        counts = [b - a for a, b in zip(before, after, strict=True)]
                        shares[way.name] = [round(count / max(sum(counts), 1), 3) for count in counts]
                        reports.setdefault(way.name, []).append(report)
                    p99 = ", ".join(f"{name} {way_reports[-1].p99_ms} ms" for name, way_reports in reports.items())
                    say(f"bench: round {number + 1} of {rounds} at {rate_rps():.0f}/s: p99 {p99}")
    return figures(reports, shares, peers.missing)


def _run_load(way: Way, server: Triton, for_s: float) -> Report:
    load = Load(
        address=way.addresses[0],
        model=server.model,
        clients=_MAX_IN_FLIGHT,
        rate_rps=rate_rps(),
        duration_s=for_s + _SETTLE_S,
        channels=1,
        input="x",
        shape=(1, 1),
        batch_output=None,
        who_output=None,
    )
    return process.run(load)


def figures(reports: dict[str, list[Report]], shares: dict[str, list[float]], missing: dict[str, str]) -> PartResults:
    """Return the figures. The n-th reports of the balancer and of HAProxy belong to the same round."""
    pairs = zip(reports[HALCYON], reports[HAPROXY], strict=True)
    ratios = [report.p99_ms / alone.p99_ms for report, alone in pairs if report.p99_ms and alone.p99_ms]
    return PartResults(
        figures={"unequal_p99_ratio": round(median(ratios), 3) if ratios else None},
        details={
            "rate_rps": round(rate_rps(), 1),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "p50_ms": {
                name: round(median(r.p50_ms or 0.0 for r in way_reports), 1) for name, way_reports in reports.items()
            },
            "p99_ms": {
                name: round(median(r.p99_ms or 0.0 for r in way_reports), 1) for name, way_reports in reports.items()
            },
            "failed": {name: sum(r.failed for r in way_reports) for name, way_reports in reports.items()},
            "shares": shares,
            "missing": missing,
        },
        stand_ins=(*ways.STAND_INS, *STAND_INS),
    )
