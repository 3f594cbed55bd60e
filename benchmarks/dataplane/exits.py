"""Part `exits`: 2,000 pods are replaced one after the other at 800 requests/s through the real agent.

The part measures whether HAProxy survives this. Pods are stand-ins, because Triton takes seconds to start, and only
HAProxy's reaction to the agent's commands matters. Each replacement is one change of the EndpointSlices: the oldest of
three pods starts to terminate, and a new one is ready. Two replacements later the old pod is gone.
"""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

from benchmarks.dataplane import sender, ways
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.sender import Sent, Steady
from benchmarks.dataplane.ways import Balancer
from e2e.cluster.progress import say
from tests.ports import free_ports
from tests.unit.balancer.stand_ins import Pod

_PODS = 3
_TERMINATING = 2
"""Number of pods that terminate at the same time."""
_RATE_RPS = 800.0
_IN_USE_TIMEOUT_S = 10.0
_MODEL = "m"
STAND_INS = ("instead of Triton, the pods run small HTTP and gRPC test servers, each with its own address",)
_addresses = (f"127.91.{number // 250}.{number % 250 + 1}" for number in itertools.count())


def run(*, short: bool) -> PartResults:
    """Run the part. Full: 2,000 replacements in 1.5 minutes, or as many as fit into 4 minutes. Short: 200."""
    count, most_s = (200, 60.0) if short else (2000, 240.0)
    return asyncio.run(_run(count, most_s))


async def _run(count: int, most_s: float) -> PartResults:
    ports = free_ports(3)
    http, grpc_port, metrics = ports
    pods = [await _pod(ports).start() for _ in range(_PODS)]
    leaving: list[Pod] = []
    clock = asyncio.get_running_loop().time
    try:
        # A terminating pod keeps its server entry until its last request has ended, so there must be entries for all of
        # them.
        plan = replace(ways.plan(_MODEL), drain_ms=3000)
        async with ways.balancers(1, plan, [pod.address for pod in pods], ports=(http, grpc_port, metrics)) as [
            balancer
        ]:
            worker = (await balancer.balanced.haproxy.runtime.read()).process
            load = Steady(
                addresses={"http": balancer.http, "grpc": balancer.grpc},
                model=_MODEL,
                rate_rps=_RATE_RPS,
                most_s=most_s + 30,
                stand_ins=True,
            )
            with sender.running(load) as running:
                began_s, replaced = clock(), 0
                while replaced < count and clock() - began_s < most_s:
                    pods.append(await _pod(ports).start())
                    leaving.append(pods.pop(0))
                    replaced += 1
                    balancer.endpoints([p.address for p in pods], leaving=[p.address for p in leaving[-_TERMINATING:]])
                    await _wait_until_used(balancer, pods[-1].address)
                    for old_pod in leaving[:-_TERMINATING]:
                        await old_pod.stop()
                    leaving = leaving[-_TERMINATING:]
                    if replaced % max(count // 10, 1) == 0:
                        say(f"bench: {replaced} of {count} pods replaced, {running.requests} requests")
                seconds = clock() - began_s
                sent = await asyncio.to_thread(running.stop)
            return figures(balancer, sent, replaced, seconds, await _worker(balancer) == worker)
    finally:
        for pod in [*pods, *leaving]:
            await pod.stop()


def _pod(ports: list[int]) -> Pod:
    http, grpc_port, metrics = ports
    return Pod(next(_addresses), http, grpc_port, metrics)


async def _worker(balancer: Balancer) -> object:
    return (await balancer.balanced.haproxy.runtime.read()).process


async def _wait_until_used(balancer: Balancer, address: str) -> None:
    """Wait until the agent has assigned a server entry to the pod."""
    async with asyncio.timeout(_IN_USE_TIMEOUT_S):
        while True:
            servers = (await balancer.balanced.haproxy.runtime.read()).servers.values()
            if any(server.admin == "ready" and server.address == address for server in servers):
                return
            await asyncio.sleep(0.02)


def figures(balancer: Balancer, sent: Sent, replaced: int, seconds: float, same_worker: bool) -> PartResults:
    """Return the figures of the part."""
    haproxy = balancer.balanced.haproxy
    return PartResults(
        figures={"haproxy_exits": haproxy.worker_exits()},
        details={
            "replacements": replaced,
            "seconds": round(seconds, 1),
            "requests": sent.requests,
            "rate_rps": round(sent.requests / max(sent.ended_s - sent.began_s, 1e-9), 1),
            "failed": len(sent.failures),
            "failures": dict(Counter(f"{f.protocol} {f.kind}" for f in sent.failures).most_common(5)),
            "same_worker": same_worker,
        },
        stand_ins=(*ways.STAND_INS, *STAND_INS),
    )
