"""Parts `step` and `peers`: a step and bursts of the load on real Triton pods that take 20 s to load.

The violations are compared with those of a clairvoyant scaler that starts pods before the load arrives
(`profile.clairvoyant_pod_s`). A pod is billed from its creation until it is gone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from benchmarks import keda_peer, open_loop, pods
from benchmarks.counts import Counts
from benchmarks.profile import Profile, bursts, clairvoyant_pod_s, integral, outcome, step
from benchmarks.rows import Row
from demo.kube import Kube
from e2e import keda
from e2e.cluster.progress import say
from halcyon.kube import kinds
from halcyon_simulator.bounds.replica_capacity import capacity_rps
from halcyon_simulator.engine.case import ServiceLaw

SLO_S, DEADLINE_S = 0.5, 10.0
START_S = 20.0
LOW_RPS, HIGH_RPS = 35.0, 210.0
MOST = 10
STATIC = 4
TUNED: dict[str, Any] = {"balancerReplicas": 1, "queueLimit": 1, "queueTimeout": "10s", "responseTimeout": "10s"}
"""Fields of spec.traffic for components that don't limit the queue by the objective. The 24 requests in a server take
3 batches, 0.384 s, and a request that waits for a place takes at most one batch more. With 8 others in front of it, a
request would miss the objective."""
_STEP = step(low_rps=LOW_RPS, high_rps=HIGH_RPS, before_s=60, for_s=180, after_s=90)
_BURSTS = bursts(low_rps=LOW_RPS, high_rps=HIGH_RPS, before_s=45, for_s=30, apart_s=60, count=3, after_s=60)
_SERVED_TIMEOUT_S = 120.0


@contextmanager
def _no_other_scaler(_kube: Kube, _name: str) -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Scaler:
    """The component that decides the replicas, with its configuration."""

    name: str
    scaling: dict[str, Any] | None = None
    """spec.scaling; None if Halcyon doesn't scale the model."""
    first: int = 1
    """Replicas before the load begins. Without `scaling`, this is spec.replicas."""
    other_scaler: Callable[[Kube, str], AbstractContextManager[None]] = _no_other_scaler
    """Context in which another component scales the model with the given name."""
    traffic: dict[str, Any] = field(default_factory=lambda: dict(TUNED))
    """spec.traffic."""
    warms_up: bool = True
    """Whether pods run batches before they are ready, so that the service law is known without load."""
    stand_ins: tuple[str, ...] = ()
    """Descriptions of the components that are simulated."""

    def model(self, name: str) -> dict[str, Any]:
        """Return the ModelDeployment."""
        count = self.first if self.scaling is None else None
        document = pods.model(name, start_s=START_S, replicas=count, scaling=self.scaling)
        document["spec"]["traffic"] = self.traffic
        if not self.warms_up:
            del document["spec"]["model"]["warmup"]
        return document


_LIMITS = {"minReplicas": 1, "maxReplicas": MOST}
_AT_500_MS = {"targets": {"latency": "500ms"}}
HALCYON = Scaler("Planner", {**_LIMITS, **_AT_500_MS}, traffic={}, warms_up=False)
"""The fields of README's manifest, and no others."""
HALCYON_TUNED = Scaler(
    "Planner, tuned: one balancer, queueLimit 1, timeouts of 10 s, warm-up", {**_LIMITS, **_AT_500_MS}
)
RESERVED = Scaler(
    "Planner, minReplicas 2", {**_LIMITS, "minReplicas": 2, **_AT_500_MS}, first=2, traffic={}, warms_up=False
)
"""Configuration of a user who expects bursts that are faster than any start."""
PEERS = (
    Scaler(f"static {STATIC}", first=STATIC),
    Scaler("HPA by queue depth", {**_LIMITS, "policy": "Rules", "targets": {"queueDepth": 8}}),
)
KEDA = Scaler(
    f"KEDA {keda.version()} by requests in flight",
    other_scaler=partial(keda_peer.scales, least=1, most=MOST),
    stand_ins=(keda_peer.STAND_IN,),
)
Load = tuple[str, Profile, int]
"""Name, rates, and seed of the arrivals."""
STEPS: tuple[Load, ...] = tuple(("step", _STEP, seed) for seed in (1, 2, 3))
"""Steps with different seeds. At 210 req/s, 3.8 replicas are needed, so chance decides between four and five, and a
single run is not enough."""
BURSTS: Load = ("bursts", _BURSTS, 1)


def run() -> list[Row]:
    """Measure Halcyon's planner on the steps and bursts, from one pod, from two, and with tuned fields: 70 minutes."""
    return _measure(
        "step", [(scaler, load) for scaler in (HALCYON, RESERVED, HALCYON_TUNED) for load in (*STEPS, BURSTS)]
    )


