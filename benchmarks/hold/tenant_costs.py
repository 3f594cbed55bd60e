"""Deeds of a tenant at the operator's ports: what each costs, on the served ports and streams (part of row 1.1.1 of docs/quality/hold.md).

python -m benchmarks.hold.tenant_costs          measures all
python -m benchmarks.hold.tenant_costs NAME...  measures some

The results are in docs/quality/data/adversary; `benchmarks.hold.tenant` records the row.

The ports run in a process of their own (`tests/integration/served_ports.py`), and the collector in the loop of this one. Its clients have
a thread of their own, so that only the collector's CPU time is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.hold.deed_results import code_of, load, measured, save
from halcyon.api.documents.observation_report import STREAM_PATH
from halcyon.dashboard.authorization import Authorizer
from halcyon.kube.auth.callers import User
from halcyon.triton.client import MAX_PAGE_BYTES, TritonClient
from halcyon.triton.errors import TritonError
from tests.adversary.tenant.loop_time import loop_time
from tests.adversary.tenant.test_streams import NOW, PODS, report, served
from tests.integration.served_ports import allow_open_files, unverified
from tests.integration.served_ports import served as served_ports

NAME = "tenant_costs"
ENTRY = "halcyon.control.runtime.app"
SOURCES = [f"127.0.7.{last}" for last in range(1, 21)]
CONNECTIONS = 200
IDLE = 400
AGENTS = 8
TOKENS = 400
NAMESPACES, PAGES = 1000, 300
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half"

Figures = Mapping[str, float]


async def connections() -> Figures:
    """Open TLS connections that send nothing; return the memory of each in the ports' process."""
    allow_open_files()
    tls = unverified()
    with served_ports() as site:
        opened = [await asyncio.open_connection("127.0.0.1", site.https, ssl=tls) for _ in range(50)]
        await asyncio.sleep(0.2)
        before = site.resident_mib()
        for number in range(CONNECTIONS):
            source = (SOURCES[number % len(SOURCES)], 0)
            opened.append(await asyncio.open_connection("127.0.0.1", site.https, ssl=tls, local_addr=source))
        each_kib = (site.resident_mib() - before) * 1024 / CONNECTIONS
        for _, writer in opened:
            writer.transport.abort()
    return {"KiB a TLS connection": round(each_kib, 1)}


async def idle() -> Figures:
    """Leave connections with half a request; return the time until all are closed, and the growth of memory."""
    allow_open_files()
    tls = unverified()
    with served_ports() as site:
        await asyncio.sleep(0.5)
        before, peak_mib = site.resident_mib(), 0.0
        began = time.monotonic()

        async def seconds_until_closed(number: int) -> float:
            nonlocal peak_mib
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", site.https, ssl=tls, local_addr=(SOURCES[number % len(SOURCES)], 0)
                )
                writer.write(HALF)
                peak_mib = max(peak_mib, site.resident_mib())
                while await reader.read(65536):
                    pass
            except OSError:
                pass
            return time.monotonic() - began

        closed_s = max(await asyncio.gather(*(seconds_until_closed(number) for number in range(IDLE))))
    return {
        "s until idle connections are closed": round(closed_s, 1),
        "MiB of idle connections": round(peak_mib - before, 1),
    }


async def fake_pods() -> Figures:
    """Report 2,000 pods that don't exist, from many agents; return the longest iteration of the loop, and the pods stored."""
    longest_s, pods = await _reports(lambda agent: [f"{agent}-{pod:04}" for pod in range(PODS)])
    return {"ms of the loop, pods that don't exist": round(longest_s * 1000, 1), "pods stored that don't exist": pods}


async def real_pods() -> Figures:
    """Report a model's own 2,000 pods, from many agents that contradict each other."""
    longest_s, _ = await _reports(lambda _: [f"m-a-{pod:04}" for pod in range(PODS)])
    return {"ms of the loop, 2,000 real pods": round(longest_s * 1000, 1)}


