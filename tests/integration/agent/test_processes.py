"""What the agent's process may load, and how its small server and its runtime socket behave."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from halcyon.balancer.agent import probes
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.haproxy_stats import HaproxyError, WideCounters, parse, parse_loads
from halcyon.balancer.runtime.runtime_api import RuntimeSocket
from halcyon.balancer.runtime.server_assignment import Command, ServerState
from tests.integration.waiting import PATIENCE

FORBIDDEN = (
    "pydantic",
    "kubernetes",
    "kopf",
    "prometheus_client",
    "yaml",
    "numpy",
    "grpc",
    "tritonclient",
    "cryptography",
)


def test_the_agent_loads_nothing_heavy() -> None:
    code = (
        "import sys; import halcyon.balancer.agent.main, halcyon.balancer.agent.agent; "
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules], 'aiohttp.web' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_the_command_line_alone_loads_no_network_code() -> None:
    code = "import sys; import halcyon.balancer.agent.main; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


INFO = "Name: HAProxy\nPid: 4711\nUptime_sec: 3\nStart_time_sec: 1700000000\ndescription: halcyon-0123\n"
STATE = """1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight ...
5 http_a 1 s1 10.0.0.1 2 0 1 1 2 1 0 0 14 0 0 0 - 8000 - 0 0 - - 0
5 http_a 2 s2 127.0.0.1 0 5 1 1 2 1 0 0 14 0 0 0 - 1 - 0 0 - - 0
6 grpc_a 1 s1 10.0.0.1 2 0 1 1 2 1 0 0 8 0 0 0 - 8001 - 0 0 - - 0
6 grpc_a 2 s2 127.0.0.1 0 7 1 1 2 1 0 0 8 0 0 0 - 1 - 0 0 - - 0
7 http_b 1 held - 0 1 1 1 2 1 0 0 14 0 0 0 - 0 - 0 0 - - 0
8 grpc_b 1 held - 2 0 1 1 2 1 0 0 14 0 0 0 - 0 - 0 0 - - 0
"""
STAT = """# pxname,svname,qcur,qmax,scur,smax,slim,stot,
counters,BACKEND,0,0,0,0,1,0,
http,FRONTEND,,,1000,1000,4000,5000,
grpc,FRONTEND,,,750,750,1000,5000,
metrics,FRONTEND,,,100,100,100,5000,
http_a,s1,1,0,3,0,48,9,
http_a,s2,0,0,0,0,48,0,
http_a,BACKEND,10,0,13,1,400,10,
grpc_a,s1,0,0,4,0,48,0,
grpc_a,BACKEND,20,0,24,0,400,0,
"""
TABLE = "# table: counters, type: integer, size:16, used:1\n0x7e: key=1 use=2 exp=0 shard=0 gpc0=100 gpc1=7 gpc2=2 gpc3=4 gpc22=50 gpc23=8000 gpc24=50 gpc61=30 gpc62=1000\n"
HELD = "held=5 came=12\n"
BROKEN = "broken=3\n"
STREAMS = "# table: streams_first_event, type: integer, size:16, used:1\n0x7e: key=1 use=0 exp=0 shard=0 gpc0=9 gpc1=900 gpc2=9 gpc3=8\n"
USAGE = (
    "# table: usage, type: string, size:256, used:2\n"
    "0x7e: key=bob use=0 exp=0 shard=0 http_req_cnt=1 bytes_in_cnt=70 bytes_out_cnt=90\n"
    "0x7f: key=alice.a-1 use=1 exp=0 shard=0 http_req_cnt=4 bytes_in_cnt=300 bytes_out_cnt=5000000000\n"
)


def test_a_reading_adds_up_both_protocols() -> None:
    reading = parse([INFO, STATE, STAT, TABLE, HELD, BROKEN, STREAMS, USAGE], at=5.0, wide=WideCounters())
    assert (reading.at, reading.process, reading.config) == (5.0, 4711, "halcyon-0123")
    assert (reading.queued, reading.held, reading.inflight) == (31, 5, 7)
    assert (reading.answered, reading.service_ms) == (80, 9000)
    assert (reading.requests, reading.rejected, reading.errors) == (100, 7, 2)
    assert reading.connections_used == 0.75
    assert (reading.retried, reading.broken, reading.open_holds) == (4, 3, {"b"})
    assert reading.first_events is not None
    assert (reading.first_events.answered, reading.first_events.counts[:3]) == (9, (0, 1, 8))
    assert reading.servers == {
        ServerKey("a", 1): ServerState("10.0.0.1", "ready", 7),
        ServerKey("a", 2): ServerState("127.0.0.1", "maint", 0),
    }


def test_responses_of_each_server_are_counted_by_status() -> None:
    columns = ["http_a", "s1", "1", "0", "3", "0", "48", "9", *[""] * 31, "0", "7", "", "2", "1", "", "5", "6"]
    row = ",".join(columns)
    assert parse_loads(f"# pxname\n{row}\n").responses == {ServerKey("a", 1): 10}


def test_http_responses_that_a_server_does_not_complete_are_lost_requests() -> None:
    rows = [",".join([f"{protocol}_a", "BACKEND", *"0" * 48, "5", *"0" * 40]) for protocol in ("http", "grpc")]
    reading = parse([INFO, STATE, "\n".join(rows), TABLE, HELD, BROKEN, STREAMS, USAGE], at=5.0, wide=WideCounters())
    assert reading.errors == 2 + 5


def test_protocols_that_disagree_are_seen() -> None:
    half = STATE.replace("6 grpc_a 1 s1 10.0.0.1 2 0", "6 grpc_a 1 s1 10.0.0.2 2 9")
    assert parse([INFO, half, STAT, TABLE, HELD, BROKEN, STREAMS, USAGE], at=5.0, wide=WideCounters()).servers[
        ServerKey("a", 1)
    ] == ServerState("", "mixed", 7)


def test_a_table_without_a_row_has_counted_nothing() -> None:
    reading = parse(
        [INFO, STATE, STAT, "# table: counters, type: integer, size:16, used:0\n", HELD, BROKEN, STREAMS, USAGE],
        at=5.0,
        wide=WideCounters(),
    )
    assert (reading.requests, reading.rejected, reading.errors) == (0, 0, 0)


@pytest.mark.parametrize(
    "answers",
    [
        [],
        ["", "", "", "", "", "", ""],
        [INFO, STATE, STAT, TABLE, HELD, BROKEN],
        [INFO, STATE, STAT, TABLE, "Unknown command: 'show held'", BROKEN, STREAMS, USAGE],
        [INFO, STATE, STAT, TABLE, HELD, "Unknown command: 'show broken'", STREAMS, USAGE],
        [INFO, STATE, "http_a,s1,x,0,y,", TABLE, HELD, BROKEN, STREAMS, USAGE],
        ["Pid: x", STATE, STAT, TABLE, HELD, BROKEN, STREAMS, USAGE],
    ],
)
def test_an_answer_that_is_not_haproxys_is_an_error(answers: list[str]) -> None:
    with pytest.raises(HaproxyError):
        parse(answers, at=5.0, wide=WideCounters())


async def test_a_command_that_haproxy_refuses_is_an_error_on_both_protocols(tmp_path: Path) -> None:
    commands: list[str] = []
    replies = [b"IP changed from '127.0.0.1' to '10.0.0.1' by 'stats socket command'\n\n", b"No such server.\n\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands.append((await reader.readline()).decode().strip())
        writer.write(replies.pop(0))
        writer.close()
        await writer.wait_closed()

    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(answer, path)
    runtime = RuntimeSocket(path, path)
    key = ServerKey("a", 3)
    await runtime.apply([Command(key, "address", "10.0.0.1"), Command(key, "ready")])
    assert commands[0].split(";") == [
        "clear table sticky_a data.server_id eq 4",
        "set server http_a/s3 addr 10.0.0.1 port 8000",
        "set server grpc_a/s3 addr 10.0.0.1 port 8001",
        "set server grpc_a/s3 state ready",
        "set server http_a/s3 state ready",
    ]
    with pytest.raises(HaproxyError, match="No such server"):
        await runtime.apply([Command(key, "maint")])
    server.close()
    with pytest.raises(HaproxyError, match="does not respond"):
        await RuntimeSocket(str(tmp_path / "none"), path).read()


class _Health:
    why: str | None = "the plan has not been read yet"
    drained: float | None = None

    def healthy(self) -> str | None:
        return self.why

    def ready(self) -> str | None:
        return None

    def metrics(self) -> str:
        return "halcyon_agent_uplinks 2\n"

    async def drain(self, delay_s: float) -> None:
        self.drained = delay_s


async def _get(port: int, request: bytes) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await asyncio.wait_for(reader.read(), 5 * PATIENCE)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0].partition(" ")[2], body


async def test_the_probes_answer_and_nothing_else_does() -> None:
    health = _Health()
    server = await probes.serve(health, host="127.0.0.1", port=0, drain_key="k3y")
    port = server.sockets[0].getsockname()[1]
    assert await _get(port, b"GET /healthz HTTP/1.1\r\n\r\n") == (
        "503 Service Unavailable",
        "the plan has not been read yet\n",
    )
    health.why = None
    assert await _get(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == ("200 OK", "ok\n")
    assert (await _get(port, b"GET /readyz?verbose HTTP/1.1\r\n\r\n"))[0] == "200 OK"
    assert await _get(port, b"GET /metrics HTTP/1.1\r\n\r\n") == (
        "200 OK",
        "halcyon_agent_uplinks 2\n",
    )
    assert (await _get(port, b"GET /drain?delay=0.5 HTTP/1.1\r\nHalcyon-Drain: k3y\r\n\r\n"))[0] == "200 OK"
    assert health.drained == 0.5
    for bad in (b"nan", b"-1", b"61", b"x"):
        assert (await _get(port, b"GET /drain?delay=" + bad + b" HTTP/1.1\r\nhalcyon-drain: k3y\r\n\r\n"))[
            0
        ] == "400 Bad Request"
    for path in (b"/healthz", b"/readyz", b"/metrics"):
        assert await _get(port, b"HEAD " + path + b" HTTP/1.1\r\n\r\n") == ("200 OK", "")
    assert await _get(port, b"HEAD /secret HTTP/1.1\r\n\r\n") == ("404 Not Found", "")
    # A drain is no read.
    assert (await _get(port, b"HEAD /drain?delay=1 HTTP/1.1\r\n\r\n"))[0] == "405 Method Not Allowed"
    assert health.drained == 0.5
    assert (await _get(port, b"POST /drain HTTP/1.1\r\n\r\n"))[0] == "405 Method Not Allowed"
    assert (await _get(port, b"GET /secret HTTP/1.1\r\n\r\n"))[0] == "404 Not Found"
    for invalid in (b"GET /", b"GET //[ HTTP/1.1"):
        assert (await _get(port, invalid + b"\r\n\r\n"))[0] == "400 Bad Request"
    server.close()


@pytest.mark.parametrize("key", ["k3y", ""], ids=["with a key", "without a key"])
async def test_only_the_key_of_the_specification_drains_a_pod(key: str) -> None:
    health = _Health()
    server = await probes.serve(health, host="127.0.0.1", port=0, drain_key=key)
    port = server.sockets[0].getsockname()[1]
    for header in (b"", b"halcyon-drain: \r\n", b"halcyon-drain: k3\r\n", b"halcyon-drain: k3y4\r\n", b"x: k3y\r\n"):
        status, body = await _get(port, b"GET /drain?delay=0 HTTP/1.1\r\n" + header + b"\r\n")
        assert (status, body) == ("403 Forbidden", "only the kubelet may drain this pod\n")
    assert health.drained is None
    server.close()


async def test_a_crowd_at_the_agents_port_leaves_probes_answered() -> None:
    health = _Health()
    server = await probes.serve(health, host="127.0.0.1", port=0, drain_key="k3y")
    port = server.sockets[0].getsockname()[1]
    crowd = []
    for _ in range(3):
        for _ in range(probes.MAX_CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            writer.write(b"GET /readyz HTTP/1.1\r\nX-Half: ")
            crowd.append((reader, writer))
        assert (await _get(port, b"GET /readyz HTTP/1.1\r\n\r\n"))[0] == "200 OK"
    closed = sum(reader.at_eof() or reader.exception() is not None for reader, _ in crowd)
    assert closed >= len(crowd) - probes.MAX_CONNECTIONS
    for _, writer in crowd:
        writer.transport.abort()
    server.close()
