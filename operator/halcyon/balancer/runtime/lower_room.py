"""Room for batch inference: the number of rows in progress at servers below which a balancer sends its requests. Pure.

The room of a pod is the number of rows that the pod can compute in addition to users' requests. It is zero while users'
requests wait in any balancer.

In each batch, places are reserved for the rows that users send during one batch, and the rest is free. Users' requests
never wait for room, but their rows count as rows at servers, so each of these requests reduces the room that is left.
`lower.lua` compares the rows at servers with the room.

Batch inference is called the lower class in the plan. If it is `Gentle`, a pod gets only so few rows in addition to
those of users that users' batches take longer by about the share `GENTLE`. One limit applies to the rows of batch
inference, another to all rows. Because of the second, no batch inference is sent while a burst of users' requests fills
the batches.

If there is only one pod and the class is gentle, its rows are sent just before the pod begins a batch. Most users' rows
of that batch are then known, so the batch is filled up to a certain number of rows (`NextBatch`).

Each balancer counts only its own requests, so the room is divided among the balancers. One part is for users' rows and
is divided in proportion to the rates of users' requests. The rest is divided in proportion to the requests of batch
inference. Executions of a second or longer outlast the exchange of loads, so the requests in progress are used instead.
"""

# a pod                             | rows up to which batch inference is sent to it
# computes single requests          | those that it computes at once: one in each instance
# the same, in less than `GAP_S`    | and as many more as it computes during a round trip to the pod
# computes batches                  | a full batch, and most of what the users leave free in the next one
# computes batches, gentle class    | most of a full batch, users' rows included, and few rows of the class
# the same, a single pod            | two full batches; the time at which rows are sent limits them
# users wait in any balancer        | none

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.model import (
    BATCH_US,
    LOWER_ROWS,
    LOWER_VARIABLES,
    NEXT_LESS,
    NEXT_ROWS,
    ROOM,
    ROW_US,
    USER_ROWS,
)
from halcyon.balancer.runtime import shares
from halcyon.balancer.runtime.overload_limits import batch_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.runtime.class_load import ClassLoad
    from halcyon.balancer.runtime.overload_limits import BatchTime, PodStatistics
    from halcyon.balancer.runtime.shares import BalancerLoad

GAP_S: Final = 0.02
"""Minimum execution time, in seconds, at which the round trip between balancer and pod is negligible."""
LONG_S: Final = 1.0
"""Minimum execution time, in seconds, at which the balancers exchange their loads more often than executions end."""
RATE_OVER_S: Final = 0.5
"""Time over which the rate of users' requests is averaged, in seconds."""
GENTLE: Final = 0.1
"""Maximum share by which users' batches may take longer because of batch inference that is `Gentle`."""
_UNSEEN: Final = 0.5
"""Share of the rows in execution of other balancers' users for which capacity is kept free. It applies if the model
computes no batches."""
_IDLE_ROWS: Final = 0.01
"""Number of users' rows per execution below which users count as idle. While users are idle, `Gentle` has no effect."""
_GENTLE_FULL: Final = 0.9
"""Share of a full batch. Rows of a gentle class are sent to a pod only while it has fewer rows than this, including
users' rows. More rows would take up space in batches that users need during a burst."""
_GENTLE_INSIDE: Final = 1.4
"""Maximum ratio of the rows of a gentle class in a pod to the rows by which a batch may grow. It is above 1 because a
row that arrives during an execution waits for the next one, so a batch contains only some of the rows in the pod."""
_GENTLE_LEFT: Final = 0.6
"""Maximum share of the rows that users leave free in a full batch, for all rows of a gentle class in a pod."""
AHEAD_S: Final = 0.003
"""Time before the expected end of a batch at which rows are sent for the next one, in seconds. It covers the network
latency to the pod and the polling interval of `lower.lua`."""
TIMED_S: Final = 0.05
"""Minimum time of a batch with one row, in seconds, at which rows are sent just before a batch begins. In shorter
batches, `AHEAD_S` is a large part of the batch, so too many users' rows would still be unknown."""
_RARE: Final = 2.33
"""Number of standard deviations above the mean for which places in the next batch are kept free, so that users of other
balancers find a place in 99 % of the batches."""
_MIN_SHARE, _MAX_SHARE = 0.4, 1.0
"""Minimum and maximum share of the free rows in the next batch that batch inference may take. The minimum applies if
the time of a batch is proportional to its rows, because smaller batches then cost little. The maximum applies if the
time is constant."""
MAX_ROWS: Final = 9999
"""Limit on the rows of batch inference that is so high that it has no effect."""
_WRAP = 2**32
_MAX_RPS = 1e6
"""Rate of users' requests, per second, that no balancer reaches. A higher rate means that the counter was reset."""


