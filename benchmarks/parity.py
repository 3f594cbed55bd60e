"""Part `parity`: the same load on two models, one scaled by an HPA and one directly, must give the same replicas.

The replicas must agree within one sync interval. The desired replicas grow from 1 to 40 in steps of 1, and then
decrease in the same way. On the way down, the HPA alone decides, so an effect of its tolerance would show there. Each
model has its own planner, with its own decision times. So the replicas are also compared with the decisions of the
model's own planner, which separates the actuator from its input.

The comparison runs twice. First with a load that grows and falls, where planners may skip numbers, and then with a
schedule that requests each number in turn.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.agents import Agents
from benchmarks.counts import Change, Counts
from benchmarks.plane import STAND_INS, Plane, model, namespace_of, plane
from benchmarks.rows import Row
from benchmarks.stand_in import Law
from e2e.cluster.progress import say
from halcyon.kube import kinds
from halcyon.scaling.planner.objectives import UTILIZATION
from halcyon.scaling.planner.scale_down_hold import MAX_FIRST_HOLD_S

HPA_SYNC_S = 1
MOST = 40
SLACK_S = 1.0
"""Tolerance in seconds in addition to one sync interval. The agents of both models report at the same time, but each
model's decision may wait for up to a second."""
_STEP_S = 2.5
"""Time in seconds between two changes of the desired replicas. It is longer than a sync interval plus the tolerance, so
that skipped numbers are detected."""
_SAMPLE_S = 0.25
_HOLD_S = MAX_FIRST_HOLD_S + 15.0
"""Minimum time in seconds for which the planner keeps replicas that are no longer needed."""
_ACTUATORS = ("HPA", "Direct")


def run(most: int = MOST) -> list[Row]:
    """Measure, and return one row for each of the two runs."""
    with plane(hpa_sync_s=HPA_SYNC_S, pods=4 * most) as control_plane:
        return asyncio.run(_run(control_plane, most))


def rate_for(count: int) -> float:
    """Return the middle of the range of rates for which `count` replicas are desired by utilization alone."""
    return (count - 0.5) * UTILIZATION * Law().peak_rps


def agreement(
    first: Sequence[Change], second: Sequence[Change], *, begin_s: float, end_s: float, window_s: float
) -> tuple[int, int]:
    """Return (number of samples, number of samples that agree).

    A sample agrees if the replicas of `first` at that time occurred in `second` within the window before, or the reverse,
    because either may change first.
    """
    samples = agreed = 0
    at = begin_s + window_s
    while at <= end_s:
        samples += 1
        agreed += _at(first, at) in _within(second, at, window_s) or _at(second, at) in _within(first, at, window_s)
        at += _SAMPLE_S
    return samples, agreed


def _at(changes: Sequence[Change], at: float) -> int:
    return next((count for when, count in reversed(changes) if when <= at), 1)


def _within(changes: Sequence[Change], at: float, window_s: float) -> set[int]:
    return {_at(changes, at - window_s), *(count for when, count in changes if at - window_s < when <= at)}


@dataclass(frozen=True)
class _Walk:
    """A way to request increasing and then decreasing numbers of replicas."""

    title: str
    request: Callable[[int], Awaitable[None]]
    """Request a number of replicas from both models."""
    rest_s: float
    """Maximum time in seconds until the last number is reached."""


async def _run(control_plane: Plane, most: int) -> list[Row]:
    async with (
        Counts(control_plane.kubeconfig, namespace_of) as counts,
        Agents(control_plane, counts, spread_s=0.0) as agents,
    ):
        names = [f"by-{actuator.lower()}" for actuator in _ACTUATORS]
        for name, actuator in zip(names, _ACTUATORS, strict=True):
            document = model(name, most=most, actuator=actuator)
            await counts.client.create(kinds.MODEL_DEPLOYMENT, document, namespace=namespace_of(name))
        await counts.until_served(names, limit_s=60)
        await agents.begin(names)

        async def load(desired: int) -> None:
            for name in names:
                agents.set_rate(name, rate_for(desired))

        async def schedule(desired: int) -> None:
            entry = {"name": "walk", "start": "0 0 * * *", "duration": "24h", "timeZone": "UTC", "minReplicas": desired}
            patch = {"spec": {"scaling": {"schedules": [entry]}}}
            await asyncio.gather(
                *(counts.client.patch(kinds.MODEL_DEPLOYMENT, namespace_of(name), name, patch) for name in names)
            )

        await load(1)
        await asyncio.sleep(10)
        walks = (_Walk("by the same load", load, _HOLD_S), _Walk("by a schedule", schedule, 2 * _STEP_S))
        return [await _measure_walk(walk, names, most, counts, agents) for walk in walks]


async def _measure_walk(walk: _Walk, names: Sequence[str], most: int, counts: Counts, agents: Agents) -> Row:
    began_s = time.monotonic()
    for desired in range(2, most + 1):
        await walk.request(desired)
        await asyncio.sleep(_STEP_S)
    top_s = time.monotonic()
    for desired in range(most - 1, 0, -1):
        await walk.request(desired)
        await asyncio.sleep(_STEP_S)
    await asyncio.sleep(walk.rest_s)
    agents.check()
    end_s = time.monotonic()
    ends = {name: counts.count(name) for name in names}
    changes = [list(counts.replicas[name]) for name in names]
    decisions = [list(counts.desired[name]) for name in names]
    actuators = [counts.actuator(name) for name in names]
    window_s = HPA_SYNC_S + SLACK_S
    up = agreement(*changes, begin_s=began_s, end_s=top_s, window_s=window_s)
    down = agreement(*changes, begin_s=top_s, end_s=end_s, window_s=window_s)
    agreements = [
        agreement(replica_changes, decision_changes, begin_s=began_s, end_s=end_s, window_s=window_s)
        for replica_changes, decision_changes in zip(changes, decisions, strict=True)
    ]
    passed_up = [len({count for at, count in model_changes if began_s <= at <= top_s}) for model_changes in changes]
    passed_down = [len({count for at, count in model_changes if at > top_s}) for model_changes in changes]
    say(
        f"parity {walk.title}: {up[1]} of {up[0]} samples agree on the way up, {down[1]} of {down[0]} on the way down; at the end {ends}; "
        + " and ".join(
            f"{agreed} of {samples} are what was decided ({name})"
            for name, (samples, agreed) in zip(names, agreements, strict=True)
        )
    )
    return Row(
        part="parity",
        what=f"{walk.title}, through an HPA and directly, 1 to {most} replicas and back",
        models=2,
        actuator=" and ".join(str(actuator) for actuator in actuators),
        hpa_sync_s=HPA_SYNC_S,
        stand_ins=STAND_INS,
        figures={
            "same_count_up_pct": round(100 * up[1] / up[0], 2),
            "same_count_down_pct": round(100 * down[1] / down[0], 2),
            "as_decided_hpa_pct": round(100 * agreements[0][1] / agreements[0][0], 2),
            "as_decided_direct_pct": round(100 * agreements[1][1] / agreements[1][0], 2),
            "window_s": window_s,
            "largest_hpa": max(count for _, count in changes[0]),
            "largest_direct": max(count for _, count in changes[1]),
            "counts_passed_up_hpa": passed_up[0],
            "counts_passed_up_direct": passed_up[1],
            "counts_passed_down_hpa": passed_down[0],
            "counts_passed_down_direct": passed_down[1],
            "last_hpa": ends[names[0]],
            "last_direct": ends[names[1]],
        },
    )
