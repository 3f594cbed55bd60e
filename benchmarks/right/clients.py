"""Measurements of clients, rows 5.1 to 5.4 of build/quality/right.json: `python -m benchmarks.right.clients [ROW...]`.

Triton and HAProxy are real processes, HAProxy with the configuration that the agent writes. There is no cluster: the module does to
HAProxy what the agent does when pods come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import numpy as np
import tritonclient.grpc as grpcclient

from benchmarks.background import in_background
from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.quality import rows
from benchmarks.quality.rows import Row
from benchmarks.relay import far
from benchmarks.right.client_models import Balancer, Events, Wide, balancer, endpoint
from benchmarks.right.streams import Stream, over_grpc, over_http
from e2e.clients import programs
from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.render import server_start
from tests.unit.balancer.stand_ins import Pod

ROUND_TRIP_S: Final = 0.05
SIZES: Final = {"600_kb": 600_000, "4_mb": 4_000_000}
_STAND_IN = "no cluster: Triton and HAProxy are real processes, and the agent's controller is called in this process"
_COMMAND = "python -m benchmarks.right.clients"


async def client_programs() -> Row:
    """Return row 5.1: perf_analyzer and PyTriton's ModelClient through HAProxy, and directly as in mode Direct."""
    messages: dict[str, str] = {}
    arguments = server_start.direct_clients(drain_s=30)
    with tritons.running([Work("digits")] * 2, arguments=arguments) as servers:
        async with balancer(servers) as balanced:
            direct = {"http": f"{servers[0].address}:{tritons.HTTP_PORT}", "grpc": servers[0].grpc}
            through = {"http": balanced.http, "grpc": balanced.grpc}
            for mode, addresses in (("Balancer", through), ("Direct", direct)):
                for protocol, address in addresses.items():
                    for name, run in (("perf_analyzer", _perf_analyzer), ("ModelClient", _model_client)):
                        key = f"{name} {protocol} {mode}"
                        messages[key] = await asyncio.to_thread(_error_of, run, protocol, address)
    errors = sum(bool(text) for text in messages.values())
    return Row(
        "5.1",
        "perf_analyzer and PyTriton's ModelClient, over both protocols, through balancers and in mode Direct",
        {"runs": len(messages), "errors": errors},
        "every run ends, 0 errors",
        [("runs", 8, "=="), ("errors", 0, "==")],
        command=f"{_COMMAND} 5.1",
        stand_ins=_STAND_IN,
        n=len(messages),
        law="none: it responds at once",
        load="perf_analyzer, 4 concurrent requests",
        raw=messages,
    )


def _perf_analyzer(protocol: str, address: str) -> None:
    quick = ("--measurement-interval=500", "--max-trials=3", "--stability-percentage=999", "--concurrency-range=4")
    programs.perf_analyzer("-m", "digits", "-u", address, "-i", protocol, "-x", "1", *quick)


def _model_client(protocol: str, address: str) -> None:
    programs.model_client(f"{protocol}://{address}", "digits", name="x", rows=3, width=1)


def _error_of(run: Callable[[str, str], None], protocol: str, address: str) -> str:
    try:
        run(protocol, address)
    except programs.ClientError as error:
        return str(error)
    return ""


