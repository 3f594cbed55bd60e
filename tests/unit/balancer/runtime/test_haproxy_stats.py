"""Counters of HAProxy across wraps and restarts. With the real HAProxy: tests/integration/balancer/test_haproxy.py."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.config import latency_buckets
from halcyon.balancer.runtime.haproxy_stats import (
    ClientUsage,
    HaproxyStats,
    HeldRequests,
    WideCounters,
    parse,
    parse_held,
    parse_loads,
    parse_usage,
)


@given(st.integers(0, 2**40), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_counters_of_32_bits_go_on_after_their_wrap(start: int, steps: list[int]) -> None:
    wide, true = WideCounters(), start % 2**32
    assert wide.read(1, {0: true}, uptime_s=10) == {0: true}
    for step in steps:
        true += step
        assert wide.read(1, {0: true % 2**32}, uptime_s=10) == {0: true}


def test_latency_of_steady_load_stays_the_same_across_a_wrap() -> None:
    wide, first = WideCounters(), latency_buckets.FIRST
    clients = {
        first: 20,
        first + 2: 20,
        first + 3: 19,
        first + 4: 15,
        first + 5: 2,
    }  # per second, of answers and of slower ones
    seen = []
    for second in range(2**32 // 20 - 30, 2**32 // 20 + 30):
        counters = {number: count * second % 2**32 for number, count in clients.items()}
        seen.append(latency_buckets.read_clients(wide.read(1, counters, uptime_s=86_400)).counts)
    grown = {tuple(b - a for a, b in zip(before, after, strict=True)) for before, after in itertools.pairwise(seen)}
    assert grown == {(0, 1, 4, 13, 2, *[0] * 10)}


def test_late_requests_are_read_beside_those_held() -> None:
    assert parse_held("held=5 came=12 late=3\n") == HeldRequests(5, 12, 3)
    assert parse_held("held=5 came=12\n") == HeldRequests(5, 12), "of a process that ran before an update"


def test_a_new_process_counts_from_its_own_values() -> None:
    wide = WideCounters()
    wide.read(1, {0: 2**32 - 1}, uptime_s=10)
    assert wide.read(1, {0: 5}, uptime_s=11) == {0: 2**32 + 5}
    assert wide.read(2, {0: 5}, uptime_s=1) == {0: 5}


def reading(wide: WideCounters, *, started_s: int, requests: int) -> HaproxyStats:
    """Return the statistics of a worker with process id 8, which is the first one in each container of HAProxy."""
    info = f"Name: HAProxy\nPid: 8\nUptime_sec: 3\nStart_time_sec: {started_s}\ndescription: halcyon-0123\n"
    table = f"# table: counters, type: integer, size:16, used:1\n0x7e: key=1 use=0 exp=0 shard=0 gpc0={requests}\n"
    return parse([info, "1\n", "# pxname\n", table, "held=0 came=0\n", "broken=0\n", "", ""], at=1.0, wide=wide)


def test_requests_after_a_restart_of_the_container_are_counted_from_zero() -> None:
    wide = WideCounters()
    before = reading(wide, started_s=1000, requests=5000)
    assert reading(wide, started_s=1000, requests=5010).requests == 5010
    after = reading(wide, started_s=1060, requests=3)
    assert after.requests == 3, "and not 2^32 more"
    assert (before.process, before.identity) != (after.process, after.identity)
    assert before.process == after.process


def test_lost_requests_of_the_server_held_are_counted_once() -> None:
    rows = [",".join(["http_a", server, *"0" * 48, "5", *"0" * 40]) for server in ("held", "BACKEND")]
    assert parse_loads("\n".join(rows)).aborted == 5


def test_usage_of_clients_is_read_by_the_name_of_the_key() -> None:
    head = "# table: usage, type: string, size:256, used:2\n"
    rows = (
        "0x7e: key=bob use=0 exp=0 shard=0 http_req_cnt=1 bytes_in_cnt=70 bytes_out_cnt=90\n"
        "0x7f: key=alice.a-1 use=1 exp=0 shard=0 http_req_cnt=4 bytes_in_cnt=300 bytes_out_cnt=5000000000\n"
    )
    assert parse_usage(head + rows) == {
        "alice.a-1": ClientUsage(4, 300, 5_000_000_000),
        "bob": ClientUsage(1, 70, 90),
    }
    assert parse_usage(head) == {}


def repeating(seconds: int, *, capacity: int, arrivals: int = 210, repeats: int = 3) -> list[tuple[int, int, int]]:
    """Return (requests, rejected, repeated) after each second, with clients that repeat rejected requests a second later."""
    requests = rejected = repeated = 0
    waiting = [0] * repeats  # rejected in the last second, by the attempts that are left
    counters = []
    for _ in range(seconds):
        attempts = [*waiting, arrivals]
        free, failed = capacity, []
        for count in attempts:
            admitted = min(count, free)
            free -= admitted
            failed.append(count - admitted)
        requests, repeated = requests + sum(attempts), repeated + sum(waiting)
        rejected += sum(failed)
        waiting = failed[1:]
        counters.append((requests, rejected, repeated))
    return counters


def test_answers_to_repeating_clients_are_the_demand_without_rejections() -> None:
    wide, answered, raw = WideCounters(), [0], []
    for requests, rejected, repeated in repeating(12, capacity=62):
        wide.read(1, {0: requests, 1: rejected, 5: repeated}, uptime_s=1)
        answered.append(requests - repeated - wide.repeated(rejected, repeated)[1])
        raw.append(requests - repeated - rejected)
    assert [after - before for before, after in itertools.pairwise(answered)] == [62] * 12
    assert raw[-1] < 0, "the rejections of repeated requests are more than the demand"


def test_rejected_demand_never_falls_when_repeated_requests_are_answered() -> None:
    wide, counts = WideCounters(), []
    states = repeating(6, capacity=62)
    for more in range(1, 5):  # all clients repeat, and are answered
        requests, rejected, repeated = states[5]
        states.append((requests + 300 * more, rejected, repeated + 90 * more))
    for requests, rejected, repeated in states:
        wide.read(1, {0: requests, 1: rejected, 5: repeated}, uptime_s=1)
        counts.append(wide.repeated(rejected, repeated)[1])
    assert counts == sorted(counts)
    assert counts[-1] == counts[5]
    # The next overload counts from its first rejection.
    assert wide.repeated(rejected + 10, repeated)[1] == counts[-1] + 10


def test_rejected_demand_of_a_new_process_starts_again() -> None:
    wide = WideCounters()
    wide.read(1, {}, uptime_s=1)
    assert wide.repeated(100, 40) == (40, 60)
    wide.read(2, {}, uptime_s=1)
    assert wide.repeated(5, 0) == (0, 5)


def test_retries_of_what_servers_refused_are_no_repeated_rejections() -> None:
    wide, demand = WideCounters(), []
    # Servers refused 300 requests, and clients sent them again. Then traffic ends while 150 requests wait, which are rejected.
    for requests, rejected, retries in [(1000, 0, 300), (1100, 0, 300), (1100, 50, 300), (1100, 150, 300)]:
        repeated, unrepeated = wide.repeated(rejected, retries)
        demand.append(requests - repeated)
        assert unrepeated == rejected
    assert demand == [1000, 1100, 1100, 1100]
    # A retry now is one of a rejected request; no more than 150 can be.
    assert wide.repeated(150, 340) == (40, 150)
    assert wide.repeated(150, 900) == (150, 150)


@given(st.lists(st.tuples(*[st.integers(0, 50)] * 3), max_size=30))
def test_demand_never_falls_whatever_clients_repeat(steps: list[tuple[int, int, int]]) -> None:
    wide, before = WideCounters(), (0, 0)
    requests = rejected = retries = 0
    for first, again, refused in steps:
        requests, retries = requests + first + again, retries + again
        rejected = min(rejected + refused, requests)
        repeated, unrepeated = wide.repeated(rejected, retries)
        now = (requests - repeated, unrepeated)
        assert now >= before
        assert now[1] >= before[1]
        before = now
