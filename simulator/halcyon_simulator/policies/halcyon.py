"""Halcyon's planner as a policy: the code that runs in the operator, with its input taken from a `PolicyView`."""

from __future__ import annotations

from dataclasses import fields, replace

from halcyon.api.spec.defaults import IDLE_AFTER_S
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyPod, PolicyView, SampleColumn

_WARMED = (1, 0)
"""Batch sizes with which a pod is warmed up before it receives requests. The value 0 stands for the maximum."""
_MIN_COUNTS = {"low": 0, "high": 1, "max_batch": 1, "instances": 1, "queue_limit": 0}
"""Minimum value of each knob that is a count."""


class HalcyonPolicy:
    """Policy that uses the planner with its memory.

    Its knobs are the numeric fields of `Objectives`, for example drain_s=20.
    """

    period_s = 1.0

    def __init__(self, case: Case, **knobs: float) -> None:
        knob_names = {
            f.name
            for f in fields(Objectives)
            if f.name not in {"windows", "batch_prior", "measured_batches", "measured_answers"}
        }
        if unknown := sorted(set(knobs) - knob_names):
            raise ValueError(
                f"policy halcyon has no knob '{unknown[0]}'; its knobs are {', '.join(sorted(knob_names))}; "
                "for example halcyon:drain_s=20"
            )
        for name, least in _MIN_COUNTS.items():
            value = knobs.get(name, least)
            if value < least or value != int(value):
                raise ValueError(
                    f"policy halcyon: {name} is {value:g}; it has to be a whole number of at least {least}, for example halcyon:{name}=4"
                )
        service = case.service
        sizes = {size or service.max_batch for size in _WARMED}
        reported_s, is_true = service.reported_s, service.reported_s is None
        prior = {size: service.seconds(size) if reported_s is None else reported_s for size in sizes if reported_s != 0}
        objectives = Objectives(
            low=case.low,
            high=case.high,
            max_batch=service.max_batch,
            instances=service.instances if is_true else 1,
            latency_s=case.slo_s,
            queue_limit=case.queue_limit,
            idle_after_s=IDLE_AFTER_S if case.low == 0 else None,
            start_s=case.start_s,
            batch_prior=prior or None,
        )
        self._has_gpu = is_true
        """Whether GPU utilisation is available as a signal. If an engine executes requests concurrently, it can't be
        derived from the busy time of instances."""
        counts = {name: int(knobs[name]) for name in _MIN_COUNTS if name in knobs}
        self.objectives = replace(objectives, **knobs | counts)  # type: ignore[arg-type]  # all of them are numbers
        self.memory = PlannerMemory()
        self.last: Plan | None = None
        self.next_look_s: float | None = None

    def desired(self, view: PolicyView) -> int:
        """Return the planner's desired replicas."""
        busy = view.rate(SampleColumn.BUSY_S, 5.0)
        reading = Reading(
            at=view.sampled_at(),
            replicas=view.replicas,
            arrived=view.value(SampleColumn.ARRIVED),
            rejected=view.value(SampleColumn.REFUSED),
            waiting=view.value(SampleColumn.WAITING),
            inflight=view.value(SampleColumn.INFLIGHT),
            queued=view.value(SampleColumn.QUEUED),
            gpu=None if busy is None or not self._has_gpu else 100.0 * busy / self.objectives.instances,
            batches=view.batches(),
            pods=tuple(_pod(pod) for pod in view.pods),
        )
        self.last = plan(view.now, self.objectives, reading, self.memory)
        self.memory = self.last.memory
        self.next_look_s = self.last.next_decision_at
        return self.last.count


def _pod(pod: PolicyPod) -> PodReading:
    # The pods that exist at the start of a case were never started, so their start time is unknown.
    ready = pod.ready_s if pod.ready_s is not None and pod.ready_s > pod.created_s else None
    return PodReading(pod.name, pod.phase, pod.created_s, ready)  # type: ignore[arg-type]  # the same words
