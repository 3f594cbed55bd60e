"""Rows of the lower class on real Triton, HAProxy and agents: `python -m benchmarks.tune.lower [8.1] [8.4] [8.5] [--seconds N]`.

8.1   users with and without a batch beside them, at 50 % of the capacity and after a step to 90 %; long laws and gentle simulated
8.4   haproxy.cfg without a batch
8.5   jobs that share, and the operator's memory for 50 of them (`benchmarks.hold.batches`)
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import aiohttp

from benchmarks import open_loop
from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Work
from benchmarks.errors import BenchError
from benchmarks.hold import batches
from benchmarks.open_loop import Sent
from benchmarks.profile import Phase, Profile
from benchmarks.quality.rows import Row, record
from benchmarks.right import overload
from benchmarks.rows import quantile
from benchmarks.tune import lower_model
from benchmarks.tune.lower_model import Simulation, priority_bound
from e2e.cluster.progress import say
from halcyon.api.documents.balancer_plan import LOWER_CLASS_HEADER, BalancerPlan, LowerClass
from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.model import Listen

_BALANCERS = 2
_WINDOW = 24
"""Requests that a job has in progress at each balancer, so that some always wait there."""
_SETTLES_S = 6.0
_IDLE_S = 8.0
"""Time for which the job runs without users, in seconds."""
_SAMPLED_S = 0.1
_STAND_INS = (
    "Triton's Python backend on CPU, whose execution is a sleep; the agents' API server and collector are those of the "
    "integration tests; no cluster. Laws of 5 s and 16 s, and gentle, are simulated with the balancers' own rule"
)
_LONG = {
    "5 s": (lower_model.Law(5.0, 0.0, 1), 40_000.0),
    "16 s, 32 at once": (lower_model.Law(16.0, 0.0, 32, overlaps=True), 10_000.0),
}


@dataclass
class Job:
    """A closed loop of requests of the lower class at every balancer."""

    name: str
    done_at: list[float] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)

    def rate(self, begin: float, end: float) -> float:
        """Return its answers per second between two times of the monotonic clock."""
        return sum(begin <= at < end for at in self.done_at) / (end - begin)

    async def run(self, session: aiohttp.ClientSession, address: str) -> None:
        """Send one request after the other to a balancer, until cancelled."""
        url = f"http://{address}/v2/models/{overload.MODEL}/infer"
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
        body = json.dumps({"inputs": [tensor]})
        while True:
            async with session.post(url, data=body, headers={LOWER_CLASS_HEADER: self.name}) as answer:
                await answer.read()
            self.answers[answer.status] += 1
            if answer.status == 200:
                self.done_at.append(time.monotonic())
            else:
                await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))


@contextlib.asynccontextmanager
async def running(jobs: Sequence[Job], balancers: Sequence[ways.Balancer], window: int) -> AsyncIterator[None]:
    """Run the jobs while the context is open, each with so many requests in progress at each balancer."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        tasks = [
            asyncio.ensure_future(job.run(session, balancer.http))
            for job in jobs
            for balancer in balancers
            for _ in range(window)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def plan(law: overload.Law, lower_class: LowerClass = "Fill") -> BalancerPlan:
    """Return the plan of two balancers while a batch runs."""
    return replace(overload.plan(law, _BALANCERS), lower_class=lower_class, instances=1)


async def users(balancers: Sequence[ways.Balancer], profile: Profile, seed: int = 1) -> list[Sent]:
    """Send the users' load, half to each balancer, and return the results."""
    begin_s = time.monotonic() + _SETTLES_S
    shared = Profile(tuple(Phase(p.from_s, p.rate_rps / len(balancers)) for p in profile.phases), profile.until_s)
    with contextlib.ExitStack() as stack:
        loads = await asyncio.gather(
            *(
                asyncio.to_thread(
                    stack.enter_context,
                    open_loop.running(
                        balancer.grpc,
                        overload.MODEL,
                        shared,
                        deadline_s=60.0,
                        seed=seed + 100 * number,
                        begin_s=begin_s,
                    ),
                )
                for number, balancer in enumerate(balancers)
            )
        )
        return [await asyncio.to_thread(load.result) for load in loads]