def run_peers() -> list[Row]:
    """Measure the available peers on the step, and KEDA on all loads of Halcyon: 39 minutes.

    The first run also builds KEDA.
    """
    # KEDA comes last, because Halcyon gives up the metrics API for it.
    return _measure("peers", [*((peer, STEPS[0]) for peer in PEERS), *((KEDA, load) for load in (*STEPS, BURSTS))])


def _measure(part: str, runs: Sequence[tuple[Scaler, Load]]) -> list[Row]:
    with pods.cluster() as kube:
        return [
            asyncio.run(_run(kube, part, scaler, load, f"{part}-{number}"))
            for number, (scaler, load) in enumerate(runs)
        ]


def capacity() -> float:
    """Return the requests per second at which the p99 of one replica meets the objective."""
    return capacity_rps(ServiceLaw(pods.LAW.t0_s, pods.LAW.a_s, pods.LAW.max_batch), SLO_S)


@asynccontextmanager
async def _entered(context: AbstractContextManager[None]) -> AsyncIterator[None]:
    """Enter and leave the context in a thread, so that the watches continue: this may take a minute."""
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, context)
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


async def _run(kube: Kube, part: str, scaler: Scaler, load: Load, name: str) -> Row:
    title, profile, seed = load
    async with Counts(str(kube.kubeconfig), lambda _: kube.namespace) as counts:
        await asyncio.to_thread(kube.apply, scaler.model(name))
        await counts.until_served([name], limit_s=_SERVED_TIMEOUT_S)
        await counts.until(
            lambda: len(counts.ready_servers(name)) >= scaler.first,
            goal=f"{scaler.first} pods",
            limit_s=_SERVED_TIMEOUT_S,
        )
        starts_s = counts.start_times_s(name)
        address = pods.address(kube, name)
        async with _entered(scaler.other_scaler(kube, name)):
            with open_loop.running(address, name, profile, deadline_s=DEADLINE_S, seed=seed) as running:
                end_s = running.began_s + profile.until_s
                while time.monotonic() < end_s:
                    await asyncio.sleep(min(10.0, max(end_s - time.monotonic(), 0.0)))
                    starts_s = max(starts_s, counts.start_times_s(name), key=len)
                sent = await asyncio.to_thread(running.result)
            row = _row(
                part,
                scaler,
                f"{scaler.name}, {title}, seed {seed}",
                counts,
                name=name,
                profile=profile,
                sent=sent,
                start_s=median(starts_s),
            )
        await counts.client.delete(kinds.MODEL_DEPLOYMENT, kube.namespace, name)
        await counts.until(
            lambda: not counts.pods.find(kube.namespace, f"server/{name}"), goal=f"pods of {name} go", limit_s=90
        )
    return row


def _row(
    part: str,
    scaler: Scaler,
    description: str,
    counts: Counts,
    *,
    name: str,
    profile: Profile,
    sent: open_loop.Sent,
    start_s: float,
) -> Row:
    request_outcome = outcome(sent.latency_s, slo_s=SLO_S)
    begin_s = sent.began_s
    pod_s = integral(counts.servers[name], begin_s=begin_s, end_s=begin_s + profile.until_s)
    best_s = clairvoyant_pod_s(profile, capacity_rps=capacity(), start_s=start_s)
    rises = [(begin_s + rise, counts.raised_at(name, since_s=begin_s + rise)) for rise in profile.rises_s]
    raised = tuple(round(at - rise, 3) for rise, at in rises if at is not None)
    say(
        f"{part}: {description}: {request_outcome.violations_pct:.1f} % at {pod_s / best_s:.2f} x; raised after {raised} s"
    )
    return Row(
        part=part,
        what=description,
        models=1,
        actuator=counts.actuator(name),
        hpa_sync_s=pods.HPA_SYNC_S,
        # A later burst meets pods from the burst before, so only the first increase is a reaction from one replica.
        step_to_scale_s=raised[:1],
        stand_ins=(*pods.STAND_INS, *scaler.stand_ins),
        figures={
            "requests": request_outcome.requests,
            "late_pct": round(100 * request_outcome.late / request_outcome.requests, 2),
            "failed_pct": round(100 * request_outcome.failed / request_outcome.requests, 2),
            "violations_pct": round(request_outcome.violations_pct, 2),
            "pod_seconds": round(pod_s, 1),
            "clairvoyant_pod_seconds": round(best_s, 1),
            "pod_seconds_ratio": round(pod_s / best_s, 3),
            "pods_most": max((count for _, count in counts.servers[name]), default=0),
            "start_s": round(start_s, 1),
            "capacity_rps": round(capacity(), 1),
            "late_sending_s": round(sent.late_sending_s, 3),
            "failures": "; ".join(
                f"{count} x {kind}" for kind, count in sorted(sent.failures.items(), key=lambda item: -item[1])[:4]
            ),
            "counts": " ".join(f"{at - begin_s:.0f}s:{count}" for at, count in counts.replicas[name] if at >= begin_s),
            "decisions": counts.decisions(name),
        },
    )