async def far_requests() -> Row:
    """Return row 5.2: large gRPC requests from 50 ms away, directly and through HAProxy."""
    raw: dict[str, list[float]] = {}
    value: dict[str, float] = {}
    with tritons.running([Wide()]) as servers:
        async with balancer(servers) as balanced, balancer(servers) as before:
            await _use_small_window(before)
            for name, size in SIZES.items():
                for way, address in (("direct", servers[0].grpc), ("balancer", balanced.grpc)):
                    with far(address, round_trip_s=ROUND_TRIP_S) as distant:
                        raw[f"{name}_far_{way}"] = await asyncio.to_thread(_requests_ms, [distant], size, 10)
                pair = await asyncio.to_thread(_requests_ms, [balanced.grpc, before.grpc], size, 100)
                raw[f"{name}_near"], raw[f"{name}_near_before"] = pair[::2], pair[1::2]
                value[f"{name}_far_ms"] = _median(raw[f"{name}_far_balancer"])
                value[f"{name}_far_ratio"] = _median(raw[f"{name}_far_balancer"]) / _median(raw[f"{name}_far_direct"])
                value[f"{name}_near_ms"] = _median(pair[::2])
                value[f"{name}_near_ratio_to_before"] = _median(pair[::2]) / _median(pair[1::2])
    value = {name: round(number, 2) for name, number in value.items()}
    return Row(
        "5.2",
        "gRPC requests of 600 KB and 4 MB at 50 ms round trip, requests 2 to 10 of a channel; the same near",
        value,
        "<= 2 x direct; near at most 5 % more than with the window of 30 KB before",
        [(f"{name}_far_ratio", 2.0, "<=") for name in SIZES]
        + [(f"{name}_near_ratio_to_before", 1.05, "<=") for name in SIZES],
        command=f"{_COMMAND} 5.2",
        stand_ins=f"{_STAND_IN}; a relay delays all bytes by 25 ms each way, without a limit on bandwidth",
        n=9,
        law="none: it responds at once",
        load="one request at a time",
        raw=raw,
    )


async def _use_small_window(balanced: Balancer) -> None:
    """Restart HAProxy with the HTTP/2 window that the balancer had before."""
    config, name = balanced.haproxy.config, "tune.h2.fe.initial-window-size"
    balanced.haproxy.kill()
    lines = config.read_text().splitlines()
    config.write_text("\n".join(f"    {name} 30000" if name in line else line for line in lines) + "\n")
    await asyncio.to_thread(balanced.haproxy.start)
    await asyncio.sleep(2)


def _requests_ms(addresses: Sequence[str], size: int, count: int) -> list[float]:
    """Return the times of `count` requests to each address in turn, in milliseconds, without the first request to each."""
    tensor = grpcclient.InferInput("x", [1, size // 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, size // 4), np.float32))
    times_ms = []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(grpcclient.InferenceServerClient(address)) for address in addresses]
        for client in clients * count:
            began_s = time.monotonic()
            client.infer("wide", [tensor])
            times_ms.append((time.monotonic() - began_s) * 1000)
    return times_ms[len(clients) :]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


async def waiting_uploads() -> Row:
    """Return row 5.3: uploads of 4 MB that wait, and small requests on the same channels."""
    raw: dict[str, Any] = {}
    async with _hung_server() as balanced:
        for name, channels, uploads in (("alone", 1, 0), ("one_channel", 1, 64), ("32_channels", 32, 64)):
            raw[name] = await _upload(balanced, channels, uploads)
    value: dict[str, Any] = {}
    for name in ("one_channel", "32_channels"):
        value[f"{name}_lost"] = raw[name]["lost"]
        blocked = raw[name]["lost"] or not raw[name]["took_ms"]
        value[f"{name}_p99_more_ms"] = (
            None if blocked else round(_p99(raw[name]["took_ms"]) - _p99(raw["alone"]["took_ms"]), 2)
        )
    value["memory_percent"] = round(100 * max(result["peak_mib"] for result in raw.values()) / HAPROXY_MEMORY_MIB, 1)
    return Row(
        "5.3",
        "64 uploads of 4 MB that wait on one channel, and on 32 channels, with small requests on the same channels",
        value,
        "the small requests' p99 at most 10 ms more, memory below 80 % of the balancer's limit",
        [
            ("one_channel_p99_more_ms", 10, "<="),
            ("32_channels_p99_more_ms", 10, "<="),
            ("memory_percent", 80, "<="),
        ],
        command=f"{_COMMAND} 5.3",
        stand_ins="the server is a stand-in that never responds; small requests are ones that HAProxy itself rejects",
        why="a request above 45 KB that waits blocks its channel in HAProxy 3.0 and 3.2: docs/decisions/0050-far-clients.md",
        n=sum(result["small"] for result in raw.values()),
        law="never responds",
        load="uploads without pause, small requests every 50 ms",
        raw=raw,
    )


@contextlib.asynccontextmanager
async def _hung_server() -> AsyncIterator[Balancer]:
    plan = replace(ways.plan("m", max_connections=1), queue_limit=100_000, queue_timeout_ms=120_000)
    pod = Pod("127.0.0.2", tritons.HTTP_PORT, tritons.GRPC_PORT, delay_s=600.0)
    await pod.start()
    try:
        async with balancer([Triton(pod.address, "m")], plan) as balanced:
            yield balanced
    finally:
        await pod.stop()


async def _upload(balanced: Balancer, channels: int, uploads: int) -> dict[str, Any]:
    arguments = (balanced.haproxy.ports.grpc, channels, uploads, SIZES["4_mb"], 8)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.right.uploads", *map(str, arguments), stdout=subprocess.PIPE
    )
    peak_kib = 0
    done = asyncio.create_task(process.communicate())
    while not done.done():
        peak_kib = max(peak_kib, sum(balanced.haproxy.memory_kib().values()))
        await asyncio.sleep(0.3)
    result: dict[str, Any] = json.loads((await done)[0])
    return result | {"peak_mib": round(peak_kib / 1024, 1)}