@dataclass(frozen=True)
class Room:
    """Limits on the rows in pods below which batch inference is sent."""

    rows: float
    """Limit on all rows, including those of users."""
    lower_rows: float = math.inf
    """Limit on the rows of batch inference."""


@dataclass(frozen=True)
class PodWork:
    """Number of rows that one pod computes at once, and the time of such an execution."""

    at_once: float
    """Number of rows that the pod computes at the same time."""
    batches: bool
    """Whether the pod computes rows together in batches, so that a larger batch takes less time per row."""
    time: BatchTime | None
    """Time of a batch on one model instance; None if unknown."""

    def users_rows(self, rows_s: float) -> float:
        """Return the number of rows that users send to the pod during an execution. `rows_s` is the rate per second."""
        return self.at_once / 2 if self.time is None else min(rows_s * self.time.largest_s, self.at_once)

    def gentle_room(self, users_rows: float) -> Room | None:
        """Return the room in the pod for a gentle class, or None if it has the same room as any other class.

        The result is also None if there are no users' requests, or if the model computes no batches. `users_rows` is
        the number of rows that users send during an execution.
        """
        time = self.time
        if time is None or time.largest_s <= 0 or not self.batches or users_rows < _IDLE_ROWS:
            return None
        instances = self.at_once / max(time.rows, 1)
        rate = users_rows / instances / time.largest_s
        own_s = _users_batch_s(time, rate)
        added = GENTLE * own_s / time.row_s if time.row_s > 0 else time.rows
        left = max(self.at_once - users_rows, 0.0)
        return Room(_GENTLE_FULL * self.at_once, min(instances * _GENTLE_INSIDE * added, _GENTLE_LEFT * left))

    def room(self, users_rows: float) -> float:
        """Return the number of rows in the pod below which batch inference is sent.

        `users_rows` is the number of rows that users send during an execution.
        """
        if self.time is None or self.time.largest_s <= 0:
            return self.at_once
        ahead = self.at_once * max(GAP_S / self.time.largest_s, 0.0) if self.time.largest_s < GAP_S else 0.0
        if not self.batches:
            return self.at_once + min(ahead, self.at_once)
        fixed = self.time.fixed_s / self.time.largest_s
        share = _MIN_SHARE + (_MAX_SHARE - _MIN_SHARE) * fixed
        left = max(self.at_once - users_rows, 0.0)
        return self.at_once + min(max(share * left, ahead), self.at_once)


@dataclass(frozen=True)
class NextBatch:
    """Rows of a gentle class that one balancer sends to the model's only pod just before the next batch begins."""

    fixed_s: float
    row_s: float
    rows: float
    """Number of rows to send if no user of this balancer has sent a row for the next batch yet."""
    less: float
    """Number by which each row that this balancer's users have sent for the next batch reduces `rows`."""

    def due_s(self, executing: int) -> float:
        """Return how many seconds after the start of a batch rows are sent for the next one.

        `executing` is the number of rows of this balancer in the current batch.
        """
        return self.fixed_s + self.row_s * max(executing, 1) - AHEAD_S

    def values(self, user_rows: float) -> dict[str, int]:
        """Return the values of the HAProxy variables. `user_rows` is the mean number of rows in a user's request."""
        batch_us, row_us = max(round(1e6 * (self.fixed_s - AHEAD_S)), 1), round(1e6 * self.row_s)
        rows, less = round(100 * self.rows), round(100 * self.less * user_rows)
        return {BATCH_US: batch_us, ROW_US: row_us, NEXT_ROWS: rows, NEXT_LESS: less}


def next_batch(
    work: PodWork, pods: int, users_rows_s: float, *, part: float, unseen: float, balancers: int
) -> NextBatch | None:
    """Return the rows of a gentle class that this balancer sends just before each batch; None if it sends none.

    The result is None if users are idle, if the model has several pods or instances, or if its batches are short.
    Otherwise each batch is filled up to the number of rows at which it takes longer by the share `GENTLE` than a batch
    with users' rows only.

    Args:
        work: parallelism and execution time of the pod.
        pods: number of pods.
        users_rows_s: rows per second that the users of all balancers send.
        part: this balancer's share of the batch inference.
        unseen: share of the users' rows that other balancers send. This balancer knows only their mean number.
        balancers: number of balancers.
    """
    time = work.time
    if pods != 1 or time is None or not work.batches or work.at_once > time.rows:
        return None
    batch_s = _users_batch_s(time, users_rows_s)
    users = users_rows_s * batch_s
    if time.row_s <= 0 or time.fixed_s + time.row_s < TIMED_S or users < _IDLE_ROWS:
        return None
    # The more balancers add rows, the less each of them knows, and the more the sum varies.
    added = GENTLE * batch_s / time.row_s * min(2 / balancers, 1.0)
    # Rows above a full batch would take the places of users, so a burst at other balancers must fit, too.
    level = min(users + added, time.rows - _RARE * math.sqrt(unseen * users))
    return NextBatch(time.fixed_s, time.row_s, max(part * (level - unseen * users), 0.0), part)


