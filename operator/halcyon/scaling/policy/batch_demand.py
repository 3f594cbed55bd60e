"""Replicas added for batch inference, in addition to those that the users' requests need. Pure.

The replicas that are added for a BatchInference depend on its fields:

- With neither deadline nor maxReplicas, none are added. The BatchInference uses the capacity that the users' requests
  leave.
- With only maxReplicas, replicas are added if they have work for longer than they take to start, but at most
  maxReplicas.
- With a deadline, as many are added as are needed to meet it, but at most maxReplicas if this is set.
- If the model is at 0 replicas, none are added, unless the BatchInference may wake the model. In that case at least one
  is added.

Replicas for users and added replicas together never exceed the model's maximum. Quotas and budgets apply to their sum.
Several BatchInferences share the capacity evenly. With n of them, the rate that each one needs is therefore multiplied
by n. Times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.policy.decision import UNLIMITED, Decision, counted

MARGIN = 1.1
"""Factor by which the rate needed for a deadline is increased, because users' requests and retried rows use part of the
capacity."""
KEPT_MARGIN = 1.4
"""Factor that replaces `MARGIN` while replicas added for a deadline are running. It is larger, so that a varying rate
does not start and stop replicas repeatedly."""
_MIN_WORK_S = 60.0
"""Minimum time, in seconds, for which a new replica must have work before it is added."""


@immutable(frozen=True, slots=True)
class BatchDemand:
    """Remaining work of one BatchInference that is running and not paused."""

    name: str
    rows_left: float
    deadline: float | None = None
    """Time by which the BatchInference should be complete; None if it has no deadline."""
    max_replicas: int | None = None
    """Maximum number of replicas added for the BatchInference. None means no maximum for a BatchInference with a
    deadline, and no added replicas for one without a deadline."""
    may_wake: bool = False
    """Whether the BatchInference may start the first replica of a model at 0 replicas, and keep it while rows are
    left."""


@immutable(frozen=True, slots=True)
class Supply:
    """Capacity of a model's replicas in rows per second, and the part that the users' requests use."""

    replica_rows_s: float | None
    """Rows per second that one replica processes with full batches; None if unknown."""
    users_rows_s: float
    """Rows per second that arrive in the users' requests."""
    start_s: float
    """Time from adding a replica until it is ready, in seconds."""


@immutable(frozen=True, slots=True)
class Added:
    """Replicas added for batch inference, and the reason."""

    replicas: int
    why: str
    needed: int
    """Number of added replicas that would meet every deadline, before limits are applied."""


def added(batches: Iterable[BatchDemand], supply: Supply, *, users: int, current: int, high: int, now: float) -> Added:
    """Return the replicas to add for batch inference.

    Args:
        batches: all running BatchInferences.
        supply: capacity of the replicas.
        users: number of replicas that the users' requests need.
        current: current number of replicas (spec.replicas).
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
            left_s = batch.deadline - now
            serves_s = left_s - (0.0 if have else supply.start_s)
            if serves_s > 0:
                # BatchInferences share evenly, so the total rate must be the rate of this one times their number.
                rate = len(wakers) * batch.rows_left / left_s
                mean = each * serves_s / left_s  # an added replica processes no rows until it is ready
                adds, keeps = (_extra(rate * factor, spare, mean) for factor in (MARGIN, KEPT_MARGIN))
                reason = f"{_rows(batch)} until the deadline need {plain(rate)} rows/s, and users leave {plain(spare)}"
            else:
                adds, keeps = 0, have
                reason = f"{_rows(batch)} are left, too late for another replica to reach the deadline"
            needed = max(needed, adds)
        elif most is not None:
            worth = batch.rows_left / (each * max(supply.start_s, _MIN_WORK_S))
            adds, keeps = int(worth), math.ceil(2 * worth)
            reason = f"{_rows(batch)} are left, {plain(each)} rows/s for each replica, at most {most} added"
        else:
            continue
        adds, keeps = (min(number, high if most is None else most) for number in (adds, keeps))
        why = f"{batch.name}: {reason}" if adds > up or not why else why
        up, down = max(up, adds), max(down, keeps)
    # Replicas that run already are kept while they would be started again soon.
    count = max(min(max(have, up), max(up, down), high - users), 0)
    return Added(count, why, needed)


def with_batches(decision: Decision, batches: Iterable[BatchDemand], supply: Supply, *, high: int) -> Decision:
    """Return the decision with the replicas for batch inference added to those for the users' requests.

    The decision is unchanged if there is nothing to add, if another controller sets the replicas, or if the users' load
    is unknown.
    """
    if decision.desired is None or decision.unknown or "unknown" in decision.limited_by:
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
    """Return the number of replicas needed for the part of `rate` above `spare`.

    One replica processes `each`. All three are in rows per second.
    """
    return math.ceil(max(rate - spare, 0.0) / each - 1e-9)


def _rows(batch: BatchDemand) -> str:
    return f"{batch.rows_left:,.0f} rows"


def _names(batches: Iterable[BatchDemand]) -> str:
    names = sorted(batch.name for batch in batches)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