def latencies(sent: Sequence[Sent], since_s: float = 0.0) -> list[float]:
    """Return the latencies of the requests sent at this time of the load, or later."""
    return [
        latency_s
        for load in sent
        for at_s, latency_s in zip(load.at_s, load.latency_s, strict=True)
        if latency_s is not None and at_s >= since_s
    ]


def p99(latencies_s: Sequence[float]) -> float:
    """Return the 99th percentile; NaN without values."""
    return quantile(list(latencies_s), 0.99) or float("nan")


@dataclass(frozen=True)
class Beside:
    """Users alone, and with a job beside them."""

    what: str
    requests: int
    alone_p99_s: float
    limit_s: float
    """1.1 x alone, and one execution of a full batch."""
    with_job_p99_s: float
    failed: int
    """Users' requests that were rejected or failed with the job beside them."""
    failed_alone: int
    job_share: float
    """The job's rate, divided by the part of `capacity_rps` that the users don't need."""
    capacity_rps: float
    """Rate of the same job without users, just before."""
    job_rejected: int
    gave_way_s: float | None = None
    """Time from a step of the users until the job has no more in servers than later on, in seconds."""


async def beside(
    law: overload.Law, *, loads: tuple[float, ...], for_s: float, lower_class: LowerClass = "Fill"
) -> Beside:
    """Measure users alone and with a job. With two loads, the second one begins after half of the time."""
    full_s = (law.t0_ms + law.a_ms * law.max_batch) / 1000
    step_s = for_s / 2
    since_s = step_s + 1 + full_s if len(loads) > 1 else 1.0
    job, sent_at = Job("nightly"), list[tuple[float, int]]()
    with tritons.running([Work(overload.MODEL, law.t0_ms, law.a_ms, law.max_batch)]) as [server]:
        overload.warm_up(server, law)
        async with ways.balancers(_BALANCERS, plan(law, lower_class), [server.address]) as balancers:
            async with running([job], balancers, _WINDOW):
                await asyncio.sleep(_SETTLES_S)
                idle = time.monotonic()
                await asyncio.sleep(_IDLE_S)
                capacity_rps = job.rate(idle, time.monotonic())
            # Servers are a little slower than their law. At 90 % of the law's rate, users alone would be near saturation.
            phases = tuple(Phase(step_s * number, load * capacity_rps) for number, load in enumerate(loads))
            profile = Profile(phases, for_s)
            await asyncio.sleep(_SETTLES_S)
            alone = await users(balancers, profile)
            async with running([job], balancers, _WINDOW):
                await asyncio.sleep(_SETTLES_S)
                sampling = asyncio.ensure_future(_sample(balancers, sent_at))
                together = await users(balancers, profile)
                sampling.cancel()
    began = max(load.began_s for load in together)
    share = job.rate(began + since_s, began + for_s) / max((1 - loads[-1]) * capacity_rps, 0.1)
    gave_way_s = _seconds_to_give_way(sent_at, began + step_s, began + for_s) if len(loads) > 1 else None
    comparison = Beside(
        f"{law.text.rpartition(',')[0]}, users at {' then '.join(f'{load:.0%}' for load in loads)}",
        len(latencies(together, since_s)),
        p99(latencies(alone, since_s)),
        1.1 * p99(latencies(alone, since_s)) + full_s,
        p99(latencies(together, since_s)),
        sum(sum(load.failures.values()) for load in together),
        sum(sum(load.failures.values()) for load in alone),
        round(share, 3),
        round(capacity_rps, 1),
        sum(count for status, count in job.answers.items() if status != 200),
        gave_way_s,
    )
    say(f"lower: {comparison}")
    return comparison


async def _sample(balancers: Sequence[ways.Balancer], into: list[tuple[float, int]]) -> None:
    while True:
        loads = [await balancer.balanced.haproxy.runtime.loads(classes=True) for balancer in balancers]
        into.append((time.monotonic(), sum(load.classes.sent for load in loads if load.classes is not None)))
        await asyncio.sleep(_SAMPLED_S)


