"""The site's GPU budget: how GPUs are divided among models if the budget can't satisfy all demands.

Replicas are granted one at a time, until the next one does not fit. The order does not depend on the budget:

1. Replicas within a model's floor that already run: by priority and, within a priority, level by level.
2. The other replicas within the floors: by priority and, within a priority, level by level.
3. Desired replicas that already run. This step is only for budgets without `preempt`, where no model is shrunk for
   another.
4. The other desired replicas: by priority and, within a priority, by need.

A floor is the number of replicas that a model keeps even if it is preempted. "Level by level" means that the next
replica goes to the model that would then have the fewest GPUs relative to its need. Ties are broken by key. The result
is max-min fairness in whole replicas. The code computes the level directly and then grants the remaining GPUs one
replica at a time.

Invariants: the grants never exceed the budget or the quota of a namespace. If all floors fit, a bigger site budget
never gives a model less. Drawback: if the next replica in the order needs more GPUs than are left, these GPUs stay
unused.

With `fill`, such GPUs go to other models whose replicas are small enough, in the same order. If the budget changes, a
model is then guaranteed only the replicas that it gets without `fill`. Floors that do not all fit are always granted
with `fill`: GPUs must not stay idle while a model has no replica. A bigger quota of one namespace may take GPUs from
another namespace. Out of scope: how many replicas a model needs, and the placement on nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Literal, NamedTuple

Cause = Literal["none", "site", "quota"]


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one model for replicas that need GPUs."""

    key: str
    """Key of the model, NAMESPACE/NAME."""
    desired: int
    """Desired replicas of the model, before the GPU budget is applied."""
    gpus_per_replica: int = 1
    """GPUs of one replica. If it is 0, the model is granted all its desired replicas."""
    current: int = 0
    floor: int = 0
    """Number of replicas that the model keeps even if a model with higher priority needs GPUs. It has no effect above
    `desired`."""
    priority: int = 0
    """Priority of the model; models with a higher value are served first."""
    need: float = 1.0
    """Weight of the model among models of the same priority, for example its backlog in seconds. Models with need 0 are
    served last."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the model, which is the part of the key before the slash."""
        return self.key.partition("/")[0]


