"""Processes that measure jobs at the same time, each with a Triton of its own."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, METRICS_PORT
from benchmarks.errors import BenchError
from benchmarks.tune.real.jobs import SWEEP_SEED, DisturbedError, Job, LawRun, TimeUpError, missing
from benchmarks.tune.real.laws import TritonLaw
from benchmarks.tune.real.store import Store
from e2e.cluster.progress import say
from halcyon_cli.bench.trial.trial_runner import TrialRunner
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.protocols.repository import Repository
from halcyon_measure.sampling.sampler import SamplingSettings, Source
from halcyon_measure.schedule.scenario import Scenario
from halcyon_tune.errors import TuneError

_ARGUMENTS = ("--model-control-mode=explicit", "--load-model=m", "--exit-on-error=false")
_PAUSE_S = 20.0
"""Pause of a process without a job, in seconds."""


@contextmanager
def serving(law: TritonLaw, senders: int = 1) -> Iterator[Callable[[int], TrialRunner]]:
    """Start a Triton with the law's model, and yield a function that returns a measuring side by its seed.

    `senders` is the number of processes that send each load.
    """
    with tritons.running([law], arguments=_ARGUMENTS, shares_memory=True) as (triton,):
        destination = target.parse(
            f"grpc://{triton.address}:{GRPC_PORT}", api="kserve", transport=None, encoding=None, model="m"
        )
        page = Source(pod="m", url=f"http://{triton.address}:{METRICS_PORT}/metrics")
        config = Repository(destination).config()

        def runner(seed: int) -> TrialRunner:
            measurement = Measurement(
                target=destination,
                scenario=Scenario(seed=seed),
                processes=senders,
                sampling=SamplingSettings(servers=(page,), idle_s=0),
            )
            return TrialRunner(measurement.prepare(), config, is_paired=seed >= SWEEP_SEED)

        yield runner


def measure(laws: Sequence[TritonLaw], count: int, senders: int, end: float) -> None:
    """Measure all jobs of these laws in a number of processes, each of which begins with another law."""
    context = multiprocessing.get_context("spawn")
    orders = [(*laws[number % len(laws) :], *laws[: number % len(laws)]) for number in range(count)]
    processes = [context.Process(target=measure_jobs, args=(order, senders, end)) for order in orders]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def measure_jobs(laws: Sequence[TritonLaw], senders: int, end: float) -> None:
    """Measure jobs of these laws, the first law's first, until there are no more of them or the time is up."""
    os.setsid()  # each session has a share of the CPU of its own
    while time.monotonic() < end and any(missing(law, Store(law).read()) for law in laws):
        if not any(_measure_law(law, senders, end) for law in laws):
            time.sleep(_PAUSE_S)  # other processes have claimed all remaining jobs, and more may follow from these


def _measure_law(law: TritonLaw, senders: int, end: float) -> bool:
    """Measure jobs of a law until none is left, and return whether there was one."""
    store, count = Store(law), 0
    with ExitStack() as stack:
        runner = None
        while time.monotonic() < end:
            with ExitStack() as claim:
                job = next(
                    (
                        candidate
                        for candidate in missing(law, store.read())
                        if _is_claimed(claim, law, store, candidate)
                    ),
                    None,
                )
                if job is None:
                    break
                try:
                    runner = runner or stack.enter_context(serving(law, senders))
                    LawRun(law, store, runner, end).run(job)
                except TimeUpError:
                    break
                except (TuneError, DisturbedError, BenchError) as error:
                    say(f"{law.kind}: {job.kind} {job.key}: {error}; another run goes on from here")
                    time.sleep(_PAUSE_S * random.uniform(0.5, 1.5))
                    break
                count += 1
    return count > 0


def _is_claimed(claim: ExitStack, law: TritonLaw, store: Store, job: Job) -> bool:
    """Claim a job for as long as the stack is open, and return whether it is ours and still missing."""
    is_ours = claim.enter_context(store.claim(f"{job.kind} {job.key}"))
    # Another process may have ended it just before.
    return is_ours and job in missing(law, store.read())