def _seconds_to_give_way(sent_at: Sequence[tuple[float, int]], step: float, end: float) -> float:
    """Return the seconds from the step until half a second of samples has no more requests in servers than the second half has."""
    after = [(at - step, count) for at, count in sent_at if step <= at < end]
    second_half = [count for at, count in after if at > (end - step) / 2]
    usual = sum(second_half) / max(len(second_half), 1)
    width = max(round(0.5 / _SAMPLED_S), 1)
    for first in range(len(after) - width + 1):
        some = after[first : first + width]
        if sum(count for _, count in some) / width <= 1.25 * usual + 0.5:
            return round(some[0][0], 2)
    return float("inf")


def simulated() -> dict[str, dict[str, float]]:
    """Return the figures of the long laws, and of gentle against its bound."""
    figures: dict[str, dict[str, float]] = {}
    for name, (law, for_s) in _LONG.items():
        alone, job = (Simulation(law, load=0.5, job=kind).run(for_s) for kind in ("", "Fill"))
        limit_s = 1.1 * alone.p(0.99) + law.full_s
        figures[name] = {
            "p99_of_limit": round(job.p(0.99) / limit_s, 3),
            "job_share": round(job.lower_rps / (0.5 * law.peak_rps), 3),
        }
    law = lower_model.Law(0.08, 0.006, 8)
    alone, gentle = (Simulation(law, load=0.5, job=kind).run(1000.0) for kind in ("", "Gentle"))
    fixed, filling = (
        priority_bound(law, load=0.5, max_ratio=1.1, for_s=1000.0, fills=fills) for fills in (False, True)
    )
    figures["gentle, 80 + 6 b ms"] = {
        "p99_ratio": round(gentle.p(0.99) / alone.p(0.99), 3),
        "p50_ratio": round(gentle.p(0.5) / alone.p(0.5), 3),
        "of_bound": round(gentle.lower_rps / fixed, 3),
        "of_filling_bound": round(gentle.lower_rps / filling, 3),
    }
    return figures


def row_1(for_s: float) -> Row:
    """Measure row 8.1."""
    steady = [asyncio.run(beside(law, loads=(0.5,), for_s=for_s)) for law in overload.LAWS]
    stepped = asyncio.run(beside(overload.LAWS[0], loads=(0.5, 0.9), for_s=2 * for_s))
    full_s = (overload.LAWS[0].t0_ms + overload.LAWS[0].a_ms * overload.LAWS[0].max_batch) / 1000
    gently = asyncio.run(beside(overload.LAWS[0], loads=(0.5,), for_s=2 * for_s, lower_class="Gentle"))
    simulation = simulated()
    long = [figures for name, figures in simulation.items() if not name.startswith("gentle")]
    [gentle] = [figures for name, figures in simulation.items() if name.startswith("gentle")]
    return Row(
        id="8.1",
        what="Batch inference beside users at 50 % of the capacity, two balancers; a step of the users to 90 %; gentle",
        value={
            "p99_of_limit": max(
                *(round(comparison.with_job_p99_s / comparison.limit_s, 3) for comparison in steady),
                *(figures["p99_of_limit"] for figures in long),
            ),
            "rejected_or_failed": sum(comparison.failed for comparison in steady),
            "job_share": min(
                *(comparison.job_share for comparison in steady), *(figures["job_share"] for figures in long)
            ),
            "gave_way_less_execution_s": None if stepped.gave_way_s is None else round(stepped.gave_way_s - full_s, 2),
            "after_step_p99_of_limit": round(stepped.with_job_p99_s / stepped.limit_s, 3),
            "gentle_p99_ratio_on_triton": round(gently.with_job_p99_s / gently.alone_p99_s, 3),
            "gentle_job_share_on_triton": gently.job_share,
            "gentle_p99_ratio": gentle["p99_ratio"],
            "gentle_of_bound": gentle["of_bound"],
            "gentle_of_filling_bound": gentle["of_filling_bound"],
        },
        target="P99 <= 1.1 x alone + one full execution; 0 rejected; the job gets >= 80 % of what is left; it has given way within 1 s "
        "and the execution that runs; gentle: P99 +<= 10 %, and >= 0.9 of what a queue with priority allows",
        limits=[
            ("p99_of_limit", 1.0, "<="),
            ("rejected_or_failed", 0, "=="),
            ("job_share", 0.8, ">="),
            ("gave_way_less_execution_s", 1.0, "<="),
            ("gentle_p99_ratio", 1.1, "<="),
            ("gentle_of_bound", 0.9, ">="),
        ],
        command="make bench-batch",
        stand_ins=_STAND_INS,
        why="gentle: the bound is a queue with priority that adds a fixed number of rows to each batch. One that fills each batch up to a "
        "size allows more, but then users' median grows by more, too. The figures on Triton have no target, because P99 of a minute is noisy",
        n=sum(comparison.requests for comparison in (*steady, stepped, gently)),
        law="; ".join(comparison.what for comparison in steady),
        load=f"Poisson, {for_s:g} s each, alone and with a job",
        raw={"measured": [asdict(comparison) for comparison in (*steady, stepped, gently)], "simulated": simulation},
    )


