"""Which connections of a port are accepted, which make room, which are kept open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.metricsapi.connections import (
    MIN_REPLACEABLE_S,
    MIN_SILENT_S,
    Connection,
    Connections,
    PortLimits,
    source_of,
)

LIMITS = PortLimits(unidentified=8, per_source=3, idle=4, idle_per_caller=2)


def accepted(connections: Connections, source: str, now: float = 0.0, *, silent: bool = False) -> Connection:
    admitted = connections.admit(source, now)
    assert isinstance(admitted, tuple), admitted
    admitted[0].is_silent = silent
    return admitted[0]


def test_a_source_may_exceed_its_number_without_pressure() -> None:
    connections = Connections(LIMITS)
    assert [connections.admit("a", 0.0) == "source" for _ in range(8)] == [False] * 7 + [True]


def test_a_second_source_gets_in_under_pressure() -> None:
    connections = Connections(LIMITS)
    for _ in range(LIMITS.pressure):
        accepted(connections, "a")
    assert connections.admit("a", 0.0) == "source"
    accepted(connections, "b")


def test_a_source_at_its_limit_replaces_its_own_oldest_after_a_while() -> None:
    connections = Connections(LIMITS)
    first, *_ = [accepted(connections, "a") for _ in range(LIMITS.pressure)]
    assert connections.admit("a", MIN_REPLACEABLE_S - 0.1) == "source"
    admitted = connections.admit("a", MIN_REPLACEABLE_S)
    assert isinstance(admitted, tuple)
    assert admitted[1] is first
    assert connections.unidentified == LIMITS.pressure


def test_a_connection_that_sends_nothing_is_replaced_before_one_that_shakes_hands() -> None:
    connections = Connections(LIMITS)
    for _ in range(3):
        accepted(connections, "a")
    silent = [accepted(connections, "a", silent=True) for _ in range(LIMITS.pressure - 3)]
    assert connections.admit("a", MIN_SILENT_S - 0.1) == "source"
    for connection in silent:
        admitted = connections.admit("a", MIN_SILENT_S)
        assert isinstance(admitted, tuple)
        assert admitted[1] is connection
    assert connections.admit("a", MIN_SILENT_S) == "source"


def test_a_connection_whose_bytes_the_operator_has_not_read_is_not_replaced() -> None:
    connections = Connections(LIMITS)
    unread = [accepted(connections, "a", silent=number % 2 == 0) for number in range(LIMITS.pressure)]
    for connection in unread:
        connection.has_input = lambda: True
    assert connections.admit("a", 100.0) == "source"


def test_a_handshake_has_its_whole_time_from_its_first_bytes_on() -> None:
    connections = Connections(LIMITS)
    for _ in range(LIMITS.pressure):
        accepted(connections, "a", silent=True).begin_input(5.0)
    assert connections.admit("a", 5.0 + MIN_REPLACEABLE_S - 0.1) == "source"
    assert isinstance(connections.admit("a", 5.0 + MIN_REPLACEABLE_S), tuple)


def test_further_bytes_give_a_handshake_no_more_time() -> None:
    connections = Connections(LIMITS)
    connection = accepted(connections, "a", silent=True)
    for at in (1.0, 2.0, 3.0):
        connection.begin_input(at)
    assert connection.idle_since == 1.0


def test_a_connection_within_a_request_is_not_replaced() -> None:
    connections = Connections(LIMITS)
    for _ in range(LIMITS.pressure):
        connections.begin_request(accepted(connections, "a"))
    assert connections.admit("a", 100.0) == "source"


def test_a_full_port_takes_from_the_source_that_has_the_most() -> None:
    connections = Connections(LIMITS)
    crowd = [accepted(connections, "a") for _ in range(4)]
    for source in "bcde":
        accepted(connections, source)
    admitted = connections.admit("f", 0.0)
    assert isinstance(admitted, tuple)
    assert admitted[1] is crowd[0]
    assert crowd[0].closed
    assert connections.unidentified == LIMITS.unidentified


def test_a_full_port_of_equals_refuses_until_one_has_been_idle() -> None:
    connections = Connections(LIMITS)
    first, *_ = [accepted(connections, source) for source in "abcdefgh"]
    assert connections.admit("i", 0.0) == "all"
    admitted = connections.admit("i", MIN_REPLACEABLE_S)
    assert isinstance(admitted, tuple)
    assert admitted[1] is first


def test_identified_connections_and_streams_leave_room() -> None:
    connections = Connections(LIMITS)
    for number in range(100):
        connection = accepted(connections, "nat")
        connections.begin_request(connection)
        if number % 2:
            connections.identify(connection, f"caller-{number}")
        else:
            connections.begin_stream(connection)
    assert connections.unidentified == 0


def test_a_connection_beyond_the_idle_limits_is_answered_and_closed() -> None:
    connections = Connections(LIMITS)

    def answer(caller: str) -> bool:
        connection = accepted(connections, "a")
        connections.begin_request(connection)
        connections.identify(connection, caller)
        return connections.end_request(connection, 0.0)

    assert [answer("one") for _ in range(3)] == [True, True, False]
    assert [answer("two"), answer("three"), answer("four")] == [True, True, False]


def test_a_connection_that_is_used_again_is_counted_once() -> None:
    connections = Connections(LIMITS)
    connection = accepted(connections, "a")
    for caller in ("one", "two", "one") * 10:
        connections.begin_request(connection)
        connections.identify(connection, caller)
        assert connections.end_request(connection, 0.0)
    connections.end(connection)
    assert (connections._idle_total, connections._idle, connections._by_source) == (0, {}, {})


def test_unidentified_connections_are_not_kept_under_pressure() -> None:
    connections = Connections(LIMITS)
    first, *others = [accepted(connections, source) for source in "abcd"]
    connections.begin_request(first)
    assert not connections.end_request(first, 0.0)
    connections.end(others[0])
    connections.begin_request(first)
    assert connections.end_request(first, 0.0)


def test_an_answer_after_the_end_of_its_connection_counts_nowhere() -> None:
    connections = Connections(LIMITS)
    connection = accepted(connections, "a")
    connections.begin_request(connection)
    connections.end(connection)
    connections.identify(connection, "one")
    assert not connections.end_request(connection, 0.0)
    assert (connections.unidentified, connections._idle_total) == (0, 0)


def test_a_stream_leaves_no_state() -> None:
    connections = Connections(LIMITS)
    connection = accepted(connections, "a")
    connections.begin_request(connection)
    connections.identify(connection, "one")
    connections.begin_stream(connection)
    assert not connections.end_request(connection, 0.0)


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["admit", "request", "known", "answer", "end"])))
)
def test_limits_are_never_exceeded(deeds: list[tuple[str, str]]) -> None:
    connections, held = Connections(LIMITS), list[Connection]()
    for now, (source, deed) in enumerate(deeds):
        held = [connection for connection in held if not connection.closed]
        if deed == "admit":
            admitted = connections.admit(source, float(now))
            held += [admitted[0]] if isinstance(admitted, tuple) else []
        elif held:
            connection = held[ord(source) % len(held)]
            if deed == "request":
                connections.begin_request(connection)
            elif deed == "known" and connection.in_request:
                connections.identify(connection, source)
            elif deed == "answer" and connection.in_request:
                if not connections.end_request(connection, float(now)):
                    connections.end(connection)
            elif deed == "end":
                connections.end(connection)
        held = [connection for connection in held if not connection.closed]
        unidentified = [connection for connection in held if not connection.caller]
        idle = [connection.caller for connection in held if connection.caller and not connection.in_request]
        assert len(unidentified) == connections.unidentified <= LIMITS.unidentified
        assert len(idle) == connections._idle_total <= LIMITS.idle
        assert all(idle.count(caller) <= LIMITS.idle_per_caller for caller in idle)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fd00:1:2:3:4::5", "fd00:1:2:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_is_one_source(address: str, source: str) -> None:
    assert source_of(address) == source
