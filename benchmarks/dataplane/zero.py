"""Part `zero`: 100 requests, half of each protocol, for a model with 0 replicas, which are held until it serves."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.counts import Counts
from benchmarks.dataplane import sender, stage
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.sender import Sent, Steady
from demo import models
from demo.kube import Kube, total
from e2e.cluster.progress import say

_NAME = "zero"
_HELD = 100
_AGENT_PORT = 9100
_IDLE_AFTER = "10s"
_ZERO_TIMEOUT_S = 120.0
_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Wake:
    """One scale-up from zero."""

    sent: Sent
    raised_s: float | None
    """Time in seconds from the first request until the replicas increased; None if they didn't."""
    held: int
    """Maximum number of requests that the balancers' agents reported as held at a time."""


def run(kube: Kube, *, short: bool) -> PartResults:
    """Run the part. Full: twice with one balancer, then twice with two, 3 minutes. Short: once each."""
    rounds = 1 if short else 2
    by_balancers = {count: asyncio.run(_wakes(kube, count, rounds)) for count in (1, 2)}
    all_wakes = [wake for wakes in by_balancers.values() for wake in wakes]
    raised = [wake.raised_s for wake in all_wakes if wake.raised_s is not None]
    return PartResults(
        figures={
            "wake_s": round(max(raised), 3) if len(raised) == len(all_wakes) else None,
            "held": sum(wake.sent.requests for wake in all_wakes),
            "held_answered": sum(sum(wake.sent.answered.values()) for wake in all_wakes),
        },
        details={
            f"with {count} balancer{'s' * (count > 1)}": [
                {
                    "wake_s": None if wake.raised_s is None else round(wake.raised_s, 3),
                    "held_at_once": wake.held,
                    "answered": wake.sent.answered,
                    "last_answer_s": round(wake.sent.longest_s, 2),
                    "failures": dict(Counter(f"{f.protocol} {f.kind}" for f in wake.sent.failures).most_common(4)),
                }
                for wake in wakes
            ]
            for count, wakes in by_balancers.items()
        },
        stand_ins=("the pods run Triton on CPUs; no GPU time is simulated",),
    )


async def _wakes(kube: Kube, balancers: int, rounds: int) -> list[Wake]:
    name = f"{_NAME}-{balancers}"
    document = stage.digits(
        name, replicas=1, balancers=balancers, queueTimeout="60s", responseTimeout="60s", queueLimit=200
    )
    document["spec"]["scaling"] = {
        "minReplicas": 0,
        "maxReplicas": 2,
        "idleTimeout": _IDLE_AFTER,
        "targets": {"latency": "600ms"},
    }
    await asyncio.to_thread(kube.apply, document)
    try:
        async with Counts(str(kube.kubeconfig), lambda _: kube.namespace) as counts:
            await counts.until_served([name], limit_s=120)
            wakes = []
            for _ in range(rounds):
                await counts.until(
                    lambda: counts.count(name) == 0 and not counts.pods.find(kube.namespace, f"server/{name}"),
                    goal=f"{name} is at zero",
                    limit_s=_ZERO_TIMEOUT_S,
                )
                wakes.append(await _wake(kube, counts, name))
            return wakes
    finally:
        await asyncio.to_thread(models.delete, kube, name, wait=False)


async def _wake(kube: Kube, counts: Counts, name: str) -> Wake:
    # The balancers have removed the last server.
    await asyncio.sleep(2.0)
    load = Steady(
        addresses=stage.addresses(kube, name),
        model=name,
        rate_rps=_HELD,
        most_s=60.0,
        most_requests=_HELD,
        callers=_HELD // 2,
        timeout_s=60.0,
        together=True,
    )
    maximum, done = [0], threading.Event()
    watching = asyncio.create_task(asyncio.to_thread(_poll_held, kube, name, maximum, done))
    try:
        with sender.running(load) as running:
            sent = await asyncio.to_thread(running.result)
    finally:
        done.set()
        await watching
    raised_at = counts.raised_at(name, since_s=sent.began_s)
    wake = Wake(sent, None if raised_at is None else raised_at - sent.began_s, maximum[0])
    say(
        f"bench: {name}: raised after {wake.raised_s} s; {wake.held} held; "
        f"{sum(sent.answered.values())} of {sent.requests} answered, the last after {sent.longest_s:.1f} s"
    )
    return wake


def _poll_held(kube: Kube, name: str, maximum: list[int], done: threading.Event) -> None:
    while not done.is_set():
        pods = kube.pods(name, "balancer")
        held = sum(total(kube.metrics(pod, _AGENT_PORT), "halcyon_agent_held") for pod in pods)
        maximum[0] = max(maximum[0], int(held))
        time.sleep(_POLL_INTERVAL_S)