@dataclass(frozen=True)
class Budget:
    """Maximum number of GPUs that models may use, in total and per namespace."""

    gpus: int
    """Maximum number of GPUs that all models may use in total."""
    namespaces: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of GPUs that each namespace may use (its quota), by name. Namespaces without an entry have no
    quota."""
    preempt: bool = True
    """Whether a model may be scaled down to its floor in favour of a model with higher priority or greater need."""
    fill: bool = False
    """Whether GPUs that are too few for the next replica in the order may go to a model with smaller replicas."""


class Grant(NamedTuple):
    """Replicas granted to one model.

    The class is a named tuple because 10,000 are created at once, and a frozen dataclass takes three times as long to
    create.
    """

    key: str
    replicas: int
    desired: int
    gpus_per_replica: int
    cause: Cause
    """Limit that reduced the replicas of the model below the desired number; "none" if it got all of them."""
    limit: int = 0
    """Size in GPUs of the budget or quota that reduced the replicas; 0 if the model got all desired replicas."""

    def describe(self) -> str:
        """Describe the grant as a phrase.

        For example `desires 8 (16 GPUs), granted 5: the site's budget of 40 GPUs is shared by priority and need`.
        """
        head = f"desires {self.desired} ({_gpus(self.desired * self.gpus_per_replica)}), granted {self.replicas}"
        if self.cause == "none":
            return head
        if self.cause == "quota":
            namespace = self.key.partition("/")[0]
            return f"{head}: the quota of {_gpus(self.limit)} of namespace {namespace} is shared by priority and need"
        return f"{head}: the site's budget of {_gpus(self.limit)} is shared by priority and need"


class _Shares:
    """State of one allocation: the replicas granted so far, and the GPUs that are left."""

    __slots__ = ("demands", "granted", "left", "namespaces", "quotas", "stopped")

    def __init__(self, demands: Sequence[Demand], budget: Budget) -> None:
        self.demands = demands
        self.granted = [0] * len(demands)
        self.left = max(budget.gpus, 0)
        self.namespaces = [demand.namespace for demand in demands] if budget.namespaces else []
        self.quotas = {name: max(gpus, 0) for name, gpus in budget.namespaces.items()}
        self.stopped = False

    def fits(self, targets: Sequence[int]) -> bool:
        """Return whether the budget and all quotas allow `targets`, the number of replicas of each model."""
        gpus = [count * demand.gpus_per_replica for count, demand in zip(targets, self.demands, strict=True)]
        by_namespace = dict.fromkeys(self.quotas, 0)
        for namespace, held in zip(self.namespaces, gpus, strict=False):
            if namespace in by_namespace:
                by_namespace[namespace] += held
        return sum(gpus) <= self.left and all(held <= self.quotas[name] for name, held in by_namespace.items())

    def grow(self, classes: Sequence[Sequence[int]], targets: Sequence[int], *, fill: bool, by_need: bool) -> None:
        """Grant replicas up to the targets, in order of priority.

        If `fill` is false, granting stops at the first replica that doesn't fit. If it is true, granting stops when no
        replica fits.
        """
        for members in classes:
            if self.stopped:
                return
            caps = self._within_quotas(members, targets, by_need=by_need)
            growing = [i for i in members if caps[i] > self.granted[i]]
            requested = sum([(caps[i] - self.granted[i]) * self.demands[i].gpus_per_replica for i in growing])
            if requested <= self.left:
                ends = {i: caps[i] for i in growing}
            else:
                ends = _levelled(self.demands, growing, self.granted, caps, left=self.left, fill=fill, by_need=by_need)
                self.stopped = not fill
            for i, end in ends.items():
                gpus = (end - self.granted[i]) * self.demands[i].gpus_per_replica
                self.granted[i] = end
                self.left -= gpus
                if self.quotas and (namespace := self.namespaces[i]) in self.quotas:
                    self.quotas[namespace] -= gpus

    def _within_quotas(self, members: Sequence[int], targets: Sequence[int], *, by_need: bool) -> Sequence[int]:
        """Return the target replicas, reduced so that no namespace exceeds its quota.

        Only the targets of `members` are reduced.
        """
        if not self.quotas:
            return targets
        by_namespace: dict[str, list[int]] = {}
        for i in members:
            if targets[i] > self.granted[i] and (namespace := self.namespaces[i]) in self.quotas:
                by_namespace.setdefault(namespace, []).append(i)
        caps = list(targets)
        for namespace, indexes in by_namespace.items():
            left = self.quotas[namespace]
            if sum([(targets[i] - self.granted[i]) * self.demands[i].gpus_per_replica for i in indexes]) > left:
                for i in indexes:
                    caps[i] = self.granted[i]
                ends = _levelled(self.demands, indexes, self.granted, targets, left=left, fill=True, by_need=by_need)
                for i, cap in ends.items():
                    caps[i] = cap
        return caps


def allocate(demands: Iterable[Demand], budget: Budget) -> dict[str, Grant]:
    """Share the budget among the models and return their grants by key, in the order of the demands.

    Raises:
        ValueError: a key occurs twice, or a number is negative.
    """
    models = list(demands)
    _check(models)
    order = sorted(range(len(models)), key=lambda i: -models[i].priority)
    counted = [i for i in order if models[i].gpus_per_replica]
    classes = [list(members) for _, members in groupby(counted, key=lambda i: models[i].priority)]
    by_need = [part for members in classes for part in _needy_first(models, members) if part]
    desired = [demand.desired for demand in models]
    floors = [min(demand.floor, demand.desired) for demand in models]
    shares = _Shares(models, budget)
    if not shares.fits(floors):
        held_floors = [min(f, d.current) for f, d in zip(floors, models, strict=True)]
        shares.grow(classes, held_floors, fill=True, by_need=False)
    shares.grow(classes, floors, fill=True, by_need=False)
    if not budget.preempt:
        held = [max(min(d.current, d.desired), f) for f, d in zip(floors, models, strict=True)]
        shares.grow(by_need, held, fill=budget.fill, by_need=True)
    shares.grow(by_need, desired, fill=budget.fill, by_need=True)
    return {demand.key: _grant(demand, shares.granted[i], shares, budget) for i, demand in enumerate(models)}


def _needy_first(demands: Sequence[Demand], members: Sequence[int]) -> tuple[list[int], list[int]]:
    return [i for i in members if demands[i].need > 0], [i for i in members if demands[i].need <= 0]


def _grant(demand: Demand, granted: int, shares: _Shares, budget: Budget) -> Grant:
    gpus = demand.gpus_per_replica
    if granted == demand.desired or not gpus:
        return Grant(demand.key, demand.desired, demand.desired, gpus, "none")
    if budget.namespaces and shares.quotas.get(demand.namespace, gpus) < gpus:
        return Grant(demand.key, granted, demand.desired, gpus, "quota", budget.namespaces[demand.namespace])
    return Grant(demand.key, granted, demand.desired, gpus, "site", budget.gpus)


def _levelled(
    demands: Sequence[Demand],
    members: Sequence[int],
    granted: Sequence[int],
    caps: Sequence[int],
    *,
    left: int,
    fill: bool,
    by_need: bool,
) -> dict[int, int]:
    """Return the replicas of each model in `members` after granting `left` GPUs.

    Each GPU goes to the model with the fewest GPUs relative to its need. No model gets more replicas than `caps`
    allows.
    """
    ends: dict[int, int] = {}
    sizes = [demands[i].gpus_per_replica for i in members]
    weights = [(demands[i].need or 1.0) if by_need else 1.0 for i in members]
    lows = [granted[i] * size for i, size in zip(members, sizes, strict=True)]
    highs = [caps[i] * size for i, size in zip(members, sizes, strict=True)]
    level = _level(lows, highs, weights, sum(lows) + left)
    claims: list[tuple[float, str, int, int, float]] = []
    for i, size, weight, low, high in zip(members, sizes, weights, lows, highs, strict=True):
        gpus = int(level * weight / size) * size
        gpus = low if gpus < low else min(gpus, high)
        ends[i] = gpus // size
        left -= gpus - low
        if gpus < high:
            claims.append(((gpus + size) / weight, demands[i].key, i, size, weight))
    heapify(claims)
    while left > 0 and claims:
        _, key, i, size, weight = heappop(claims)
        if size <= left:
            ends[i] += 1
            left -= size
            if ends[i] < caps[i]:
                heappush(claims, ((ends[i] + 1) * size / weight, key, i, size, weight))
        elif not fill:
            break
    return ends


def _level(lows: Sequence[int], highs: Sequence[int], weights: Sequence[float], total: int) -> float:
    """Return the level (GPUs per unit of need) at which all models together have `total` GPUs, minus a tiny margin.

    At a given level, each model has weight x level GPUs, but at least its number in `lows` and at most that in `highs`.
    Replicas are treated as divisible.

    The sum is piecewise linear in the level. The level is found by bisection over the breakpoints of this function.
    Models without a breakpoint in the remaining interval are added up once, so each step checks fewer models.
    """
    open_ = [
        (low / weight, high / weight, weight)
        for low, high, weight in zip(lows, highs, weights, strict=True)
        if high > low
    ]
    flat = float(sum(lows) - sum([first * weight for first, _, weight in open_]))
    slope = 0.0
    begin, end = 0.0, max([last for _, last, _ in open_], default=0.0)
    for _ in range(200):
        if not open_:
            break
        corners = [corner for item in open_[:: len(open_) // 16 + 1] for corner in item[:2] if begin < corner < end]
        middle = sorted(corners)[len(corners) // 2] if corners else (begin + end) / 2
        filled = flat + slope * middle
        filled += sum(
            [(middle if first < middle < last else first if middle <= first else last) * w for first, last, w in open_]
        )
        if filled <= total:
            begin = middle
        else:
            end = middle
        remaining: list[tuple[float, float, float]] = []
        for item in open_:
            first, last, weight = item
            if last <= begin:
                flat += last * weight
            elif first >= end:
                flat += first * weight
            elif first <= begin and last >= end:
                slope += weight
            else:
                remaining.append(item)
        open_ = remaining
    level = begin if open_ or slope <= 0 else min(max((total - flat) / slope, begin), end)
    return level * (1 - 1e-9)


def _check(demands: Sequence[Demand]) -> None:
    seen: set[str] = set()
    for demand in demands:
        if demand.key in seen:
            raise ValueError(f"{demand.key} occurs twice; a model has one demand")
        seen.add(demand.key)
        least = min(demand.desired, demand.gpus_per_replica, demand.current, demand.floor)
        if least < 0 or not 0 <= demand.need < math.inf:
            raise ValueError(f"{demand.key}: {demand} has a negative number, or a need that is not finite")


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