def _users_batch_s(time: BatchTime, rows_s: float) -> float:
    """Return the mean time of a batch with users' rows only on one instance, in seconds. `rows_s` is their rate."""
    # A batch has the rows that arrived during the one before, so its time t is fixed + row x rate x t.
    return max(time.fixed_s / max(1 - rows_s * time.row_s, 0.01), time.fixed_s + time.row_s)


def fleet_room(work: PodWork, pods: int, users_rows_s: float, *, gentle: bool, balancers: int = 1) -> Room:
    """Return the room for batch inference in all pods together.

    Args:
        work: parallelism and execution time of one pod.
        pods: number of pods.
        users_rows_s: rows per second that the users of all balancers send.
        gentle: whether the plan's class is `Gentle`.
        balancers: number of balancers, each of which counts only the requests of its own users.
    """
    if not pods:
        return Room(0.0)
    users = work.users_rows(users_rows_s / pods)
    if gentle and (gentle_room := work.gentle_room(users)) is not None:
        return Room(pods * gentle_room.rows, pods * gentle_room.lower_rows)
    # Only one pod begins a batch now. The others have received half of the rows that their users send during one.
    room = pods * work.room(users) + (pods - 1) * users / 2
    unseen = 0.0 if work.batches or work.time is None else _UNSEEN * users * (1 - 1 / balancers)
    return Room(room - unseen)


def own_room(
    fleet: Room,
    own: BalancerLoad,
    others: Iterable[BalancerLoad],
    *,
    users_rows: float,
    turn: int,
    is_long: bool,
    counts_others: bool = False,
) -> tuple[int, int]:
    """Return the limits on the rows in pods below which this balancer sends batch inference.

    They are this balancer's parts of `fleet.rows` and `fleet.lower_rows`.

    Args:
        fleet: room in all pods (`fleet_room`), which is the sum of all balancers' parts.
        own: load of this balancer.
        others: newest loads of the other balancers.
        users_rows: mean number of the users' rows in all pods.
        turn: number that changes with time and is the same in all balancers. It determines which balancer gets the
            larger part.
        is_long: whether executions are so long that the loads have hardly changed since they were last exchanged.
        counts_others: whether requests of other balancers' users in pods reduce the part. For single requests, `fleet`
            already excludes them.
    """
    loads = sorted([own, *others], key=lambda load: load.agent)
    if any(sum(load.waiting.values()) + load.late for load in loads):
        return 0, 0
    mine, room = loads.index(own), fleet.rows
    lower = [float(load.lower) for load in loads]
    if not any(lower):
        lower = [1.0] * len(loads)
    # A fraction of a row is one row for that fraction of the time.
    phase = turn * shares.GOLDEN % 1
    most = MAX_ROWS
    if math.isfinite(fleet.lower_rows):
        most = _parts(math.floor(fleet.lower_rows + phase), lower, turn)[mine]
    if is_long:
        inside = [load.inflight for load in loads]
        left = round(room) - sum(inside)
        # Requests in pods stay where they are. Only the rows that all of them leave free are divided.
        return max(inside[mine] + (_parts(left, lower, turn)[mine] if left > 0 else left), 0), most
    users = [load.users_rps for load in loads]
    part = min(users_rows / room, 0.5) if room > 0 and any(users) else 0.0
    weights = [
        part * rate / (sum(users) or 1.0) + (1 - part) * count / sum(lower)
        for rate, count in zip(users, lower, strict=True)
    ]
    # Users of other balancers that fill the pods leave nothing, whatever the parts are.
    elsewhere = _users_inside(loads, mine) if counts_others else 0
    part_rows = _parts(math.floor(room + phase), weights, turn)[mine]
    return max(min(part_rows, math.floor(room + phase) - elsewhere), 0), most


def _users_inside(loads: list[BalancerLoad], mine: int) -> int:
    """Return the number of users' requests in pods that the other balancers sent."""
    others = (load for number, load in enumerate(loads) if number != mine)
    return sum(max(load.inflight - load.lower_sent, 0) for load in others)


