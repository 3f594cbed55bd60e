"""Which requests are ended while others wait: pure decisions, from lines that HAProxy 3.0.11 has written."""

from __future__ import annotations

import pytest

from halcyon.balancer.agent.slow_clients import ClientRequest, Excess, WaitsFor, above_share, full, parse
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.haproxy_stats import BackendLoads
from halcyon.balancer.runtime.shares import PodLoad

LINES = """\
stream 0x7f033a086400 127.0.0.17 20134
stream 0x7f033a086c00 127.0.0.18 9000

0x7f033a085000: proto=tcpv4 src=127.0.0.11:34434 fe=http be=http_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,1000h,fd=20,rex=1m42s,wex=] scb=[8,1401h,fd=19,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a085400: proto=tcpv6 src=::ffff:127.0.0.12:56276 fe=http be=http_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=848000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,1402h,fd=21,rex=,wex=] scb=[8,1411h,fd=25,rex=57s,wex=] exp=57s rc=0 c_exp=
0x7f033a085800: proto=tcpv6 src=2001:db8::1:2:56600 fe=grpc be=grpc_a srv=<none> ts=00 epoch=0 age=2s calls=3 rate=0 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,0h,fd=22,rex=1m42s,wex=] scb=[8,401h,fd=26,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a086000: proto=tcpv4 src=127.0.0.15:50564 fe=grpc be=streams srv=end ts=00 epoch=0 age=2s calls=1 rate=0 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1400000h,ax=] scf=[8,400h,fd=24,rex=1m42s,wex=] scb=[8,401h,fd=28,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a086800: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0 age=0s calls=1 rate=0 cpu=0 lat=0 rq[f=848000h,i=0,an=00h,ax=] rp[f=80008000h,i=0,an=00h,ax=] scf=[8,0h,fd=33,rex=10s,wex=] scb=[8,1h,fd=-1,rex=,wex=] exp=10s rc=0 c_exp=
0x7ff0fea84000: proto=tcpv4 src=127.0.0.9:38428 fe=grpc be=grpc_a srv=s1 ts=00 epoch=0 age=8s calls=4 rate=0 cpu=0 lat=0 rq[f=848000h,i=0,an=8000h,ax=] rp[f=80040000h,i=64,an=4000000h,ax=] scf=[8,402h,fd=20,rex=,wex=52s] scb=[8,1211h,fd=19,rex=,wex=] exp=52s rc=0 c_exp=
0x7f8a1a084000: proto=tcpv4 src=127.0.0.9:36364 fe=grpc be=grpc_a srv=s1 ts=00 epoch=0 age=1s calls=3 rate=0 cpu=0 lat=0 rq[f=848000h,i=0,an=00h,ax=] rp[f=80040000h,i=32728,an=4000000h,ax=] scf=[8,1c402h,fd=20,rex=,wex=59s] scb=[10,6501bh,fd=19,rex=,wex=] exp=0s rc=0 c_exp=
0x7f033a086400: proto=unix_stream src=unix:1 fe=streams_in be=grpc_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,400h,fd=31,rex=1m32s,wex=] scb=[8,401h,fd=32,rex=,wex=] exp=1m32s rc=0 c_exp=
0x7f033a086c00: proto=unix_stream src=unix:1 fe=streams_in be=grpc_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,400h,fd=34,rex=1m32s,wex=] scb=[8,401h,fd=32,rex=,wex=] exp=1m32s rc=0 c_exp=
"""
CHECK = "0x7f033a086a00: proto=unix_stream src=unix:1 fe=http be=http_a srv=s1 scf=[8,402h,fd=3,rex=,wex=] scb=[8,1211h,fd=4,rex=,wex=]"
KEY = ServerKey("a", 1)


def requests(
    source: str, count: int, *, is_waiting: bool = False, waits_for: WaitsFor = "upload"
) -> list[ClientRequest]:
    state = None if is_waiting else waits_for
    complete = waits_for == "response"
    return [ClientRequest(f"0x{n:x} {source} {n}", source, "http", is_waiting, complete, state) for n in range(count)]


