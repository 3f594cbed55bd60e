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
    eligible = [batch for batch in batches if batch.rows_left > 0 and (users > 0 or batch.may_wake)]
    if not eligible:
        return Added(0, "", 0)
    first = [] if users else [_Proposal(1, 1, 1, f"{_names(eligible)} may wake the model")]
    if supply.replica_rows_s is None or supply.replica_rows_s <= 0:
        return Added(min(1, high), first[0].why, 1) if first else Added(0, "", 0)
    share = _Share(
        supply,
        replica_rows_s=supply.replica_rows_s,
        spare_rows_s=max(users * supply.replica_rows_s - supply.users_rows_s, 0.0),
        sharing=len(eligible),
        have=max(current - users, 0),
    )
    proposals = [*first, *filter(None, (_proposal(batch, share, high, now) for batch in eligible))]
    if not proposals:
        return Added(0, "", 0)
    largest = max(proposals, key=lambda proposal: proposal.adds)
    keeps = max(proposal.keeps for proposal in proposals)
    # Replicas that run already are kept while they would be started again soon.
    count = max(min(max(share.have, largest.adds), max(largest.adds, keeps), high - users), 0)
    return Added(count, largest.why, max(proposal.needed for proposal in proposals))


@immutable(frozen=True, slots=True)
class _Share:
    """Capacity that is left for batch inference, which all BatchInferences share evenly."""

    supply: Supply
    replica_rows_s: float
    """Rows per second that one replica processes with full batches."""
    spare_rows_s: float
    """Rows per second that the replicas for users' requests process in addition to these requests."""
    sharing: int
    """Number of BatchInferences that share the capacity."""
    have: int
    """Number of replicas that are added now."""


@immutable(frozen=True, slots=True)
class _Proposal:
    """Replicas that one BatchInference proposes to add."""

    adds: int
    keeps: int
    """Maximum number of added replicas that are kept if they run already."""
    needed: int
    """Number of replicas that would meet its deadline, before limits are applied; 0 if it has none."""
    why: str


def _proposal(batch: BatchDemand, share: _Share, high: int, now: float) -> _Proposal | None:
    """Return the replicas to add for a BatchInference, within its maximum; None if it adds none by its fields."""
    if batch.deadline is not None:
        proposal = _for_deadline(batch, batch.deadline - now, share)
    elif batch.max_replicas is not None:
        proposal = _for_work(batch, batch.max_replicas, share)
    else:
        return None
    most = high if batch.max_replicas is None else batch.max_replicas
    return _Proposal(
        min(proposal.adds, most), min(proposal.keeps, most), proposal.needed, f"{batch.name}: {proposal.why}"
    )


def _for_deadline(batch: BatchDemand, left_s: float, share: _Share) -> _Proposal:
    """Return the replicas that meet a deadline in `left_s` seconds."""
    serves_s = left_s - (0.0 if share.have else share.supply.start_s)
    if serves_s <= 0:
        why = f"{_rows(batch)} are left, too late for another replica to reach the deadline"
        return _Proposal(0, share.have, 0, why)
    # BatchInferences share evenly, so the total rate must be the rate of this one times their number.
    rate = share.sharing * batch.rows_left / left_s
    mean = share.replica_rows_s * serves_s / left_s  # an added replica processes no rows until it is ready
    adds, keeps = (_extra(rate * factor, share.spare_rows_s, mean) for factor in (MARGIN, KEPT_MARGIN))
    why = f"{_rows(batch)} until the deadline need {plain(rate)} rows/s, and users leave {plain(share.spare_rows_s)}"
    return _Proposal(adds, keeps, adds, why)


def _for_work(batch: BatchDemand, most: int, share: _Share) -> _Proposal:
    """Return the replicas that have work for longer than they take to start."""
    worth = batch.rows_left / (share.replica_rows_s * max(share.supply.start_s, _MIN_WORK_S))
    why = f"{_rows(batch)} are left, {plain(share.replica_rows_s)} rows/s for each replica, at most {most} added"
    return _Proposal(int(worth), math.ceil(2 * worth), 0, why)


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
