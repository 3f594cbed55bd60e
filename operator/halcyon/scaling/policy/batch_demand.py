"""Second demand on a model's replicas: batch inference, after the users. Pure.

    the BatchInference has         | replicas that are added for it
    neither of the two             | none: it gets what the users' replicas have left
    maxReplicas                    | as many as have work for longer than they take to start, at most this number
    a deadline                     | as many as reach it, at most maxReplicas if that is set
    either, and the model is at 0  | none, unless it may wake the model; then at least one

They are never more than the model's own maximum leaves, and the limits of quotas and budgets apply to the sum. Several jobs share
evenly, so each needs as many times its own rate as there are jobs. Times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.policy.decision import UNLIMITED, Decision, counted

MARGIN = 1.1
"""Factor on the rate that a deadline needs, because users and repeated rows take a part of it."""
KEPT_MARGIN = 1.4
"""The same factor for replicas that run already, so that a changing rate does not start and stop them."""
_MIN_WORK_S = 60.0
"""Minimum time for which an added replica must have work, in seconds."""


@immutable(frozen=True, slots=True)
class BatchDemand:
    """Work of one BatchInference that runs and is not paused."""

    name: str
    rows_left: float
    deadline: float | None = None
    """Time by which it should be done; None if it has none."""
    max_replicas: int | None = None
    """Maximum number of replicas that are added for it; None: no limit of its own with a deadline, none without."""
    may_wake: bool = False
    """Whether it may start the first replica of a model that is at 0, and keep one while it has rows left."""


@immutable(frozen=True, slots=True)
class Supply:
    """What a model's replicas can compute."""

    replica_rows_s: float | None
    """Rows per second of one replica with full batches; None if unknown."""
    users_rows_s: float
    """Rows per second that the users ask for."""
    start_s: float
    """Time until an added replica computes, in seconds."""


@immutable(frozen=True, slots=True)
class Added:
    """Replicas that batch inference adds."""

    replicas: int
    why: str
    needed: int
    """Replicas that would have to be added to reach every deadline, without any limit."""


def added(batches: Iterable[BatchDemand], supply: Supply, *, users: int, current: int, high: int, now: float) -> Added:
    """Return the replicas to add to those of the users.

    Args:
        batches: all jobs that run.
        supply: what the replicas can compute.
        users: replicas that the users need.
        current: replicas in force.
        high: maximum replicas of the model.
        now: current time.
    """
    wakers = [batch for batch in batches if batch.rows_left > 0 and (users > 0 or batch.may_wake)]
    if not wakers:
        return Added(0, "", 0)
    first = 1 - min(users, 1)
    have = max(current - users, 0)
    up, down, needed, why = first, first, first, f"{_names(wakers)} may wake the model" if first else ""
    each = supply.replica_rows_s
    if each is None or each <= 0:
        return Added(min(first, high), why, needed)
    spare = max(users * each - supply.users_rows_s, 0.0)
    for batch in wakers:
        most = batch.max_replicas
        if batch.deadline is not None:
            left_s = batch.deadline - now - (0.0 if have else supply.start_s)
            if left_s > 0:
                # Jobs share evenly, so all of them together have to be as fast as this one times their number.
                rate = len(wakers) * batch.rows_left / left_s
                asks, keeps = (_extra(rate * factor, spare, each) for factor in (MARGIN, KEPT_MARGIN))
                reason = f"{_rows(batch)} until the deadline need {rate:.4g} rows/s, and users leave {spare:.4g}"
            else:
                asks, keeps = 0, have
                reason = f"{_rows(batch)} are left, too late for another replica to reach the deadline"
            needed = max(needed, asks)
        elif most is not None:
            worth = batch.rows_left / (each * max(supply.start_s, _MIN_WORK_S))
            asks, keeps = int(worth), math.ceil(2 * worth)
            reason = f"{_rows(batch)} are left, {each:.4g} rows/s for each replica, at most {most} added"
        else:
            continue
        asks, keeps = (min(number, high if most is None else most) for number in (asks, keeps))
        why = f"{batch.name}: {reason}" if asks > up or not why else why
        up, down = max(up, asks), max(down, keeps)
    # What runs already stays as long as it would be started again soon.
    count = max(min(max(have, up), max(up, down), high - users), 0)
    return Added(count, why, needed)


def with_batches(decision: Decision, batches: Iterable[BatchDemand], supply: Supply, *, high: int) -> Decision:
    """Return the decision with the replicas that batch inference adds after the users' own.

    It is unchanged without them, if another controller sets the replicas, or while the users' load is unknown.
    """
    if decision.desired is None or decision.unknown:
        return decision
    users = decision.desired
    more = added(batches, supply, users=users, current=decision.current, high=high, now=decision.at)
    if not more.replicas:
        return decision
    count = users + more.replicas
    text = f"{counted(count)}: {users} for users and {more.replicas} for batch inference ({more.why}). For users: "
    return replace(
        decision,
        desired=count,
        text=text + decision.why.removesuffix(UNLIMITED),
        parts=(*decision.parts, PlanPart("batch", count, more.why)),
    )


def _extra(rate: float, spare: float, each: float) -> int:
    """Return the replicas for what the users' replicas have no room for."""
    return math.ceil(max(rate - spare, 0.0) / each - 1e-9)


def _rows(batch: BatchDemand) -> str:
    return f"{batch.rows_left:,.0f} rows"


def _names(batches: Iterable[BatchDemand]) -> str:
    names = sorted(batch.name for batch in batches)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
