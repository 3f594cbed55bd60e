"""Simulation of one case under a scaling policy, tick by tick, including the life cycle of the pods.

Out of scope: the requests (`event_loop`), the policy's view (`observed`), the score of a run (`bounds.score`).

Replicas that the policy writes take effect after the actuation delay. Surplus pods are removed in this order:

    1. Unschedulable and then starting pods, the newest first. They cease to exist immediately.
    2. Ready pods, those with the fewest requests first, the newest first among equals. They finish their requests.

A pod holds its GPU, and is billed, from its creation until it ceases to exist. If there was no capacity, it is billed
from the time at which it is scheduled.

After the end of the case, the remaining requests have `slo_s` seconds to get a response, so that each request has its
full time. There are no ticks and no billing in this time.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.case import Case, Times
from halcyon_simulator.engine.event_loop import (
    BUSY_AT,
    BUSY_S,
    CHANGES,
    COMPUTING,
    DRAINING,
    HELD,
    PHASE,
    READY,
    RELEASED,
    Floats,
    engine,
)
from halcyon_simulator.engine.observed import HISTORY, ObservedRun, history, kept_s
from halcyon_simulator.engine.policy_view import Policy, PolicyPod, SampleColumn

_FIRST_LOAD = 0.7
"""Share of the peak throughput for which the initial number of pods is computed, if the simulation case doesn't set
it."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Write:
    """Change of the replicas that the policy has written."""

    at_s: float
    before: int
    after: int


@dataclass(frozen=True)
class PodArrays:
    """All pods of a run, in the order of their creation.

    Times are in seconds. `released_s` is infinite for pods that still exist at the end.
    """

    created_s: Floats
    held_s: Floats
    """Time from which each pod held a GPU; infinite if the pod was removed before."""
    ready_s: Floats
    """Time at which each pod became ready; infinite if the pod was removed before."""
    released_s: Floats

    def gpu_seconds(self, begin_s: float, end_s: float) -> float:
        """Return the GPU time that the pods held within a time span, in seconds."""
        held = np.minimum(self.released_s, end_s) - np.maximum(self.held_s, begin_s)
        return float(np.maximum(held, 0.0).sum())

    def existing(self, seconds: Floats) -> NDArray[np.int64]:
        """Return the number of existing pods at each of the given times, including draining pods."""
        created, released = np.sort(self.created_s), np.sort(self.released_s)
        return np.searchsorted(created, seconds, side="right") - np.searchsorted(released, seconds, side="right")


@dataclass(frozen=True)
class Trajectory:
    """Record of a run. Unless noted otherwise, arrays have one value per whole second, starting at 0."""

    arrivals: Times
    """Arrival times of the requests. Requests after the end of the simulation case are not included."""
    latency_s: NDArray[np.float32]
    """Time in system of each request, in seconds; NaN if it was rejected, and infinite if it had no response until
    `slo_s` seconds after the end."""
    arrived: Floats
    """Cumulative number of arrivals. `refused` and `answered` are also cumulative."""
    refused: Floats
    answered: Floats
    waiting: Floats
    """Number of requests that wait in the balancer and in Triton's queues."""
    inflight: Floats
    ready: Floats
    written: NDArray[np.int64]
    """Replicas that the policy last wrote."""
    existing: NDArray[np.int64]
    """Number of existing pods, including draining ones."""
    writes: tuple[Write, ...]
    first: int
    """Number of replicas at the start."""
    pods: PodArrays
    gpu_seconds: float
    busy_s: float
    """Seconds of computing in the whole run, summed over all instances."""


@dataclass
class _Pod:
    name: int
    slot: int
    created_s: float
    held_s: float
    ready_s: float
    released_s: float = math.inf
    draining: bool = False


def first_count(case: Case) -> int:
    """Return the number of replicas that are ready at time 0."""
    if case.first is not None:
        return case.first
    span_s = min(60.0, case.duration_s)
    rate = float(np.searchsorted(case.arrivals, span_s)) / span_s
    return min(max(math.ceil(rate / (_FIRST_LOAD * case.service.peak_rps) - _ROUNDING), case.low), case.high)


