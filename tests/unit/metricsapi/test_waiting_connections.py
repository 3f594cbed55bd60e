"""Sockets that wait for their source's turn."""

from __future__ import annotations

from halcyon.metricsapi.waiting_connections import MAX_WAIT_S, WaitingConnections


def waiting(*sockets: str, limit: int = 100) -> WaitingConnections[str]:
    """Return waiting sockets. The first letter of each is its source."""
    queue: WaitingConnections[str] = WaitingConnections(limit)
    for socket in sockets:
        assert queue.add(socket[0], socket, 0.0) is None
    return queue


def begun(queue: WaitingConnections[str], most: int, *, never: str = "") -> list[str]:
    """Begin at most `most` sockets, and none of the sources `never`."""
    started: list[str] = []

    def may_begin(source: str, socket: str) -> bool:
        if len(started) == most or source in never:
            return False
        started.append(socket)
        return True

    queue.begin(may_begin)
    return started


def test_sources_take_turns_and_each_is_served_in_order() -> None:
    sockets = waiting("a1", "a2", "a3", "b1", "c1", "c2")
    assert begun(sockets, 100) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(sockets) == 0


def test_a_turn_continues_if_some_sockets_could_not_begin() -> None:
    sockets = waiting("a1", "a2", "b1", "b2")
    assert begun(sockets, 1) == ["a1"]
    assert begun(sockets, 3) == ["b1", "a2", "b2"]


def test_a_source_that_may_not_begin_delays_no_other() -> None:
    sockets = waiting("a1", "b1", "b2", "c1")
    assert begun(sockets, 100, never="a") == ["b1", "c1", "b2"]
    assert sockets.has("a")


def test_all_sources_get_a_turn_though_most_are_skipped() -> None:
    sockets = waiting(*(f"{letter}1" for letter in "abcdefghijz"))
    started = [socket for _ in range(5) for socket in begun(sockets, 100, never="abcdefghij")]
    assert started == ["z1"]


def test_a_full_room_closes_the_newest_socket_of_the_largest_source() -> None:
    sockets = waiting("a1", "a2", "a3", limit=3)
    assert sockets.add("b", "b1", 0.0) == ("a", "a3")
    assert sockets.add("b", "b2", 0.0) == ("b", "b2")
    assert sockets.add("a", "a4", 0.0) == ("a", "a4")
    assert begun(sockets, 100) == ["a1", "b1", "a2"]


def test_without_room_every_socket_is_closed() -> None:
    assert waiting(limit=0).add("a", "a1", 0.0) == ("a", "a1")


def test_sockets_expire_by_their_own_age() -> None:
    sockets = waiting("a1")
    sockets.add("a", "a2", 1.0)
    sockets.add("b", "b1", 1.0)
    assert sockets.expired(MAX_WAIT_S - 0.1) == []
    assert sockets.expired(MAX_WAIT_S) == ["a1"]
    assert len(sockets) == 2
    assert sockets.expired(MAX_WAIT_S + 1) == ["a2", "b1"]
    assert len(sockets) == 0
    assert not sockets.has("a")
