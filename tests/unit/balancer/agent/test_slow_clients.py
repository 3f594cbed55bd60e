"""Which requests are ended while others wait: pure decisions, from lines that HAProxy 3.0.11 has written."""

from __future__ import annotations

import pytest

from halcyon.balancer.agent.slow_uploads import Upload, above_share, full, parse
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.haproxy_stats import BackendLoads
from halcyon.balancer.runtime.shares import PodLoad

LINES = """\
0x7f033a085000: proto=tcpv4 src=127.0.0.11:34434 fe=http be=http_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,1000h,fd=20,rex=1m42s,wex=] scb=[8,1401h,fd=19,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a085400: proto=tcpv6 src=::ffff:127.0.0.12:56276 fe=http be=http_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=848000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,1402h,fd=21,rex=,wex=] scb=[8,1411h,fd=25,rex=57s,wex=] exp=57s rc=0 c_exp=
0x7f033a085800: proto=tcpv6 src=2001:db8::1:2:56600 fe=grpc be=grpc_a srv=<none> ts=00 epoch=0 age=2s calls=3 rate=0 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,0h,fd=22,rex=1m42s,wex=] scb=[8,401h,fd=26,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a086000: proto=tcpv4 src=127.0.0.15:50564 fe=grpc be=streams srv=end ts=00 epoch=0 age=2s calls=1 rate=0 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1400000h,ax=] scf=[8,400h,fd=24,rex=1m42s,wex=] scb=[8,401h,fd=28,rex=,wex=] exp=1m42s rc=0 c_exp=
0x7f033a086400: proto=unix_stream src=unix:1 fe=streams_in be=grpc_a srv=s1 ts=00 epoch=0 age=2s calls=3 rate=1 cpu=0 lat=0 rq[f=840000h,i=0,an=8000h,ax=] rp[f=80000000h,i=0,an=1c00000h,ax=] scf=[8,400h,fd=31,rex=1m32s,wex=] scb=[8,401h,fd=32,rex=,wex=] exp=1m32s rc=0 c_exp=
0x7f033a086800: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0 age=0s calls=1 rate=0 cpu=0 lat=0 rq[f=848000h,i=0,an=00h,ax=] rp[f=80008000h,i=0,an=00h,ax=] scf=[8,0h,fd=33,rex=10s,wex=] scb=[8,1h,fd=-1,rex=,wex=] exp=10s rc=0 c_exp=
"""
KEY = ServerKey("a", 1)


def uploads(source: str, count: int, *, is_waiting: bool = False) -> list[Upload]:
    return [Upload(f"0x{n:x} {source} {n}", source, "http", is_waiting, not is_waiting) for n in range(count)]


def test_uploads_are_read_from_the_lines_of_client_requests() -> None:
    assert parse(LINES) == [
        Upload("0x7f033a085000 127.0.0.11 34434", "127.0.0.11", "http", is_waiting=False, is_sending=True),
        Upload("0x7f033a085400 ::ffff:127.0.0.12 56276", "127.0.0.12", "http", is_waiting=False, is_sending=False),
        Upload("0x7f033a085800 2001:db8::1:2 56600", "2001:db8::", "grpc", is_waiting=True, is_sending=True),
    ]
    assert parse(LINES)[0].id == "0x7f033a085000"


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


def test_a_source_above_its_share_loses_its_oldest_uploads() -> None:
    found = [*uploads("10.0.0.1", 6), *uploads("10.0.0.2", 2), *uploads("10.0.0.3", 1, is_waiting=True)]
    slow = {upload.session: float(-number) for number, upload in enumerate(found)}
    assert [upload.session for upload in above_share(found, {"http": 8}, slow)] == [
        f"0x{n:x} 10.0.0.1 {n}" for n in (5, 4, 3, 2)
    ]
    waits = Upload("0x9 10.0.0.1 9", "10.0.0.1", "http", is_waiting=True, is_sending=True)
    assert above_share([*found, waits], {"http": 8}, slow)[-1] is waits
    # Quick uploads, and those of a source that is alone, stay.
    assert above_share(found, {"http": 8}, {}) == []
    assert above_share(uploads("10.0.0.1", 8), {"http": 8}, slow) == []
    assert above_share(found, {"grpc": 8}, slow) == []
