"""Part `fleet`: steps of the load on some of 200 models, then of 1,000, and the operator's resource usage."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.agents import Agents
from benchmarks.cost import cpu_s, histogram_quantile, rss_mib
from benchmarks.counts import Change, Counts
from benchmarks.plane import STAND_INS, Plane, model, namespace_of, plane
from benchmarks.rows import Row, quantile
from e2e.cluster.progress import say
from halcyon.kube import kinds

SIZES = (200, 1000)
HPA_SYNC_S = 15
LOW_RPS, HIGH_RPS = 35.0, 210.0
BUSY_SHARE = 0.10
"""Share of the models that have a steady load. The others are idle until their step."""
STEP_SHARE = 0.05
MAX_REPLICAS = 10
_WAVES = 5
_WAVE_S = 12.0
LIMIT_S = 20.0
_SETTLE_S = 20.0
_SERVED_TIMEOUT_S = 600.0
_AT_ONCE = 16


@dataclass
class _Cost:
    """The operator's CPU and memory usage between two times."""

    pid: int
    began_s: float = field(default_factory=time.monotonic)
    max_mib: float = 0.0

    def __post_init__(self) -> None:
        self.cpu_before_s = cpu_s(self.pid)

    async def follow(self) -> None:
        """Sample the memory once a second, until cancelled."""
        while True:
            self.max_mib = max(self.max_mib, rss_mib(self.pid))
            await asyncio.sleep(1.0)

    def cores(self) -> float:
        """Return the CPU seconds used per second so far."""
        return (cpu_s(self.pid) - self.cpu_before_s) / (time.monotonic() - self.began_s)


def run(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Measure, and return one row per number of models."""
    with plane(hpa_sync_s=HPA_SYNC_S, pods=3 * max(sizes)) as control_plane:
        return asyncio.run(_run(control_plane, sizes))


async def _run(control_plane: Plane, sizes: tuple[int, ...]) -> list[Row]:
    rows: list[Row] = []
    draw = random.Random(len(sizes))
    async with Counts(control_plane.kubeconfig, namespace_of) as counts, Agents(control_plane, counts) as agents:
        models: list[str] = []
        for size in sizes:
            names = [f"m{number:04}" for number in range(len(models), size)]
            began_s = time.monotonic()
            await create(counts, names)
            await counts.until_served(names, limit_s=_SERVED_TIMEOUT_S)
            say(f"fleet: {len(names)} more models are served after {time.monotonic() - began_s:.0f} s")
            await agents.begin(names)
            models += names
            busy = set(draw.sample(models, int(BUSY_SHARE * size)))
            for name in models:
                agents.set_rate(name, LOW_RPS if name in busy else 0.0)
            await asyncio.sleep(_SETTLE_S)
            rows.append(await _measure_waves(control_plane, counts, agents, models=models, busy=busy, draw=draw))
            say(f"fleet: {rows[-1].what}: {sorted(rows[-1].step_to_scale_s)[-3:]} s at most")
    return rows


async def create(counts: Counts, names: Sequence[str], *, balancers: int = 1, **scaling: Any) -> None:
    """Create models with a latency objective. `scaling` overrides their limits."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def create_model(name: str) -> None:
        async with limit:
            document = model(name, most=MAX_REPLICAS, balancers=balancers, targets={"latency": "500ms"}, **scaling)
            await counts.client.create(kinds.MODEL_DEPLOYMENT, document, namespace=namespace_of(name))

    await asyncio.gather(*map(create_model, names))


async def raise_load(counts: Counts, agents: Agents, chosen: Sequence[str]) -> tuple[float, list[float]]:
    """Raise the load of these models for the time of a wave.

    Return the monotonic time of the step, and the seconds until each model had more replicas. Models that had none
    within the limit are left out.
    """
    began_s = time.monotonic()
    for name in chosen:
        agents.set_rate(name, HIGH_RPS)
    rises = await counts.raised(chosen, since_s=began_s, limit_s=LIMIT_S)
    await asyncio.sleep(max(began_s + _WAVE_S - time.monotonic(), 0.0))
    return began_s, list(rises.values())


async def _measure_waves(
    control_plane: Plane, counts: Counts, agents: Agents, *, models: list[str], busy: set[str], draw: random.Random
) -> Row:
    """Run waves of load steps on models chosen at random.

    Each model is chosen only once, and has one replica when its load increases.
    """
    before = await asyncio.to_thread(control_plane.operator.metrics)
    cost = _Cost(control_plane.operator.pid)
    watching = asyncio.create_task(cost.follow())
    times: list[float] = []
    peaks: list[Change] = []
    settled: list[float] = []
    missed = 0
    unused = [name for name in models if counts.count(name) == 1]
    draw.shuffle(unused)
    try:
        for _ in range(_WAVES):
            chosen, unused = unused[: int(STEP_SHARE * len(models))], unused[int(STEP_SHARE * len(models)) :]
            began_s, rises = await raise_load(counts, agents, chosen)
            times += rises
            missed += len(chosen) - len(rises)
            peaks += [peak for name in chosen if (peak := counts.most_at(name, since_s=began_s)) is not None]
            settled += [at - began_s for at, _ in peaks[len(settled) :]]
            for name in chosen:
                agents.set_rate(name, LOW_RPS if name in busy else 0.0)
            agents.check()
    finally:
        watching.cancel()
    cores = cost.cores()
    after = await asyncio.to_thread(control_plane.operator.metrics)

    def seconds(name: str, share: float) -> float | None:
        return histogram_quantile(before, after, name, share)

    p50_s, p99_s = (seconds("halcyon_decision_seconds", share) for share in (0.5, 0.99))
    return Row(
        part="fleet",
        what=f"{len(models)} models, steps on {STEP_SHARE:.0%} of them, {_WAVES} times",
        models=len(models),
        actuator=counts.actuator(models[0]),
        hpa_sync_s=HPA_SYNC_S,
        step_to_scale_s=tuple(round(seconds, 3) for seconds in times),
        cpu_cores=round(cores, 3),
        rss_mib=round(cost.max_mib, 1),
        decision_us_p50=None if p50_s is None else round(p50_s * 1e6, 1),
        decision_us_p99=None if p99_s is None else round(p99_s * 1e6, 1),
        decision_age_p99_s=seconds("halcyon_decision_age_seconds", 0.99),
        stand_ins=STAND_INS,
        figures={
            "not_raised": missed,
            "not_raised_limit_s": LIMIT_S,
            "step_to_full_count_p50_s": quantile(settled, 0.5),
            "step_to_full_count_p99_s": quantile(settled, 0.99),
            "full_count": quantile([count for _, count in peaks], 0.5),
            "busy_models": len(busy),
            "operator_errors": len(control_plane.operator.complaints()),
        },
    )
