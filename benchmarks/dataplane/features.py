"""CPU cost of each feature of the balancer, in microseconds of HAProxy's CPU time per request.

Usage: `python -m benchmarks.dataplane.features`. The benchmark compares the real haproxy.cfg of a plan with variants
that lack one feature. Each runs in its own HAProxy. All send requests to the same stand-in server, another HAProxy with
a fixed response, so that little else uses the CPU. In each round, every variant handles some thousand gRPC requests, 32
at a time on one connection. Differences are taken within a round, and the result is their median over the rounds.

On a machine with other work, only figures from the same run can be compared.
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
_IN_FLIGHT = 32
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
    """Return a change that removes all lines that match one of these patterns."""

    def change(text: str) -> str:
        lines = [line for line in text.splitlines() if not any(re.search(pattern, line) for pattern in patterns)]
        return "\n".join(lines) + "\n"

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
"""Changes to the configuration, by the feature that they remove. The second one only makes the buffers smaller."""
ALL, ALONE = "all", "HAProxy alone"


@dataclass(frozen=True)
class _Variant:
    name: str
    haproxy: Haproxy

    def cpu_us(self) -> float:
        """Return the CPU time of its worker so far in microseconds: user and system, all threads."""
        [worker] = self.haproxy.workers()
        tasks = Path(f"/proc/{worker}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def measure(rounds: int, requests: int) -> dict[str, list[float]]:
    """Return the CPU time per request of each variant by round, in microseconds."""
    costs_us: dict[str, list[float]] = {}
    with ExitStack() as stack:
        loader = stack.enter_context(h2load.loader(tritons.request_body(_MODEL)))
        variants = list(stack.enter_context(_variants()))
        for variant in variants:
            _turn(variant, loader, _WARM)
        for number in range(rounds):
            # The order is rotated, so that each variant comes first equally often.
            for variant in [*variants[number % len(variants) :], *variants[: number % len(variants)]]:
                costs_us.setdefault(variant.name, []).append(_turn(variant, loader, requests))
    return costs_us


def _turn(variant: _Variant, loader: Loader, requests: int) -> float:
    before = variant.cpu_us()
    address = f"127.0.0.1:{variant.haproxy.ports.grpc}"
    rate = loader.begin(address, requests=requests, in_flight=_IN_FLIGHT).rate()
    return (variant.cpu_us() - before) / rate.succeeded


@contextmanager
def _variants() -> Iterator[list[_Variant]]:
    with ExitStack() as stack:
        ports = free_ports(2)
        _start(stack.enter_context(real_haproxy.haproxy()), lambda server: _server(server, ports))
        variants = []
        for name, change in {ALL: lambda text: text, ALONE: None, **FEATURES}.items():
            haproxy = stack.enter_context(real_haproxy.haproxy())
            _start(haproxy, lambda proxy, change=change: _config(proxy, ports, change))  # type: ignore[misc]  # a default is how a lambda in a loop keeps its own
            variants.append(_Variant(name, haproxy))
        time.sleep(1.5)  # each server has been checked once
        yield variants


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
        # One thread, as in Halcyon's balancer, and a port that shows when HAProxy is listening.
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


def table(costs_us: dict[str, list[float]]) -> str:
    """Return the measurement as a Markdown table."""
    lines = ["| | us per request | of it |", "| --- | --- | --- |"]
    for name, values in costs_us.items():
        saved = median(complete - reduced for complete, reduced in zip(costs_us[ALL], values, strict=True))
        lines.append(f"| {name} | {median(values):.1f} | {saved:+.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, and print the table. Its column `of it` is the share that is saved without the feature."""
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
