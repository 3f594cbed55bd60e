"""Row of one model in the table, its problems, and the totals over rows. Pure.

`PROBLEMS` lists the possible problems of a model, most urgent first. The state of a model is the first of these whose
condition holds: stalled, progressing, unready, zero, limited, ready, unknown.

Out of scope: which rows are shown (`model_table`).
"""

# | state       | condition                                                |
# | ----------- | -------------------------------------------------------- |
# | stalled     | Stalled is True: a user must act                         |
# | progressing | Reconciling is True, and Ready isn't False or `starting` |
# | unready     | Ready is False                                           |
# | zero        | Ready is True, and the replicas in force are 0           |
# | limited     | Ready is True, and a limit prevents more replicas        |
# | ready       | Ready is True                                            |
# | unknown     | any other                                                |
# `starting`: the model was never served, or may have had zero replicas before. Reconciling is also True in an outage.

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.api.types import duration_s
from halcyon.dashboard.history import NO_LOAD, CurrentLoad
from halcyon.dashboard.ports import Name, Object

log = logging.getLogger(__name__)

State = Literal["stalled", "unready", "progressing", "unknown", "limited", "zero", "ready"]
"""State of a model. The values are ordered from the most to the least urgent, and the table is sorted in this order."""
Problem = Literal["unready", "errors", "slow", "stalled", "blind", "limited"]
"""Problem of a model.

`unready`: requests aren't answered. `errors`: at least `ERROR_PERCENT` of the requests fail. `slow`: the p99 of the
client latency is above targets.latency. `stalled`: a user must act. `blind`: a signal of the last scaling decision is
missing, or no agent has reported. `limited`: a limit prevents more replicas.
"""
PROBLEMS: tuple[Problem, ...] = get_args(Problem)
ERROR_PERCENT = 1.0
"""Minimum share of failed requests that counts as a problem, in percent."""
UNHEALTHY: frozenset[State] = frozenset({"unready", "stalled"})
"""States in which requests aren't answered, or a user must act."""
STATES: tuple[State, ...] = get_args(State)
MAX_ROLLOUTS = 20
"""Maximum number of rollouts that are listed with the totals; the others are only counted."""
UNREADABLE = "Unreadable"
"""Value of the field `reason` for a model whose stored object is malformed."""
_CAPS = frozenset({"max", "quota", "budget"})
"""Values of status.scaling.limitedBy for limits that keep the replicas below the number that the load requires."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Table row of one model, with values from its ModelDeployment."""

    namespace: str
    name: str
    state: State
    reason: str
    """Reason for the state, in one word, from the conditions of the model."""
    ready: int | None
    replicas: int
    desired: int | None
    min: int | None
    """Minimum replicas. `min` and `max` are None if spec.scaling is not set."""
    max: int | None
    queue: float | None
    """Number of queued requests, from the status. `queue`, `gpu` and `batch` are shown only while the currently
    measured values are unknown."""
    queue_target: float | None
    """Target number of queued requests for all ready replicas together."""
    gpu: float | None
    batch: float | None
    gpus: int
    """Number of GPUs of the pods that are assigned to a node. If the status doesn't have this number, it is the number
    of GPUs of all existing pods."""
    cost: float | None
    """Cost per hour of the GPUs that the model uses; None if the site has set no price."""
    currency: str
    policy: str
    image: str
    created: str
    why: str
    """Explanation of the last scaling decision, as text."""
    latency_target: float | None
    """Objective for the p99 of the client latency, in milliseconds; None if there is none."""
    serves: bool
    """Whether requests are answered or may be, because the condition Ready isn't False."""
    blind: bool
    """Whether a signal of the last scaling decision is missing, or no agent has reported."""
    rollout: Mapping[str, Any] | None
    """Progress of the rollout (see `rollout_progress`); None if no rollout is in progress."""

    @property
    def key(self) -> Name:
        """Namespace and name of the model."""
        return Name(self.namespace, self.name)


