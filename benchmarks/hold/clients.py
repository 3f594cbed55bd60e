"""25 deeds of a hostile client: the part of row 1.1 of build/quality/hold.json that is about clients.

    python -m benchmarks.hold.clients [DEED...] [--seconds N]

Each deed (`tests.adversary.client.deeds`) is aimed at a plain HAProxy first, and then at the model's balancer. Attacker and
clients share the cores in both cases, so the ratio of the clients' waits is what the balancer itself makes them wait.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.quality import rows
from benchmarks.quality.rows import Row
from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.render.balancer import AGENT_MEMORY_MIB
from tests.adversary.client.deeds import DEEDS
from tests.adversary.client.scene import WORK_S, Scene, scene
from tests.integration import crowd

_ID = "1.1.2"
_CLIENTS = ("http", "grpc", "other model")
"""Clients whose waits are compared; the kubelet's probes and the scrapes are too few."""
_STAND_INS = "servers are stand-ins for Triton; the agent's API server and collector are those of the integration tests; two models, no cluster"


async def _measured(made: Scene, deed: str, seconds: float) -> dict[str, Any]:
    beside = await made.under(deed, seconds, plain=True)
    waits = await made.under(deed, seconds)
    return {
        "requests": waits.count,
        "failures": dict(waits.failures),
        "p99_ms": {client: waits.within_ms(client) for client in _CLIENTS},
        "p99_beside_ms": {client: beside.within_ms(client) for client in _CLIENTS},
        "growth_percent": {
            client: round(100 * (waits.within_ms(client) / beside.within_ms(client) - 1), 1) for client in _CLIENTS
        },
        "restarts": made.restarts(),
        "memory_percent": round(100 * made.memory_share(HAPROXY_MEMORY_MIB), 1),
        "agent_memory_percent": round(100 * made.agent_memory_share(AGENT_MEMORY_MIB), 1),
    }


async def _deeds(names: list[str], seconds: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for deed in names:
        # Each has processes of its own, whose largest memory is that of this deed.
        with tempfile.TemporaryDirectory() as folder:
            async with scene(Path(folder)) as made:
                results[deed] = await _measured(made, deed, seconds)
        print(deed, json.dumps(results[deed]), flush=True)
    return results


def row(results: dict[str, Any], seconds: float) -> Row:
    """Return the row of these results."""
    growths = [growth for one in results.values() for growth in one["growth_percent"].values()]
    worst = max(results, key=lambda deed: max(results[deed]["growth_percent"].values()))
    return Row(
        _ID,
        "25 deeds of a client, with and without a key, beside clients of the same and of another model",
        {
            "deeds": len(results),
            "failed_requests": sum(sum(one["failures"].values()) for one in results.values()),
            "p99_growth_percent": max(growths),
            "p99_growth_percent_median": round(statistics.median(growths), 1),
            "restarts": sum(one["restarts"] for one in results.values()),
            "memory_percent": max(one["memory_percent"] for one in results.values()),
            "agent_memory_percent": max(one["agent_memory_percent"] for one in results.values()),
            "seconds_per_deed": seconds,
        },
        "0 failed requests, p99 at most 10 % above that under the same deed at a plain server, 0 restarts, memory below 80 %; 60 s a deed",
        [
            ("deeds", 25, "=="),
            ("failed_requests", 0, "=="),
            ("p99_growth_percent", 10, "<="),
            ("restarts", 0, "=="),
            ("memory_percent", 80, "<="),
            ("agent_memory_percent", 80, "<="),
            ("seconds_per_deed", 60, ">="),
        ],
        command="python -m benchmarks.hold.clients --seconds 60",
        stand_ins=_STAND_INS,
        why=f"the largest growth is under {worst!r}; both cores are shared with the attacker"
        if max(growths) > 10
        else "",
        n=sum(one["requests"] for one in results.values()),
        law=f"{1000 * WORK_S:g} ms",
        load="three clients with 50 requests/s at most each",
        raw=results,
    )


def main(argv: list[str]) -> int:
    """Measure the deeds, all if none is named, and record the row if all are measured."""
    parser = argparse.ArgumentParser(prog="benchmarks.hold.clients", description="Deeds of a hostile client.")
    parser.add_argument("deeds", nargs="*", metavar="DEED", help=", ".join(DEEDS))
    parser.add_argument("--seconds", type=float, default=60.0, help="time of each deed (default: %(default)s)")
    arguments = parser.parse_args(argv)
    with crowd.files(18_000):
        results = asyncio.run(_deeds(arguments.deeds or list(DEEDS), arguments.seconds))
    made = row(results, arguments.seconds)
    if len(results) == len(DEEDS):
        rows.record("hold", [made])
    print(json.dumps(made.value), "holds" if rows.holds(made) else "falls short")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
