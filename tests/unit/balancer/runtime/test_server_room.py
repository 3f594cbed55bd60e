"""Commands with which waiting requests fill the servers' room. With the real HAProxy: tests/integration/agent/test_concurrency.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.config.memory_budget import MAX_POLLED
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.haproxy_stats import BackendLoads, parse_loads
from halcyon.balancer.runtime.server_room import fill_order
from halcyon.balancer.runtime.shares import PodLoad

FIRST, SECOND, THIRD = (ServerKey("a", number) for number in (1, 2, 3))
PAIRS = st.tuples(st.integers(0, 40), st.integers(0, 40))


def idle(*keys: ServerKey) -> dict[ServerKey, PodLoad]:
    return {key: PodLoad((0, 0), (16, 16)) for key in keys}


def test_waiting_requests_go_to_new_servers_in_equal_parts() -> None:
    loads = BackendLoads({"a": (24, 0)}, servers=idle(FIRST, SECOND, THIRD))
    assert fill_order(loads, dict.fromkeys((FIRST, SECOND, THIRD), (16, 16))) == [
        FIRST,
        SECOND,
        THIRD,
        FIRST,
        SECOND,
        THIRD,
    ]


def test_full_servers_get_no_command() -> None:
    loads = BackendLoads(
        {"a": (24, 0)}, servers={FIRST: PodLoad((16, 0), (16, 16)), SECOND: PodLoad((20, 0), (20, 16))}
    )
    assert fill_order(loads, {FIRST: (16, 16), SECOND: (16, 16)}) == []


def test_requests_of_a_sticky_header_wait_for_their_server_alone() -> None:
    loads = BackendLoads({"a": (12, 0)}, {SECOND: (12, 0)}, idle(FIRST, SECOND))
    assert fill_order(loads, {FIRST: (16, 16), SECOND: (16, 16)}) == [SECOND, SECOND, SECOND]


def test_servers_that_are_down_take_no_place_of_others() -> None:
    loads = BackendLoads({"a": (16, 0)}, servers=idle(FIRST, SECOND), down=frozenset({FIRST}))
    assert fill_order(loads, {FIRST: (16, 16), SECOND: (16, 16)}) == [SECOND] * 4


def test_queues_and_states_of_servers_are_read_from_the_rows_of_haproxy() -> None:
    def row(name: str, queued: int, state: str) -> str:
        return ",".join(["grpc_a", name, str(queued), "0", "3", "9", "16", "40", *["0"] * 9, state, *["0"] * 30])

    rows = [row("s1", 5, "UP"), row("s2", 0, "DOWN 1/2"), row("s3", 0, "MAINT"), row("BACKEND", 2, "UP")]
    loads = parse_loads("\n".join(rows))
    assert loads.waiting == {"a": (0, 7)}
    assert loads.queued == {FIRST: (0, 5)}
    assert loads.down == {SECOND}


@given(
    st.fixed_dictionaries(dict.fromkeys((FIRST, SECOND, THIRD), PAIRS)),
    st.dictionaries(st.sampled_from((FIRST, SECOND, THIRD)), PAIRS),
    PAIRS,
)
def test_no_request_waits_beside_a_server_with_room(
    inflight: dict[ServerKey, tuple[int, int]], queued: dict[ServerKey, tuple[int, int]], anywhere: tuple[int, int]
) -> None:
    waiting = {"a": tuple(anywhere[n] + sum(pair[n] for pair in queued.values()) for n in range(2))}
    servers = {key: PodLoad(used, (16, 16)) for key, used in inflight.items()}
    order = fill_order(BackendLoads(waiting, queued, servers), dict.fromkeys(servers, (16, 16)))  # type: ignore[arg-type]
    assert len(order) <= sum(waiting["a"])
    for protocol in range(2):
        used = {key: pair[protocol] for key, pair in inflight.items()}
        own = {key: queued.get(key, (0, 0))[protocol] for key in servers}
        left = anywhere[protocol]
        for key in order:
            for _ in range(MAX_POLLED):
                if used[key] < 16 and own[key]:
                    own[key], used[key] = own[key] - 1, used[key] + 1
                elif used[key] < 16 and left:
                    left, used[key] = left - 1, used[key] + 1
        for key in servers:
            assert used[key] >= 16 or not (own[key] or left)