async def _reports(pods_of: Callable[[str], list[str]]) -> tuple[float, int]:
    texts = {
        f"b-{n}": report(f"b-{n}", NOW + n, pods_of(f"b-{n}"), load_error=f"b-{n}", failed=0, executions=n, queue_us=1)
        for n in range(AGENTS)
    }
    done = threading.Event()

    async def send(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            streams = [await session.ws_connect(url, headers={"Authorization": f"Bearer {agent}"}) for agent in texts]
            for stream, text in zip(streams, texts.values(), strict=True):
                await stream.send_str(text)
            await asyncio.to_thread(done.wait, 60)

    async with served() as scene:
        with loop_time() as measured:
            sending = asyncio.create_task(asyncio.to_thread(asyncio.run, send(str(scene.client.make_url(STREAM_PATH)))))
            await scene.until_accepted(AGENTS)
        done.set()
        await sending
        snapshot = scene.store.snapshot("t", "m", time.monotonic())
        return measured.longest_s, 0 if snapshot is None else len(snapshot.pods)


async def tokens() -> Figures:
    """Connect with invalid tokens from one address; return how many were reviewed a second, after the burst of 100."""
    async with served() as scene:
        began = time.monotonic()
        for number in range(TOKENS):
            try:
                await scene.connect(f"garbage-{number}")
            except aiohttp.WSServerHandshakeError:
                continue
        return {"reviews/s of invalid tokens": round((len(scene.reviewed) - 100) / (time.monotonic() - began), 1)}


async def pages() -> Figures:
    """Answer as a model's own server with the largest page that is read, and with a larger one."""
    line = b'nv_inference_count{model="m",version="1"} 1\n'
    longest_s, refused = 0.0, 0
    for size in (MAX_PAGE_BYTES, 8 * MAX_PAGE_BYTES):
        text = line * (size // len(line))

        async def page(_: web.Request, text: bytes = text) -> web.Response:
            return web.Response(body=text)

        app = web.Application()
        app.add_routes([web.get("/metrics", page)])
        async with TestServer(app) as running, aiohttp.ClientSession() as session:
            assert running.port is not None  # it is running
            with loop_time() as measured:
                try:
                    await TritonClient(session, "m", running.port, running.port).metrics("127.0.0.1")
                except TritonError:
                    refused += 1
            longest_s = max(longest_s, measured.longest_s)
    return {"ms of the loop, page of a server": round(longest_s * 1000, 1), "pages above the limit refused": refused}


async def reviews() -> Figures:
    """Open the dashboard's page as a user of one namespace among 1,000; return the access reviews a second, after the first page."""
    now, review_count = 0.0, 0

    class Reviews:
        covers_all = True

        async def user(self, token: str) -> User:
            return User(token)

        async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
            nonlocal review_count
            del user, name
            review_count += 1
            return namespace == "ns1"

    spaces = [f"ns{number}" for number in range(NAMESPACES)]
    access = Authorizer(Reviews(), clock=lambda: now, namespaces=lambda: spaces)
    await access.visible_namespaces(User("u"))
    first, longest_s = review_count, 0.0
    for _ in range(PAGES):
        now += 1.0
        began = time.thread_time()
        await access.visible_namespaces(User("u"))
        longest_s = max(longest_s, time.thread_time() - began)
    return {"access reviews/s of a page": round((review_count - first) / PAGES, 1)}


DEEDS: Mapping[str, Callable[[], Awaitable[Figures]]] = {
    deed.__name__: deed for deed in (connections, idle, fake_pods, real_pods, tokens, pages, reviews)
}
LIMITS = (
    ("KiB a TLS connection", 40, "<="),
    ("s until idle connections are closed", 30, "<="),
    ("MiB of idle connections", 30, "<="),
    ("ms of the loop, pods that don't exist", 5, "<="),
    ("pods stored that don't exist", 0, "=="),
    ("ms of the loop, 2,000 real pods", 5, "<="),
    ("reviews/s of invalid tokens", 25, "<="),
    ("ms of the loop, page of a server", 20, "<="),
    ("pages above the limit refused", 1, "=="),
    ("access reviews/s of a page", 10, "<="),
)


def main(argv: list[str]) -> int:
    """Measure the named deeds, or all, and save their costs."""
    parser = argparse.ArgumentParser(prog="benchmarks.hold.tenant_costs", description="Deeds of a tenant.")
    parser.add_argument("deeds", nargs="*", choices=[*DEEDS, []], help="deeds to measure (default: all)")
    code = code_of(ENTRY)
    for name in parser.parse_args(argv).deeds or DEEDS:
        figures = asyncio.run(_measured(DEEDS[name]))
        print(name, json.dumps(figures), flush=True)
        save(NAME, load(NAME) | {name: measured(0.0, code, figures)})
    return 0


async def _measured(deed: Callable[[], Awaitable[Figures]]) -> Figures:
    return await deed()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
