"""`python -m benchmarks.dataplane.features`: what each feature of the balancer costs, in microseconds of HAProxy's CPU per request.

The real haproxy.cfg of a plan, and the same with one feature taken out, each in a HAProxy of its own, all in front of one stand-in
server: another HAProxy that answers by itself, so that little else runs. In rounds, each variant gets a turn of some thousand gRPC
requests, 32 under way on one connection; differences are of turns of the same round, and the median over the rounds is told.

On a machine that does other things the figures of one run can be compared, those of two can't.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.dataplane import h2load, peer_configs, tritons, ways
from benchmarks.dataplane.h2load import Loader
from halcyon.balancer.config.haproxy_cfg import LUA, render
from halcyon.balancer.config.model import Listen, ServerKey
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.real_haproxy import Haproxy

_MODEL = "nowork"
_UNDER_WAY = 32
_WARM = 2000
_SERVERS = ("127.91.0.1", "127.91.0.2")

_SERVER = """global
  nbthread 1
  maxconn 4000
  tune.h2.fe.max-concurrent-streams 1000
defaults
  mode http
  timeout client 1h
  timeout server 1h
  timeout connect 1s
frontend http
{http}
  http-request return status 200
frontend grpc
{grpc}
  http-request wait-for-body time 10s
  http-request return status 200 content-type application/grpc hdr grpc-status 0 string "{answer}"
"""

Change = Callable[[str], str]


def _without(*patterns: str) -> Change:
    """The configuration without the lines in which one of these is found."""

    def change(text: str) -> str:
        kept = [line for line in text.splitlines() if not any(re.search(pattern, line) for pattern in patterns)]
        return "\n".join(kept) + "\n"

    return change


def _as(old: str, new: str) -> Change:
    return lambda text: text.replace(old, new)


FEATURES: dict[str, Change] = {
    "sent again if there is no answer": _as("conn-failure empty-response", "conn-failure"),
    "the same, with buffers of 20 KiB": _as("tune.bufsize 32768", "tune.bufsize 20480"),
    "wait for the body": _without("wait-for-body"),
    "look at the queue": _without(r"var\(txn\.waiting\)", r"txn\.waits", "acl waits", " waits"),
    "count requests and answers": _without("sc-inc-gpc", "sc-add-gpc", "track-sc0"),
    "latency histogram": _without(
        r"res\.timer\.hdr lt", r"txn\.(took_ms|came_at)", r"sc-inc-gpc\(([89]|[1-9][0-9]),0\)"
    ),
    "own answers in gRPC's way": _without("http-after-response"),
    "which routes are open": _without("unless infers", "status 405"),
    "room for other clients": _without(
        "track-sc[23]", r"conn_cur\([03]\)", "fe_conn", "buffers.limit", "stick-counters"
    ),
}
"""The second is one that was taken out: what it costs is what it would cost more."""
ALL, ALONE = "all", "HAProxy alone"


@dataclass(frozen=True)
class _Variant:
    name: str
    haproxy: Haproxy

    def cpu_us(self) -> float:
        """CPU of its worker so far, user and system, all threads."""
        [worker] = self.haproxy.workers()
        tasks = Path(f"/proc/{worker}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def measure(rounds: int, requests: int) -> dict[str, list[float]]:
    """CPU of each variant per request, by round, in microseconds."""
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        loader = stack.enter_context(h2load.loader(tritons.request_body(_MODEL)))
        variants = list(stack.enter_context(_variants()))
        for variant in variants:
            _turn(variant, loader, _WARM)
        for number in range(rounds):
            # Rotated: whatever comes first in a round is first as often as the others.
            for variant in [*variants[number % len(variants) :], *variants[: number % len(variants)]]:
                found.setdefault(variant.name, []).append(_turn(variant, loader, requests))
    return found


def _turn(variant: _Variant, loader: Loader, requests: int) -> float:
    before = variant.cpu_us()
    address = f"127.0.0.1:{variant.haproxy.ports.grpc}"
    rate = loader.begin(address, requests=requests, under_way=_UNDER_WAY).rate()
    return (variant.cpu_us() - before) / rate.succeeded


@contextmanager
def _variants() -> Iterator[list[_Variant]]:
    with ExitStack() as stack:
        ports = free_ports(2)
        _start(stack.enter_context(real_haproxy.haproxy()), lambda server: _server(server, ports))
        made = []
        for name, change in {ALL: lambda text: text, ALONE: None, **FEATURES}.items():
            haproxy = stack.enter_context(real_haproxy.haproxy())
            _start(haproxy, lambda one, change=change: _config(one, ports, change))  # type: ignore[misc]  # a default is how a lambda in a loop keeps its own
            made.append(_Variant(name, haproxy))
        time.sleep(1.5)  # each server has been checked once
        yield made


def _start(haproxy: Haproxy, text: Callable[[Haproxy], str]) -> None:
    haproxy.config.write_text(text(haproxy))
    for name, lua in LUA.items():
        haproxy.config.with_name(name).write_text(lua)
    haproxy.start()


def _server(haproxy: Haproxy, ports: list[int]) -> str:
    http = [f"  bind {address}:{ports[0]}" for address in _SERVERS] + [f"  bind 127.0.0.1:{haproxy.ports.http}"]
    grpc = [f"  bind {address}:{ports[1]} proto h2" for address in _SERVERS]
    return _SERVER.format(http="\n".join(http), grpc="\n".join(grpc), answer="0123456789" * 8)


def _config(haproxy: Haproxy, ports: list[int], change: Change | None) -> str:
    if change is None:
        alone = peer_configs.haproxy(haproxy.ports.grpc, [f"{address}:{ports[1]}" for address in _SERVERS])
        # One thread, as ours; and a port that tells when it listens.
        return (
            alone.replace("global\n", "global\n  nbthread 1\n")
            + f"frontend up\n  bind 127.0.0.1:{haproxy.ports.http}\n"
        )
    listen = Listen(
        replace(haproxy.ports, server_http=ports[0], server_grpc=ports[1]),
        dual_stack=False,
        socket_path=str(haproxy.directory / "haproxy.sock"),
    )
    placed = {ServerKey("a", number): address for number, address in enumerate(_SERVERS, start=1)}
    return change(render(ways.plan(_MODEL), listen=listen, placed=placed))


def table(found: dict[str, list[float]]) -> str:
    """What was measured, as a table of Markdown."""
    lines = ["| | us per request | of it |", "| --- | --- | --- |"]
    for name, values in found.items():
        saved = median(every - mine for every, mine in zip(found[ALL], values, strict=True))
        lines.append(f"| {name} | {median(values):.1f} | {saved:+.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, and print the table; `of it` is what would be saved without the feature."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dataplane.features", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=9, help="turns of each variant (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=10000, help="of each turn (default: %(default)s)")
    options = parser.parse_args()
    print(table(measure(options.rounds, options.requests)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
