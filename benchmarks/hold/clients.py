"""Deeds of a hostile client, with and without a key, beside 20 models under load: row 1.1.2 of docs/quality/hold.md.

    python -m benchmarks.hold.clients [DEED...] [--seconds N] [--minutes N] [--again]
    python -m benchmarks.hold.clients --report

Each deed (`tests.adversary.client.deeds`) is aimed in turns at a plain HAProxy with a server of its own, and at the model's balancer, which
has the chart's limits. Attacker and clients share the cores in both cases, so the ratio of the clients' waits is what the balancer itself
makes them wait.

Each call measures deeds that have no result for this code and time. The results are in docs/quality/data/adversary, so the same command
resumes the campaign.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hold.deed_results import DeedResult, code_of, load, measured, run, save
from benchmarks.quality.rows import Row
from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.balancer.config.haproxy_cfg import LUA
from halcyon.render.balancer import AGENT_MEMORY_MIB
from tests.adversary.client.deeds import DEEDS
from tests.adversary.client.scene import WORK_S, Scene, Waits, scene
from tests.integration import crowd

NAME = "clients"
_ID = "1.1.2"
MODELS = 20
"""Number of other models under load."""
SECONDS = 60.0
TURNS = 3
"""Number of turns of each deed at the balancer, and at the plain server."""
_CLIENTS = ("http", "grpc", "other model")
"""Clients whose waits are compared; the kubelet's probes and the scrapes are too few."""
_STAND_INS = (
    "servers are stand-ins for Triton, those of the attacked model and of the plain server in processes of their own; the agent's "
    "API server and collector are those of the integration tests; no cluster"
)


async def _measured(scene: Scene, deed: str, seconds: float) -> dict[str, Any]:
    beside, waits = Waits(), Waits()
    for turn in range(TURNS):
        # Plain, balancer, balancer, plain, and so on: a slow change of the machine adds to both.
        for is_plain in (True, False) if turn % 2 == 0 else (False, True):
            await scene.under(deed, seconds / TURNS, plain=is_plain, into=beside if is_plain else waits)
    return {
        "requests": waits.count,
        "failures": dict(waits.failures),
        "failures_beside": dict(beside.failures),
        "p99_ms": {client: waits.within_ms(client) for client in _CLIENTS},
        "p99_beside_ms": {client: beside.within_ms(client) for client in _CLIENTS},
        "p50_ms": {client: waits.within_ms(client, 0.5) for client in _CLIENTS},
        "p50_beside_ms": {client: beside.within_ms(client, 0.5) for client in _CLIENTS},
        "growth_percent": {
            client: round(100 * (waits.within_ms(client) / beside.within_ms(client) - 1), 1) for client in _CLIENTS
        },
        "restarts": scene.restarts(),
        "memory_percent": round(100 * scene.memory_share(HAPROXY_MEMORY_MIB), 1),
        "agent_memory_percent": round(100 * scene.agent_memory_share(AGENT_MEMORY_MIB), 1),
    }


async def _deeds(names: Sequence[str], seconds: float, code: str, until_s: float) -> None:
    for deed in names:
        if time.monotonic() + 2 * seconds > until_s:
            print(f"the time is over before {deed!r}; the same command goes on")
            return
        # Each has processes of its own, whose largest memory is that of this deed.
        with tempfile.TemporaryDirectory() as folder:
            async with scene(Path(folder), models=MODELS) as setup:
                figures = await _measured(setup, deed, seconds)
        print(deed, json.dumps(figures), flush=True)
        save(NAME, load(NAME) | {deed: measured(seconds, code, figures)})


def row(results: Mapping[str, DeedResult], code: str) -> Row:
    """Return the row of these results."""
    by_deed = {deed: result.figures for deed, result in results.items()}
    growths = [growth for figures in by_deed.values() for growth in figures["growth_percent"].values()]
    others = [figures["growth_percent"]["other model"] for figures in by_deed.values()]
    worst = {
        deed: max(figures["growth_percent"].values())
        for deed, figures in by_deed.items()
        if max(figures["growth_percent"].values()) > 10
    }
    falls = sorted(worst, key=lambda deed: -worst[deed])
    failed = [deed for deed, figures in by_deed.items() if figures["failures"]]
    reasons = (
        [f"{len(falls)} deeds grow by more than 10 %, the most {', '.join(map(repr, falls[:5]))}"] if falls else []
    )
    reasons += [f"requests failed under {', '.join(map(repr, failed))}"] if failed else []
    return Row(
        _ID,
        f"deeds of a client, with and without a key, beside clients of the same model and of {MODELS} others",
        {
            "deeds": len(by_deed),
            "failed_requests": sum(sum(figures["failures"].values()) for figures in by_deed.values()),
            "p99_growth_percent": max(growths),
            "p99_growth_percent_median": round(statistics.median(growths), 1),
            "p99_growth_percent_other_models": max(others),
            "deeds_within_10_percent": len(by_deed) - len(falls),
            "restarts": sum(figures["restarts"] for figures in by_deed.values()),
            "memory_percent": max(figures["memory_percent"] for figures in by_deed.values()),
            "agent_memory_percent": max(figures["agent_memory_percent"] for figures in by_deed.values()),
            "seconds_per_deed": min(result.seconds for result in results.values()),
            "on this code": sum(result.code == code for result in results.values()),
        },
        "0 failed requests, p99 at most 10 % above that under the same deed at a plain server, 0 restarts, memory below 80 %; 60 s a deed",
        [
            ("deeds", len(DEEDS), ">="),
            ("failed_requests", 0, "=="),
            ("p99_growth_percent", 10, "<="),
            ("restarts", 0, "=="),
            ("memory_percent", 80, "<="),
            ("agent_memory_percent", 80, "<="),
            ("seconds_per_deed", 60, ">="),
        ],
        command="python -m benchmarks.hold.clients",
        stand_ins=_STAND_INS,
        why="; ".join(reasons),
        n=sum(figures["requests"] for figures in by_deed.values()),
        law=f"{1000 * WORK_S:g} ms",
        load=f"two clients with 50 requests/s at most each, and one of each other model with {2:g}/s; in {TURNS} turns",
        raw=by_deed,
    )


def main(argv: list[str]) -> int:
    """Measure deeds, and record the row of all results so far."""
    code = code_of("halcyon.balancer.agent.main", LUA.values())

    def measure(chosen: Sequence[str], seconds: float, until_s: float) -> None:
        with crowd.files(18_000):
            asyncio.run(_deeds(chosen, seconds, code, until_s))

    return run(
        argv,
        name=NAME,
        prog="benchmarks.hold.clients",
        deeds=list(DEEDS),
        seconds=SECONDS,
        code=code,
        measure=measure,
        row=lambda results: row(results, code),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