def _p99(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


async def streams_over_changes() -> Row:
    """Return row 5.4: 200 streams of 20 events during a deletion, a rollout, a canary and a scale-down; and longer ones that are cut."""
    raw: dict[str, list[Stream]] = {}
    async with contextlib.AsyncExitStack() as stack:
        servers = stack.enter_context(tritons.running([Events()] * 3))
        direct = (f"{servers[0].address}:{tritons.HTTP_PORT}", servers[0].grpc)
        raw["direct"] = await _streams(direct, 200, 20, _wait)
        for name, change in _CHANGES.items():
            raw[name] = await _through(servers, 200, 20, change)
        # Before and after, because the load of the machine changes.
        raw["direct"] += await _streams(direct, 200, 20, _wait)
        raw["cut"] = await _through(servers, 40, 200, _delete)
    changes = list(itertools.chain.from_iterable(raw[name] for name in _CHANGES))
    late_ms = {
        kind: _p99(_delays(itertools.chain.from_iterable(raw[name] for name in _CHANGES), number))
        - _p99(_delays(raw["direct"], number))
        for number, kind in enumerate(("generate_stream", "ModelStreamInfer"))
    }
    more_ms = statistics.median(ms for s in changes for ms in s.delays_ms) - statistics.median(
        ms for s in raw["direct"] for ms in s.delays_ms
    )
    cut = [stream for stream in raw["cut"] if stream.end != "whole"]
    value = {
        "event_median_more_ms": round(more_ms, 2),
        **{f"event_p99_more_ms_{kind}": round(ms, 2) for kind, ms in late_ms.items()},
        "cut_within_drain": sum(stream.end != "whole" or stream.is_lost for stream in changes),
        "cut_after_drain": len(cut),
        "cut_known_percent": 100 * sum(stream.end == "cut" for stream in cut) / len(cut) if cut else None,
    }
    return Row(
        "5.4",
        "200 streams (decoupled gRPC and generate_stream, 20 events each) over deletion, rollout, canary and scale-down",
        value,
        "each event <= 5 ms later than directly, 0 cut within drainTimeout, 100 % of those cut after it know it",
        [
            ("event_p99_more_ms_generate_stream", 5, "<="),
            ("event_p99_more_ms_ModelStreamInfer", 5, "<="),
            ("cut_within_drain", 0, "=="),
            ("cut_known_percent", 100, "=="),
        ],
        command=f"{_COMMAND} 5.4",
        stand_ins=_STAND_IN,
        n=len(changes),
        law="decoupled, 20 events, one every 200 ms",
        load="200 streams at once, half of them over each protocol",
        raw={
            name: [(s.end, s.detail, [round(ms, 2) for ms in s.delays_ms]) for s in streams]
            for name, streams in raw.items()
        },
    )


def _delays(streams: Iterable[Stream], number: int) -> list[float]:
    """Return the delays of all events over one protocol; `number` is 0 for HTTP, 1 for gRPC."""
    return [ms for stream in list(streams)[number::2] for ms in stream.delays_ms]


Change = Callable[[Balancer, Sequence[Triton]], Awaitable[None]]


async def _through(servers: Sequence[Triton], count: int, events: int, change: Change) -> list[Stream]:
    plan = replace(ways.plan("events", max_connections=200), drain_ms=8000)
    async with balancer(servers[:2], plan) as balanced:
        return await _streams((balanced.http, balanced.grpc), count, events, lambda: change(balanced, servers))


async def _streams(
    addresses: tuple[str, str], count: int, events: int, change: Callable[[], Awaitable[None]]
) -> list[Stream]:
    """Run streams over HTTP and gRPC in turn, and make a change after a second."""
    http, grpc_address = addresses
    async with contextlib.AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(grpc_address, options=options)) for _ in range(4)
        ]
        running = []
        for number in range(count):
            stream = over_grpc(channels[number % 4], events, 0.2) if number % 2 else over_http(http, events, 0.2)
            running.append(asyncio.create_task(stream))
            # Events of all streams at the same moment would wait for each other.
            await asyncio.sleep(0.2 / count)
        await asyncio.sleep(1)
        async with in_background(_forever(change)):
            return await asyncio.gather(*running)


