"""Part `one`: time from a step of the load to the write of /scale, with one model on real Triton, ten times.

The load grows from the capacity of one replica to that of four. Each step uses a new model, because a planner that has
learnt the same step three times would expect the fourth. That is a useful property, but not the reaction time.
"""

import asyncio
import time

from benchmarks import open_loop, pods
from benchmarks.counts import Counts
from benchmarks.profile import Profile, step
from benchmarks.rows import Row
from demo.kube import Kube
from e2e.cluster.progress import say
from halcyon.kube import kinds

STEPS = 10
START_S = 0.5
LOW_RPS, HIGH_RPS = 35.0, 210.0
MOST = 4
_BEFORE_S, _LIMIT_S = 10.0, 20.0
_SERVED_TIMEOUT_S = 60.0
_DEADLINE_S = 10.0


def run(steps: int = STEPS) -> list[Row]:
    """Measure, and return one row."""
    with pods.cluster() as kube:
        return [asyncio.run(_run(kube, steps))]


async def _run(kube: Kube, steps: int) -> Row:
    times: list[float] = []
    missed = 0
    actuator = None
    async with Counts(str(kube.kubeconfig), lambda _: kube.namespace) as counts:
        for number in range(steps):
            name = f"one-{number}"
            # The step begins off the full second, and at a different phase of the HPA's sync interval each time.
            profile = step(
                low_rps=LOW_RPS, high_rps=HIGH_RPS, before_s=_BEFORE_S + 0.37 * number, for_s=_LIMIT_S, after_s=0.1
            )
            scaling = {"minReplicas": 1, "maxReplicas": MOST, "targets": {"latency": "500ms"}}
            await asyncio.to_thread(kube.apply, pods.model(name, start_s=START_S, scaling=scaling))
            await counts.until_served([name], limit_s=_SERVED_TIMEOUT_S)
            delay_s = await _step(kube, counts, name, profile, seed=number)
            actuator = counts.actuator(name)
            missed += delay_s is None
            if delay_s is not None:
                times.append(round(delay_s, 3))
            say(f"one: step {number + 1} of {steps}: {'not raised' if delay_s is None else f'{delay_s:.2f} s'}")
            await counts.client.delete(kinds.MODEL_DEPLOYMENT, kube.namespace, name)
    return Row(
        part="one",
        what=f"one model on real Triton, {LOW_RPS:g} to {HIGH_RPS:g} req/s, {steps} times",
        models=1,
        actuator=actuator,
        hpa_sync_s=pods.HPA_SYNC_S,
        step_to_scale_s=tuple(times),
        stand_ins=pods.STAND_INS,
        figures={"not_raised": missed, "not_raised_limit_s": _LIMIT_S},
    )


async def _step(kube: Kube, counts: Counts, name: str, profile: Profile, *, seed: int) -> float | None:
    """Return the seconds from the step to the write, which ends the load; None if the limit passed before."""
    address = pods.address(kube, name)
    with open_loop.running(address, name, profile, deadline_s=_DEADLINE_S, seed=seed) as load:
        rise_s = load.began_s + profile.rises_s[0]
        await asyncio.sleep(rise_s - time.monotonic())
        delays_s = await counts.raised([name], since_s=rise_s, limit_s=_LIMIT_S)
    return delays_s.get(name)
