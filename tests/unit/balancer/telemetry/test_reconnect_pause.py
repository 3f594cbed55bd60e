"""Pauses between attempts to connect to an operator replica, alone and with the limits of the replica's port."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import pytest

from halcyon.balancer.telemetry.reconnect_pause import CONNECT_TIMEOUT_S, Failure, PauseLimits, ReconnectPause
from halcyon.metricsapi.client_connection import REQUEST_TIMEOUT_S
from halcyon.metricsapi.connections import DEFAULT_LIMITS, Connection, Connections
from halcyon.metricsapi.listener import WAITING_INTERVAL_S
from halcyon.metricsapi.waiting_connections import MAX_WAIT_S, WaitingConnections

if TYPE_CHECKING:
    from collections.abc import Callable

AGENTS = 2000
OPENS_AT = 10.0
"""Time at which the replica's port opens; until then, connections are refused."""


def longest(_low: float, high: float) -> float:
    return high


def pauses(failure: Failure, times: int, *, retry_after_s: float = 0.0) -> list[float]:
    """Return the longest possible pause after each of so many failures in a row."""
    pause = ReconnectPause(PauseLimits(), longest)
    return [pause.after(failure, retry_after_s) for _ in range(times)]


def test_pauses_after_refused_connections_grow_to_one_second() -> None:
    assert pauses("refused", 6) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_pauses_after_other_failures_grow_to_thirty_seconds() -> None:
    assert pauses("other", 11)[-3:] == pytest.approx([25.6, 30.0, 30.0])


def test_a_refused_connection_shortens_the_pause_at_once() -> None:
    pause = ReconnectPause(PauseLimits(), longest)
    for _ in range(11):
        pause.after("other")
    assert pause.after("refused") == pytest.approx(1.0)


def test_a_busy_replica_alone_decides_when_agents_return() -> None:
    assert pauses("busy", 20, retry_after_s=2.0) == pytest.approx([3.0] * 20)


def test_a_wrong_token_waits_longer_than_requested() -> None:
    assert pauses("other", 11, retry_after_s=1.0)[-1] == pytest.approx(31.0)


def test_pauses_are_spread_over_half_of_their_length() -> None:
    pause = ReconnectPause(PauseLimits(), lambda low, _high: low)
    assert [pause.after("refused") for _ in range(5)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5])


def test_an_accepted_stream_makes_the_next_pause_the_shortest() -> None:
    pause = ReconnectPause(PauseLimits(), longest)
    for _ in range(11):
        pause.after("other")
    pause.reset()
    assert pause.after("other") == pytest.approx(0.1)


def test_an_attempt_outlasts_the_wait_and_the_handshake_at_a_replica() -> None:
    assert CONNECT_TIMEOUT_S > MAX_WAIT_S + REQUEST_TIMEOUT_S


@dataclass
class Attempt:
    """One attempt of an agent, and its connection at the replica once its handshake has begun."""

    agent: int
    connection: Connection | None = None
    is_over: bool = False
    """Whether the agent has a stream, or knows that the attempt failed."""


@dataclass
class Replica:
    """A replica that completes `rate_per_s` TLS handshakes per second, with the real limits of its port, and its agents."""

    rate_per_s: float
    now: float = 0.0
    connections: Connections = field(default_factory=Connections)
    waiting: WaitingConnections[Attempt] = field(default_factory=lambda: WaitingConnections(DEFAULT_LIMITS.waiting))
    handshakes: int = 0
    streams: dict[int, float] = field(default_factory=dict)
    """Time at which the stream of each agent began."""
    _begun: deque[Attempt] = field(default_factory=deque)
    _is_busy: bool = False
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: count[int] = field(default_factory=count)

    def run(self, agents: int) -> None:
        """Run until each agent has a stream. All of them lose the replica at time 0."""
        random_numbers = random.Random(7)
        self._pauses = [ReconnectPause(PauseLimits(), random_numbers.uniform) for _ in range(agents)]
        for agent in range(agents):
            self._fail(Attempt(agent), "other")
        self._at(OPENS_AT, self._check_waiting)
        while len(self.streams) < agents and self.now < OPENS_AT + 10 * agents / self.rate_per_s:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._number), event))

    def _fail(self, attempt: Attempt, failure: Failure) -> None:
        attempt.is_over = True
        self._at(self.now + self._pauses[attempt.agent].after(failure), lambda: self._connect(Attempt(attempt.agent)))

    def _connect(self, attempt: Attempt) -> None:
        if self.now < OPENS_AT:
            self._fail(attempt, "refused")
            return
        self._at(self.now + CONNECT_TIMEOUT_S, lambda: None if attempt.is_over else self._fail(attempt, "timeout"))
        if (self.waiting.has("nat") or not self._begin(attempt)) and (
            closed := self.waiting.add("nat", attempt, self.now)
        ):
            self._fail(closed[1], "refused")

    def _begin(self, attempt: Attempt) -> bool:
        admitted = self.connections.admit("nat", self.now)
        if not isinstance(admitted, tuple):
            return False
        attempt.connection, replaced = admitted
        attempt.connection.is_silent = False
        if replaced is not None:
            self._fail(next(other for other in self._begun if other.connection is replaced), "refused")
        self._begun.append(attempt)
        self._work()
        return True

    def _work(self) -> None:
        # A connection that the replica has closed costs nothing more.
        while self._begun and self._begun[0].is_over:
            self._begun.popleft()
        if self._begun and not self._is_busy:
            self._is_busy = True
            self._at(self.now + 1 / self.rate_per_s, self._handshaken)

    def _handshaken(self) -> None:
        self._is_busy, attempt = False, self._begun.popleft()
        self.handshakes += 1
        assert attempt.connection is not None
        self.connections.end(attempt.connection)
        if not attempt.is_over:
            attempt.is_over = True
            self.streams[attempt.agent] = self.now
        self.waiting.begin(lambda _, waiting: self._begin(waiting))
        self._work()

    def _check_waiting(self) -> None:
        self.waiting.begin(lambda _, waiting: self._begin(waiting))
        for attempt in self.waiting.expired(self.now):
            if not attempt.is_over:
                self._fail(attempt, "refused")
        self._at(self.now + WAITING_INTERVAL_S, self._check_waiting)


@pytest.mark.parametrize("rate_per_s", [800.0, 150.0, 60.0])
def test_all_agents_return_as_fast_as_a_busy_replica_completes_handshakes(rate_per_s: float) -> None:
    replica = Replica(rate_per_s)
    replica.run(AGENTS)
    assert len(replica.streams) == AGENTS
    took_s = max(replica.streams.values()) - OPENS_AT
    # All try again within a second of the opening, and no handshake is in vain.
    assert took_s <= AGENTS / rate_per_s + 1.5
    assert replica.handshakes == AGENTS