def test_requests_are_read_with_what_they_wait_for() -> None:
    by_session = {request.session: request for request in parse(LINES + CHECK)}
    assert {
        session: (request.is_waiting, request.is_complete, request.waits_for) for session, request in by_session.items()
    } == {
        "0x7f033a085000 127.0.0.11 34434": (False, False, "upload"),
        "0x7f033a085400 ::ffff:127.0.0.12 56276": (False, True, None),
        "0x7f033a085800 2001:db8::1:2 56600": (True, False, None),
        "0x7ff0fea84000 127.0.0.9 38428": (False, True, "response"),
        # HAProxy has the whole response, so the place at the server is free.
        "0x7f8a1a084000 127.0.0.9 36364": (False, True, None),
        "0x7f033a086400 127.0.0.17 stream": (False, False, "message"),
        "0x7f033a086c00 127.0.0.18 stream": (False, False, None),
    }
    assert [request.source for request in by_session.values()][1:3] == ["127.0.0.12", "2001:db8::"]
    assert [request.protocol for request in by_session.values()][:3] == ["http", "http", "grpc"]
    assert next(iter(by_session.values())).id == "0x7f033a085000"


@pytest.mark.parametrize(
    ("waiting", "inflight", "limits", "places"),
    [
        ((1, 0), (4, 0), (4, 4), {"http": 4}),
        ((0, 0), (4, 4), (4, 4), {}),
        ((1, 0), (3, 4), (4, 4), {}),
        ((1, 1), (4, 4), (4, 4), {"http": 4, "grpc": 4}),
    ],
)
def test_places_are_full_if_requests_wait_and_none_is_free(
    waiting: tuple[int, int], inflight: tuple[int, int], limits: tuple[int, int], places: dict[str, int]
) -> None:
    unused, failed = ServerKey("a", 2), ServerKey("a", 3)
    servers = {KEY: PodLoad(inflight, limits), unused: PodLoad((0, 0), limits), failed: PodLoad((0, 0), limits)}
    assert full(BackendLoads({"a": waiting}, servers=servers, down=frozenset({failed})), {KEY, failed}) == places


@pytest.mark.parametrize("waits_for", ["upload", "response", "message"])
def test_a_source_above_its_share_loses_its_slowest_requests(waits_for: WaitsFor) -> None:
    in_progress = [
        *requests("10.0.0.1", 6, waits_for=waits_for),
        *requests("10.0.0.2", 2, waits_for=waits_for),
        *requests("10.0.0.3", 1, is_waiting=True),
    ]
    slow = {request.session: float(-number) for number, request in enumerate(in_progress)}
    [excess] = above_share(in_progress, {"http": 8}, slow)
    assert [request.session for request in excess.requests] == [f"0x{n:x} 10.0.0.1 {n}" for n in (5, 4, 3, 2)]
    assert (excess.source, excess.share) == ("10.0.0.1", 2)
    assert (excess.has_uploads, excess.has_others) == (waits_for == "upload", waits_for != "upload")
    # Requests that are not complete would take the free places; complete ones are like any other.
    waits = ClientRequest("0x9 10.0.0.1 9", "10.0.0.1", "http", is_waiting=True, is_complete=False)
    [excess] = above_share([*in_progress, waits], {"http": 8}, slow)
    assert (waits in excess.requests) == (waits_for != "response")
    # Quick requests, and those of a source that is alone, stay.
    assert above_share(in_progress, {"http": 8}, {}) == []
    assert above_share(requests("10.0.0.1", 8), {"http": 8}, slow) == []
    assert above_share(in_progress, {"grpc": 8}, slow) == []


def test_a_source_keeps_a_place_if_sources_are_more_than_places() -> None:
    many = [request for n in range(9) for request in requests(f"10.0.1.{n}", 1, is_waiting=True)]
    slow = requests("10.0.0.1", 2, waits_for="response")
    [excess] = above_share([*slow, *many], {"http": 2}, {request.session: 0.0 for request in slow})
    assert excess == Excess("10.0.0.1", 1, tuple(slow))