def simulate(case: Case, policy: Policy) -> Trajectory:
    """Run a simulation case under a scaling policy. The same case and policy give the same trajectory.

    If a policy has the attribute `next_look_s` and its value isn't None, ticks before this time are skipped.

    Raises:
        ValueError: the case or the policy's period is invalid.
    """
    _check(case, policy.period_s)
    run = _Run(case)
    period_s, tick = policy.period_s, 0
    while (now := tick * period_s) < case.duration_s:
        run.advance(now)
        run.update_view(now)
        run.write(now, policy.desired(run.view))
        tick += 1
        look_s: float | None = getattr(policy, "next_look_s", None)
        if look_s is not None:
            tick = max(tick, math.ceil(look_s / period_s - _ROUNDING))
    return run.end()


def _check(case: Case, period_s: float) -> None:
    if not 0 < period_s < math.inf:
        raise ValueError(f"a policy's period is {period_s} s: it has to be above 0, for example 2")
    if not 0 < case.duration_s < math.inf:
        raise ValueError(f"case {case.name} takes {case.duration_s} s: it has to be above 0, for example 3600")
    if not 0 <= case.low <= case.high or case.high < 1:
        raise ValueError(f"case {case.name} has {case.low} to {case.high} replicas: for example 1 to 100")
    if len(case.arrivals) and (case.arrivals[0] < 0 or bool(np.any(np.diff(case.arrivals) < 0))):
        raise ValueError(f"case {case.name}: its arrivals have to ascend from 0 or later; for example [0.5, 0.8, 1.3]")
    if case.slots is not None and case.slots < 1:
        raise ValueError(
            f"case {case.name} allows {case.slots} requests to a replica: it has to be 1 or more, for example 8"
        )


