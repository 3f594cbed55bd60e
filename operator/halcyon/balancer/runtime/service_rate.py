"""How fast servers answer while they have all the work that they can take. Pure: HAProxy's counters in, a rate or "not known" out.

    requests wait at both ends of the time between two looks | what the answers in it tell
    yes                                                      | what the servers can do
    no                                                       | how many came: nothing about the servers

Requests that were answered while others waited are the servers' pace, whatever the model, its batches and its hardware. It is
kept per server, so that it holds when servers come and go, and forgotten `KNOWN_FOR_S` after the last such time: an old pace would
refuse what could be answered now, and a new one is found as soon as requests wait again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.runtime_api import HaproxyStats

WINDOW_S = 3.0
"""Time with waiting requests that a pace is taken from; longer where so few were answered."""
MAX_WINDOW_S = 30.0
MIN_REQUESTS = 20
"""Answers, or so many as `MAX_WINDOW_S` has brought."""
MIN_ANSWERS = 5
"""Fewer than that in `MAX_WINDOW_S` are no rate."""
KNOWN_FOR_S = 10.0


@dataclass(frozen=True)
class ServiceRate:
    """What servers do while requests wait."""

    rate_rps: float
    """Answers a second, of all servers in use together."""
    service_s: float
    """Seconds that one answer takes in a server, its own queue included; mean."""


@dataclass(frozen=True)
class _Stretch:
    """Time between two looks in which requests waited."""

    until: float
    lasted_s: float
    answered: int
    service_ms: int
    servers: int


class ServiceRateMeter:
    """Remembers the looks at one HAProxy that are needed for its pace."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._last: tuple[float, HaproxyStats] | None = None
        self._stretches: deque[_Stretch] = deque()

    def look(self, reading: HaproxyStats, *, servers: int, now: float) -> ServiceRate | None:
        """The pace after this look; None where it is not known.

        Args:
            reading: what HAProxy has now. From another process than before, it only begins.
            servers: those in use now.
            now: seconds of a clock that does not jump.
        """
        last, self._last = self._last, (now, reading)
        if last is not None and last[1].process != reading.process:
            self._stretches.clear()
        elif last is not None:
            self._add(last[1], reading, lasted_s=now - last[0], servers=servers, now=now)
        while self._stretches and now - self._stretches[0].until > MAX_WINDOW_S + KNOWN_FOR_S:
            self._stretches.popleft()
        return self._pace(servers, now)

    def _add(self, before: HaproxyStats, after: HaproxyStats, *, lasted_s: float, servers: int, now: float) -> None:
        answered, service_ms = after.answered - before.answered, after.service_ms - before.service_ms
        # The counters have 32 bits; a difference below zero is one that began anew.
        if before.queued and after.queued and servers and lasted_s > 0 and answered >= 0 and service_ms >= 0:
            self._stretches.append(_Stretch(now, lasted_s, answered, service_ms, servers))

    def _pace(self, servers: int, now: float) -> ServiceRate | None:
        if not self._stretches or now - self._stretches[-1].until > KNOWN_FOR_S:
            return None
        server_s, lasted_s, answered, service_ms = 0.0, 0.0, 0, 0
        for stretch in reversed(self._stretches):
            if lasted_s >= MAX_WINDOW_S or (lasted_s >= WINDOW_S and answered >= MIN_REQUESTS):
                break
            server_s += stretch.lasted_s * stretch.servers
            lasted_s += stretch.lasted_s
            answered += stretch.answered
            service_ms += stretch.service_ms
        enough = answered >= MIN_REQUESTS or (lasted_s >= MAX_WINDOW_S and answered >= MIN_ANSWERS)
        if not enough or not servers:
            return None
        return ServiceRate(answered / server_s * servers, service_ms / answered / 1000)