def row(model: Object) -> TableRow:
    """Return the row of a ModelDeployment."""
    meta, spec, status = model["metadata"], model.get("spec") or {}, model.get("status") or {}
    summary, scaling, cost = (status.get(part) or {} for part in ("summary", "scaling", "cost"))
    scaling_spec: Object = spec.get("scaling") or {}
    replicas = replicas_in_force(model)
    queue, _, queue_target = str(summary.get("queue")).partition("/")
    return TableRow(
        namespace=meta["namespace"],
        name=meta["name"],
        state=_state(replicas, spec, status),
        reason=str(summary.get("state") or "Unknown"),
        ready=status.get("readyReplicas"),
        replicas=replicas,
        desired=scaling.get("desired"),
        min=scaling_spec.get("minReplicas", 1) if scaling_spec else None,
        max=scaling_spec.get("maxReplicas"),
        queue=_float(queue),
        queue_target=_float(queue_target),
        gpu=_float(summary.get("gpu")),
        batch=_float(summary.get("batch")),
        gpus=_gpus(spec, status),
        cost=_float(cost.get("perHour")),
        currency=str(cost.get("currency") or ""),
        policy=str(scaling.get("policy") or ""),
        image=str(status.get("runtimeImage") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        why=str(scaling.get("why") or ""),
        latency_target=latency_target_ms(model),
        serves=("Ready", "False") not in _conditions(status),
        blind=_is_blind(status),
        rollout=rollout_progress(status),
    )


def _gpus(spec: Object, status: Object) -> int:
    """Return the number of GPUs in the status, or else that of all existing pods (see `TableRow.gpus`)."""
    cost, gpu = status.get("cost") or {}, (spec.get("runtime") or {}).get("gpu")
    if "gpus" in cost:
        gpus: int = cost["gpus"]
        return gpus
    per_pod = gpu.get("count", 1) if gpu else 0
    return int(per_pod) * int(status.get("replicas") or 0)


def _is_blind(status: Object) -> bool:
    """Return whether a signal of the last scaling decision is missing, or no agent has reported."""
    if any(signal.get("missing") for signal in (status.get("scaling") or {}).get("signals") or ()):
        return True
    # The servers and balancers are ready, but no agent reports.
    return {("Ready", "True"), ("ScalingActive", "Unknown")} <= _conditions(status)


def _conditions(status: Object) -> set[tuple[str, str]]:
    """Return the type and status of each condition."""
    return {(c["type"], c["status"]) for c in status.get("conditions") or ()}


def latency_target_ms(model: Object) -> float | None:
    """Return the client p99 latency objective in milliseconds; None if there is none or the policy is Rules."""
    scaling = (model.get("spec") or {}).get("scaling") or {}
    target = None if scaling.get("policy") == "Rules" else (scaling.get("targets") or {}).get("latency")
    try:
        return None if target is None else duration_s(target) * 1000
    except ValueError:  # a spec that isn't accepted
        return None


def rollout_progress(status: Object) -> dict[str, Any] | None:
    """Return the progress of a rollout, or None if there is no rollout or it is complete.

    The progress consists of the phase, the strategy, a message, numbers of pods, and the canary's share of the
    requests. `updated` is the number of pods of the target revision, `pods` the number of all pods. Both are None if
    the status doesn't contain them.
    """
    rollout, pods = status.get("rollout") or {}, status.get("pods") or {}
    phase = rollout.get("phase")
    if phase in {None, "Complete"}:
        return None
    canary = rollout.get("canary") or {}
    return {
        "phase": phase,
        "strategy": str(rollout.get("strategy") or ""),
        "message": str(rollout.get("message") or ""),
        "updated": pods.get("updated"),
        "pods": pods.get("total"),
        "weight": canary.get("weight"),
        "step": canary.get("step"),
        "paused": bool(canary.get("paused")),
    }


def problems(row: TableRow, load: CurrentLoad) -> list[Problem]:
    """Return the problems of a model, the most urgent first. A value that is unknown doesn't count as a problem."""
    flags: dict[Problem, bool] = {
        # A stalled model may still serve its old revision.
        "unready": row.state in UNHEALTHY and not row.serves,
        "errors": load.errors is not None and load.errors >= ERROR_PERCENT,
        "slow": load.p99 is not None and row.latency_target is not None and load.p99 > row.latency_target,
        "stalled": row.state == "stalled",
        "blind": row.blind,
        "limited": row.state == "limited",
    }
    return [problem for problem in PROBLEMS if flags[problem]]


def row_or_unreadable(name: Name, model: Object) -> TableRow:
    """Return the row of a model.

    If the ModelDeployment is malformed, return a row with the reason `UNREADABLE`, so that the other rows can be shown.
    """
    try:
        return row(model)
    except Exception:  # a malformed object
        log.exception("a ModelDeployment can't be shown", extra={"key": f"{name.namespace}/{name.name}"})
        return replace(row({"metadata": name._asdict()}), reason=UNREADABLE)


def _state(replicas: int, spec: Object, status: Object) -> State:
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("Stalled") == "True":
        return "stalled"
    ready = conditions.get("Ready")
    was_served = any(past["result"] == "Served" for past in (status.get("rollout") or {}).get("history") or ())
    starting = not was_served or (spec.get("scaling") or {}).get("minReplicas") == 0
    if conditions.get("Reconciling") == "True" and (ready != "False" or starting):
        return "progressing"
    if ready != "True":
        return "unready" if ready == "False" else "unknown"
    if replicas == 0:
        return "zero"
    return "limited" if _CAPS.intersection((status.get("scaling") or {}).get("limitedBy") or ()) else "ready"


def _float(text: object) -> float | None:
    """Parse a number that the status contains as text; return None if it is not a number."""
    try:
        return float(str(text))
    except ValueError:
        return None


def totals(rows: Sequence[TableRow], loads: Mapping[Name, CurrentLoad]) -> dict[str, Any]:
    """Return the totals over the rows of these models.

    A sum is None if its value is unknown for all models. `reporting` is the number of models whose request rate is
    known.

    `rate` is the number of requests per second, `errors` the number of failed requests per second. `judged` is the
    number of models with a latency objective and a known p99; `slow` is the number of those that exceed the objective.
    """
    current = [loads.get(row.key, NO_LOAD) for row in rows]
    row_problems = [problems(row, load) for row, load in zip(rows, current, strict=True)]
    states = Counter([row.state for row in rows])
    problem_counts = Counter(itertools.chain.from_iterable(row_problems))
    rates = [load.rate for load in current if load.rate is not None]
    errors = [load.rate * load.errors / 100 for load in current if load.rate is not None and load.errors is not None]
    judged = [row for row, load in zip(rows, current, strict=True) if None not in {load.p99, row.latency_target}]
    costs = [row.cost for row in rows if row.cost is not None]
    rollouts = [
        {"namespace": row.namespace, "name": row.name, **row.rollout} for row in rows if row.rollout is not None
    ]
    return {
        "total": len(rows),
        "counts": {state: states[state] for state in STATES},
        "problems": {problem: problem_counts[problem] for problem in PROBLEMS},
        "troubled": sum(map(bool, row_problems)),
        "rate": rounded(sum(rates)) if rates else None,
        "reporting": len(rates),
        "errors": rounded(sum(errors)) if errors else None,
        "judged": len(judged),
        "gpus": sum(row.gpus for row in rows),
        "cost": sum(costs) if costs else None,
        "currency": next((row.currency for row in rows if row.currency), ""),
        "rollouts": rollouts[:MAX_ROLLOUTS],
        "rolling": len(rollouts),
    }


def rounded(value: float | None) -> float | None:
    """Return the value rounded to the three digits shown, so that smaller changes are not sent to the browser."""
    return None if value is None else float(f"{value:.3g}")