class _Run:
    """State of a run in progress."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._first = self._count = first_count(case)
        samples = history(case, ready=self._first)
        self._engine = engine(case, samples=samples, prefix=HISTORY, past=kept_s(case))
        self.view = ObservedRun(case, samples=samples, past=self._engine.state.past)
        self._rng = np.random.Generator(np.random.PCG64([case.seed, 1]))
        self._free = list(range(self._engine.capacity - 1, -1, -1))
        self._all_pods: list[_Pod] = []
        self._pods: list[_Pod] = []
        self._writes: list[Write] = []
        self._effects: deque[tuple[float, int]] = deque()
        self._changes = 0
        self._visible_pods: tuple[PolicyPod, ...] | None = None
        self._scheduled_s = 0.0
        for _ in range(self._first):
            self._add(0.0, held_s=0.0, ready_s=0.0)

    def advance(self, until: float) -> None:
        """Run up to `until`, and apply the replicas that take effect before that time."""
        while self._effects and self._effects[0][0] <= until:
            at_s, count = self._effects.popleft()
            self._engine.advance(at_s)
            self._apply(at_s, count)
        self._engine.advance(until)

    def update_view(self, now: float) -> None:
        """Set the time of the policy's view to `now`."""
        self._harvest()
        if self._visible_pods is None or self._scheduled_s > 0:
            self._visible_pods = tuple(self._policy_pod(pod, now) for pod in self._pods)
            # The last call is after all of them have been scheduled.
            if now >= self._scheduled_s:
                self._scheduled_s = 0.0
        self.view.at(now, replicas=self._count, pods=self._visible_pods)

    def write(self, now: float, desired: int) -> None:
        """Write the policy's replicas if they differ from the current ones."""
        count = min(max(int(desired), self._case.low), self._case.high)
        if count == self._count:
            return
        self._writes.append(Write(now, self._count, count))
        self._count = count
        if self._case.actuation_delay_s > 0:
            self._effects.append((now + self._case.actuation_delay_s, count))
        else:
            self._apply(now, count)

    def end(self) -> Trajectory:
        """Run to `slo_s` seconds after the end of the case, and return the trajectory."""
        case = self._case
        self.advance(case.duration_s)
        self._harvest()
        state = self._engine.state
        clock, tally = state.clock, state.tally
        busy_s = float(clock[BUSY_S] + tally[COMPUTING] * (case.duration_s - clock[BUSY_AT]))
        self._engine.advance(case.duration_s + case.slo_s)
        pods = PodArrays(
            *(
                np.array([getattr(pod, name) for pod in self._all_pods], dtype=np.float64)
                for name in ("created_s", "held_s", "ready_s", "released_s")
            )
        )
        samples = state.samples[:, HISTORY:]
        # These columns had the values of the history, but the run itself started empty.
        samples[SampleColumn.INFLIGHT, 0] = 0
        seconds = np.arange(samples.shape[1], dtype=np.float64)
        counts = np.array([self._first, *(write.after for write in self._writes)])
        written = counts[np.searchsorted([write.at_s for write in self._writes], seconds, side="right")]
        return Trajectory(
            arrivals=state.arrivals,
            latency_s=state.latency,
            arrived=samples[SampleColumn.ARRIVED],
            refused=samples[SampleColumn.REFUSED],
            answered=samples[SampleColumn.ANSWERED],
            waiting=samples[SampleColumn.WAITING],
            inflight=samples[SampleColumn.INFLIGHT],
            ready=samples[SampleColumn.READY],
            written=written,
            existing=pods.existing(seconds),
            writes=tuple(self._writes),
            first=self._first,
            pods=pods,
            gpu_seconds=pods.gpu_seconds(0.0, case.duration_s),
            busy_s=busy_s,
        )

    def _apply(self, now: float, count: int) -> None:
        self._harvest()
        active = [pod for pod in self._pods if not pod.draining]
        for _ in range(count - len(active)):
            self._create(now)
        if count < len(active):
            active.sort(key=lambda pod: self._keep(pod, now))
            for pod in active[count:]:
                self._remove(pod, now)
        self._visible_pods = None

    def _keep(self, pod: _Pod, now: float) -> tuple[int, int, int]:
        """Return a sort key with which the pods to keep come first."""
        if self._engine.state.pods[PHASE, pod.slot] == READY:
            return 0, -int(self._engine.state.pods[HELD, pod.slot]), pod.name
        return (1 if pod.held_s <= now else 2), 0, pod.name

    def _create(self, now: float) -> None:
        faults = self._case.start_faults
        held_s = now
        for begin, until in sorted(faults.no_capacity):
            if begin <= held_s < until:
                held_s = until
        slow, crash, slow_restart = self._rng.random(3)
        ready_s = held_s + self._case.start_s * (faults.slow_factor if slow < faults.slow_share else 1.0)
        if crash < faults.crash_share:
            ready_s += self._case.start_s * (faults.slow_factor if slow_restart < faults.slow_share else 1.0)
        self._scheduled_s = max(self._scheduled_s, held_s)
        self._add(now, held_s=held_s, ready_s=ready_s)

    def _add(self, now: float, *, held_s: float, ready_s: float) -> None:
        if not self._free:
            before = self._engine.capacity
            self._engine.grow()
            self._free = list(range(self._engine.capacity - 1, before - 1, -1))
        pod = _Pod(len(self._all_pods), self._free.pop(), now, held_s, ready_s)
        self._engine.start(pod.slot, ready_s=ready_s)
        self._all_pods.append(pod)
        self._pods.append(pod)

    def _remove(self, pod: _Pod, now: float) -> None:
        if self._engine.state.pods[PHASE, pod.slot] != READY:
            pod.ready_s = math.inf
            if pod.held_s > now:
                pod.held_s = math.inf
        pod.draining = True
        self._engine.drain(pod.slot, now)

    def _harvest(self) -> None:
        """Free the slots of pods that no longer exist.

        Do nothing if no pod has changed its phase since the last call.
        """
        if self._engine.state.tally[CHANGES] == self._changes:
            return
        self._changes = int(self._engine.state.tally[CHANGES])
        self._visible_pods = None
        phases = self._engine.state.pods[PHASE]
        released = [pod for pod in self._pods if pod.draining and phases[pod.slot] == RELEASED]
        if released:
            for pod in released:
                pod.released_s = float(self._engine.state.released[pod.slot])
                self._free.append(pod.slot)
            self._pods = [pod for pod in self._pods if not pod.draining or phases[pod.slot] != RELEASED]

    def _policy_pod(self, pod: _Pod, now: float) -> PolicyPod:
        phase = self._engine.state.pods[PHASE, pod.slot]
        if phase == READY:
            return PolicyPod(pod.name, "ready", pod.created_s, pod.ready_s)
        if phase == DRAINING:
            return PolicyPod(pod.name, "draining", pod.created_s, pod.ready_s)
        return PolicyPod(pod.name, "starting" if pod.held_s <= now else "unschedulable", pod.created_s)