def _parts(count: int, weights: list[float], turn: int) -> list[int]:
    weight_sum = sum(weights)
    # `integer_parts` takes a demand below a minimum as 0, so scale the weights up.
    return shares.integer_parts(count, [weight / weight_sum * 1e6 for weight in weights], turn)


class LowerRoom:
    """Limit on the rows at servers below which one balancer sends batch inference, with the measurements for it."""

    def __init__(self) -> None:
        """Create an instance without measurements."""
        self.users_rps = 0.0
        """Rate of users' requests at this balancer, per second."""
        self.user_rows = 1.0
        """Mean number of rows in a user's request. It is measured while there is no batch inference."""
        self._time: BatchTime | None = None
        self._counted: tuple[float, int] | None = None
        self._pods: dict[str, tuple[int, int]] = {}

    def count(self, load: ClassLoad, now: float) -> None:
        """Add a sample of the counter of users' requests. `now` is the monotonic time, in seconds."""
        before, self._counted = self._counted, (now, load.users)
        if before is not None and now > before[0]:
            # The counter of a new process starts at 0, so the difference modulo 2^32 is too large for any rate.
            rate = (load.users - before[1]) % _WRAP / (now - before[0])
            if rate < _MAX_RPS:
                self.users_rps += (rate - self.users_rps) * (1 - math.exp((before[0] - now) / RATE_OVER_S))

    def sample(self, plan: BalancerPlan, pods: Mapping[str, PodStatistics], *, idle: bool) -> None:
        """Add the statistics of the pods, by pod name. `idle` is true if no balancer has batch inference requests."""
        self._time = batch_time(pods.values(), plan.max_batch) or self._time
        before, self._pods = self._pods, {}
        requests = rows = 0
        for name, pod in pods.items():
            if pod.succeeded is not None and pod.rows is not None:
                self._pods[name] = (pod.succeeded, pod.rows)
                if idle and name in before and pod.succeeded > before[name][0]:
                    requests += pod.succeeded - before[name][0]
                    rows += max(pod.rows - before[name][1], 0)
        if requests >= 5 and rows:
            self.user_rows += (max(rows / requests, 1.0) - self.user_rows) * 0.3
        if not idle:
            self._pods = {}

    def values(
        self,
        plan: BalancerPlan,
        own: BalancerLoad,
        others: tuple[BalancerLoad, ...],
        *,
        at_once: int,
        batches: bool,
        pods: int,
        turn: int,
    ) -> dict[str, int]:
        """Return the values of the HAProxy variables for batch inference (`LOWER_VARIABLES`).

        Args:
            plan: the plan that HAProxy runs.
            own: load of this balancer.
            others: newest loads of the other balancers.
            at_once: number of requests that a pod computes at once or, if the model is batched, number of its instances
                in a pod.
            batches: whether the model is batched.
            pods: number of pods that take requests.
            turn: number that changes with time and is the same in all balancers (`own_room`).
        """
        time = self._time
        rows = max(plan.max_batch, time.rows if time is not None else 1, 1) if batches else 1
        work = PodWork(at_once * rows, batches and rows > 1, time)
        # A balancer whose load is unknown is assumed to have the users' rate of this one.
        unknown = max(plan.balancers - 1 - len(others), 0)
        rate = own.users_rps * (1 + unknown) + sum(load.users_rps for load in others)
        fleet = fleet_room(
            work, pods, rate * self.user_rows, gentle=plan.lower_class == "Gentle", balancers=plan.balancers
        )
        values = dict.fromkeys(LOWER_VARIABLES, 0)
        if not fleet.rows:
            return values | {USER_ROWS: 1}
        values[USER_ROWS] = max(round(self.user_rows), 1)
        users = pods * work.users_rows(rate * self.user_rows / pods)
        is_long = time is not None and time.largest_s >= LONG_S
        mine, most = own_room(
            Room(fleet.rows / (1 + unknown), fleet.lower_rows / (1 + unknown)),
            own,
            others,
            users_rows=1.5 * users,
            turn=turn,
            is_long=is_long,
            counts_others=work.batches,
        )
        values |= {ROOM: mine, LOWER_ROWS: most}
        if plan.lower_class == "Gentle":
            lower = own.lower * (1 + unknown) + sum(load.lower for load in others)
            part = own.lower / lower if lower else 1 / plan.balancers
            unseen = 1 - own.users_rps / rate if rate > 0 else 0.0
            timed = next_batch(work, pods, rate * self.user_rows, part=part, unseen=unseen, balancers=plan.balancers)
            if timed is not None:
                values |= timed.values(self.user_rows) | {LOWER_ROWS: MAX_ROWS}
                values[ROOM] = round(2 * work.at_once) if mine else 0
        return values