async def _forever(change: Callable[[], Awaitable[None]]) -> None:
    while True:
        await change()
        await asyncio.sleep(0.1)


async def _wait() -> None:
    return None


async def _delete(balanced: Balancer, servers: Sequence[Triton]) -> None:
    """Do what the agent does while one pod of two terminates and a third one takes its place."""
    old, other, new = servers
    await balanced.controller.run_pass((endpoint(old, terminating=True), endpoint(other), endpoint(new)))


async def _scale_down(balanced: Balancer, servers: Sequence[Triton]) -> None:
    await balanced.controller.run_pass((endpoint(servers[0], terminating=True), endpoint(servers[1])))


async def _roll_out(balanced: Balancer, servers: Sequence[Triton]) -> None:
    first, second, new = servers
    endpoints = (endpoint(first, terminating=True), endpoint(second, terminating=True), endpoint(new))
    await balanced.controller.run_pass(endpoints)


async def _canary(balanced: Balancer, servers: Sequence[Triton]) -> None:
    """Do what the agent does while a canary gets a share of the requests, which reloads HAProxy, and then all of them."""
    plan = replace(ways.plan("events", max_connections=200), drain_ms=8000)
    step = balanced.controller.reloads
    share = 20 if step == 0 else 100
    slots = tuple(
        replace(plan.slots[0], name=name, service=f"m-server-{name}", weight=weight)
        for name, weight in (("a", 100 - share), ("b", share))
    )
    balanced.controller.accept(replace(plan, slots=slots))
    await balanced.controller.run_pass((*map(endpoint, servers[:2]), endpoint(servers[2], "b")))
    await asyncio.sleep(0.5)


_CHANGES: Final[dict[str, Change]] = {
    "deletion": _delete,
    "rollout": _roll_out,
    "canary": _canary,
    "scale_down": _scale_down,
}
ROWS: Final = {
    "5.1": client_programs,
    "5.2": far_requests,
    "5.3": waiting_uploads,
    "5.4": streams_over_changes,
}


def main() -> None:
    """Measure the rows named on the command line, all if there are none, and record each at once."""
    for name in sys.argv[1:] or ROWS:
        row = asyncio.run(ROWS[name]())
        rows.record("right", [row])
        print(row.id, json.dumps(row.value), "holds" if rows.holds(row) else "falls short", flush=True)


if __name__ == "__main__":
    main()
