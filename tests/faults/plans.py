"""Plans of faults: which request or event of a workload is disturbed, and how. Pure.

A crash point is named by what is written, not by its number in the run, because concurrent writes change places.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.integration.watch_faults import WatchEvent

T = TypeVar("T")

_POD = re.compile(r"^(pods/.+-(?:a|b|balancer))-[0-9a-z]+-[0-9a-z]{5}")
SITE = "site"
"""Scope of a write in the operator's own namespace; other writes have the scope of the model."""
MODEL = "model"


@dataclass(frozen=True, order=True)
class Point:
    """A mutating request of a workload."""

    scope: str
    method: str
    target: str
    """Plural, name and subresource, such as `deployments/m-a`; the random part of a pod's name is `*`."""
    number: int
    """Number of this request among the same ones of the run, from 1."""

    def __str__(self) -> str:
        """Return the point as one word."""
        return f"{self.scope}:{self.method}:{self.target}:{self.number}"


class Points:
    """The writes of a run, which are turned into points as they come."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, scope: str, method: str, target: str) -> Point:
        """Add a write, and return its point."""
        key = (scope, method, _POD.sub(r"\1-*", target))
        self._counts[key] += 1
        point = Point(*key, self._counts[key])
        self.points.append(point)
        return point


def name_of(event: WatchEvent) -> str:
    """Return the name of an event, such as `services:ADDED:m`; the random part of a pod's name is `*`."""
    target = _POD.sub(r"\1-*", f"{event.resource}/{event.key.name}")
    return f"{event.resource}:{event.type}:{target.partition('/')[2]}"


@dataclass(frozen=True)
class Plan:
    """One disturbed run of a workload."""

    workload: str
    fault: str
    """Name of the fault, such as `crash-before`."""
    place: str
    """Point or event, as text."""

    @property
    def id(self) -> str:
        """Return the name of the plan, by which a run resumes."""
        return f"{self.workload}/{self.fault}/{self.place}"


def crashes(workload: str, points: Iterable[Point]) -> list[Plan]:
    """Return two plans for each point: a crash before and after the API server has processed the request."""
    return [
        Plan(workload, f"crash-{when}", str(point)) for point in sorted(set(points)) for when in ("before", "after")
    ]


def each(workload: str, places: Iterable[object], faults: Iterable[str]) -> list[Plan]:
    """Return a plan for each place, a point or an event, and each fault."""
    return [Plan(workload, fault, str(place)) for place in places for fault in faults]


def in_turn(groups: Sequence[Sequence[T]]) -> list[T]:
    """Return the items of all groups, one of each in turn."""
    longest = max((len(group) for group in groups), default=0)
    return [group[number] for number in range(longest) for group in groups if number < len(group)]


def sliced(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return the items in slices of at most `most`."""
    return [items[start : start + most] for start in range(0, len(items), most)]


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` of the items, evenly spread, with the first and the last."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[0]]
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