def row_4() -> Row:
    """Measure row 8.4: the rules of haproxy.cfg that a plan without a lower class has because of it."""
    without = haproxy_cfg.render(overload.plan(overload.LAWS[0], _BALANCERS), listen=Listen()).splitlines()
    with_batch = haproxy_cfg.render(plan(overload.LAWS[0]), listen=Listen()).splitlines()
    own = [line for line in with_batch if line not in without]
    words = ("lower", "halcyon-batch", "proc.room", "proc.user_rows", "priority-class")
    return Row(
        id="8.4",
        what="Lines of haproxy.cfg for the lower class in a plan without a batch",
        value={"lines": sum(any(word in line for word in words) for line in without), "lines_with_a_batch": len(own)},
        target="balancer's CPU per request without a batch +<= 2 %: no line, so no rule that a request evaluates",
        limits=[("lines", 0, "=="), ("lines_with_a_batch", 1, ">=")],
        command="make bench-batch",
        raw={"own": own},
    )


async def shared(jobs: int, law: overload.Law, for_s: float) -> list[Job]:
    """Run jobs with windows from 1 to 3 requests at each balancer, and return them."""
    all_jobs = [Job(f"job-{number}") for number in range(jobs)]
    with tritons.running([Work(overload.MODEL, law.t0_ms, law.a_ms, law.max_batch)]) as [server]:
        overload.warm_up(server, law)
        async with (
            ways.balancers(_BALANCERS, plan(law), [server.address]) as balancers,
            contextlib.AsyncExitStack() as stack,
        ):
            for job, window in zip(all_jobs, itertools.cycle((2, 3, 4)), strict=False):
                await stack.enter_async_context(running([job], balancers, window))
            await asyncio.sleep(_SETTLES_S)
            began = time.monotonic()
            await asyncio.sleep(for_s)
            for job in all_jobs:
                job.done_at = [at for at in job.done_at if began <= at < began + for_s]
    return all_jobs


def row_5(for_s: float) -> Row:
    """Measure row 8.5."""
    answers = [len(job.done_at) for job in asyncio.run(shared(10, overload.LAWS[0], for_s))]
    memory, why = None, ""
    try:
        memory = batches.measured()
    except BenchError as error:
        why = f"50 jobs at an API server: not measured, {error}"
    mean = sum(answers) / len(answers)
    return Row(
        id="8.5",
        what="10 jobs on one model, with windows of 2 to 4 requests at each of two balancers; 50 jobs in a cluster",
        value={
            "largest_deviation": round(max(abs(count - mean) for count in answers) / mean, 3),
            "operator_mib_of_50_jobs": None if memory is None else memory.added_mib,
        },
        target="within 10 %; operator +<= 10 MiB",
        limits=[("largest_deviation", 0.1, "<="), ("operator_mib_of_50_jobs", 10, "<=")],
        command="make bench-batch",
        stand_ins=_STAND_INS + ". The 50 jobs have an API server, and pods of KWOK that run nothing",
        why=why,
        n=sum(answers),
        law=overload.LAWS[0].text,
        load=f"closed loops, {for_s:g} s",
        raw={"answers": answers, "memory": None if memory is None else asdict(memory)},
    )


def main(argv: list[str] | None = None) -> int:
    """Measure the given rows, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", choices=["8.1", "8.4", "8.5", []])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(argv)
    measures: dict[str, Any] = {
        "8.1": lambda: row_1(options.seconds),
        "8.4": row_4,
        "8.5": lambda: row_5(options.seconds),
    }
    for name in options.rows or measures:
        row = measures[name]()
        record("tune", [row])
        say(f"lower: {row.id} {row.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
