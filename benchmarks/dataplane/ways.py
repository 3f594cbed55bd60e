"""The ways to the same servers: directly, through each peer, and through Halcyon's balancers with their agents.

A balancer is HAProxy 3.0 with the agent's process, as in a pod. The API server and the collector are the stand-ins of
the integration tests.
"""

import contextlib
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from benchmarks.cost import cpu_s
from benchmarks.dataplane import installed, peer_configs
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT
from benchmarks.errors import BenchError
from e2e.cluster.progress import say
from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config.model import Listen
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.runtime.runtime_api import RuntimeSocket
from tests.integration.balanced import Balanced, Process, agent, until
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy
from tests.unit.balancer.stand_in_api import SLICES, slice_of

STAND_INS = ("the agents connect over TLS to the API server and the report collector of the integration tests",)
DIRECT, HALCYON, HALCYON_2 = "direct", "halcyon", "halcyon_2_balancers"
HAPROXY, NGINX, ENVOY = "haproxy", "nginx", "envoy"
_LISTEN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Way:
    """One way to the servers.

    `addresses` are host:port, one per balancer. `proxies` and `agents` are the processes whose CPU time is measured.
    """

    name: str
    addresses: tuple[str, ...]
    proxies: tuple[int, ...] = ()
    agents: tuple[int, ...] = ()

    def cpu_s(self) -> float:
        """Return the CPU time of its proxies so far in seconds, including child processes."""
        return sum(cpu_s(pid) for root in self.proxies for pid in _family(root))

    def agents_cpu_s(self) -> float:
        """Return the CPU time of its agents so far, in seconds."""
        return sum(map(cpu_s, self.agents))


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(descendant for child in children for descendant in _family(int(child)))]


@dataclass
class Ways:
    """The available ways, and the reasons why others are missing."""

    available: list[Way] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def plan(model: str, *, max_connections: int = 48) -> BalancerPlan:
    """Return the controller's plan for a model with batches of 16, and three batches in flight per server."""
    return BalancerPlan(
        namespace="default",
        name="m",
        model=model,
        slots=(Slot("a", "m-server-a", 100, 8),),
        max_connections=max_connections,
        queue_limit=1000,
        queue_timeout_ms=30000,
        response_timeout_ms=30000,
        drain_ms=3000,
    )


@contextmanager
def peers(servers: Sequence[str], names: Sequence[str]) -> Iterator[Ways]:
    """Yield the peers with these names, which proxy to gRPC servers (host:port).

    Peers that can't be started are reported and left out.
    """
    ways = Ways()
    with ExitStack() as stack:
        for name in names:
            try:
                ways.available.append(stack.enter_context(_PEERS[name](servers)))
            except (BenchError, OSError) as error:
                ways.missing[name] = str(error)
                say(f"bench: {name} is left out: {error}")
        yield ways


@contextmanager
def _haproxy(servers: Sequence[str]) -> Iterator[Way]:
    tree = real_haproxy.root()
    with _folder_in(tree) as (folder, inside):
        port = _port()
        (folder / "cfg").write_text(peer_configs.haproxy(port, servers))
        command = ["chroot", str(tree), "/usr/sbin/haproxy", "-W", "-db", "-f", f"{inside}/cfg"]
        with _running_proxy(HAPROXY, command, port) as pid:
            yield Way(HAPROXY, (f"127.0.0.1:{port}",), (pid,))


@contextmanager
def _nginx(servers: Sequence[str]) -> Iterator[Way]:
    tree = installed.debian()
    with _folder_in(tree) as (folder, inside):
        port = _port()
        (folder / "cfg").write_text(peer_configs.nginx(port, servers, inside))
        # A process namespace is needed, because nginx overwrites its environment with its title, and `leftovers` could
        # not find it.
        enter = ["unshare", "--pid", "--fork", "--kill-child"]
        command = [*enter, "chroot", str(tree), "/usr/sbin/nginx", "-e", "stderr", "-c", f"{inside}/cfg"]
        with _running_proxy(NGINX, command, port) as pid:
            yield Way(NGINX, (f"127.0.0.1:{port}",), (pid,))


@contextmanager
def _envoy(servers: Sequence[str]) -> Iterator[Way]:
    program = installed.envoy()
    with tempfile.TemporaryDirectory(prefix="halcyon-envoy-") as folder:
        port = _port()
        file = Path(folder) / "envoy.json"
        file.write_text(peer_configs.envoy(port, servers))
        command = [str(program), "-c", str(file), "--disable-hot-restart", "--log-level", "error"]
        with _running_proxy(ENVOY, command, port) as pid:
            yield Way(ENVOY, (f"127.0.0.1:{port}",), (pid,))


_PEERS: dict[str, Callable[[Sequence[str]], contextlib.AbstractContextManager[Way]]] = {
    HAPROXY: _haproxy,
    NGINX: _nginx,
    ENVOY: _envoy,
}
PEERS = tuple(_PEERS)


@dataclass(frozen=True)
class Balancer:
    """One of Halcyon's balancers on loopback."""

    balanced: Balanced
    agent: Process

    @property
    def grpc(self) -> str:
        """Return host:port of its gRPC endpoint."""
        return f"127.0.0.1:{self.balanced.haproxy.ports.grpc}"

    @property
    def http(self) -> str:
        """Return host:port of its HTTP endpoint."""
        return f"127.0.0.1:{self.balanced.haproxy.ports.http}"

    @property
    def haproxy_pid(self) -> int:
        """Return the process ID of HAProxy's master."""
        process = self.balanced.haproxy.process
        if process is None:
            raise BenchError(f"HAProxy has ended: {self.balanced.haproxy.log_text()[-500:]}")
        return process.pid

    def endpoints(self, addresses: Sequence[str], *, leaving: Sequence[str] = ()) -> None:
        """Make the API server report these pods as endpoints, and those in `leaving` as terminating."""
        for kind, members in (("x", addresses), ("y", leaving)):
            terminating = {"ready": False, "serving": False, "terminating": True} if kind == "y" else {}
            content = slice_of("m-server-a", {pod_name(address): address for address in members}, **terminating)
            self.agent.api.put(SLICES, f"m-server-a-{kind}", content)


def pod_name(address: str) -> str:
    """Return the name of the pod at this address."""
    return "pod-" + address.replace(".", "-")


@asynccontextmanager
async def balancers(
    count: int,
    plan: BalancerPlan,
    addresses: Sequence[str],
    *,
    ports: tuple[int, int, int] = (HTTP_PORT, GRPC_PORT, METRICS_PORT),
) -> AsyncIterator[list[Balancer]]:
    """Start `count` balancers for servers at these addresses, which use Triton's three `ports`.

    They use all servers when the context is entered.
    """
    async with AsyncExitStack() as stack:
        started: list[Balancer] = []
        [probes] = free_ports(1)
        hosts = {f"{plan.name}-balancer-{number}": f"127.0.66.{number + 1}" for number in range(count)}
        for pod, host in hosts.items():
            haproxy = stack.enter_context(real_haproxy.haproxy())
            haproxy.ports = replace(haproxy.ports, server_http=ports[0], server_grpc=ports[1])
            haproxy.listen = Listen(haproxy.ports, dual_stack=False, socket_path=haproxy.listen.socket_path)
            sockets = (str(haproxy.directory / "haproxy.sock"), str(haproxy.directory / "master.sock"))
            haproxy.runtime = RuntimeSocket(*sockets, haproxy.ports)
            balanced = Balanced(haproxy, HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen), [])
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-agent-")))
            running = await stack.enter_async_context(
                agent(balanced, folder, metrics_port=ports[2], plan=plan, pod=pod, at=(host, probes))
            )
            balancer = Balancer(balanced, running)
            started.append(balancer)
            balancer.endpoints(addresses)
            balancer.agent.api.put(SLICES, plan.name, slice_of(plan.name, hosts))
            await until(lambda balancer=balancer: balancer.agent.is_("/healthz", 200), 20)  # type: ignore[misc]  # a default is how a lambda in a loop keeps its own
            haproxy.start()
            await until(lambda balancer=balancer: _is_in_use(balancer, len(addresses)), 20)  # type: ignore[misc]  # same
        yield started


async def _is_in_use(balancer: Balancer, count: int) -> bool:
    servers = (await balancer.balanced.haproxy.runtime.read()).servers.values()
    return sum(server.admin == "ready" for server in servers) == count and await balancer.agent.is_("/readyz", 200)


def way(name: str, balancers: Sequence[Balancer]) -> Way:
    """Return the way through these balancers."""
    return Way(
        name,
        tuple(balancer.grpc for balancer in balancers),
        tuple(balancer.haproxy_pid for balancer in balancers),
        tuple(balancer.agent.process.pid for balancer in balancers),
    )


@contextmanager
def _folder_in(tree: Path) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield a folder in the /tmp of a file tree, and its path inside the chroot."""
    folder = tree / "tmp" / f"bench-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder, PurePosixPath("/tmp") / folder.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _port() -> int:
    [port] = free_ports(1)
    return port


@contextmanager
def _running_proxy(name: str, command: list[str], port: int) -> Iterator[int]:
    """Start a proxy, wait until it listens, and return its process ID."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until_s = time.monotonic() + _LISTEN_TIMEOUT_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until_s:
                    log.seek(0)
                    raise BenchError(f"{name} does not listen: {log.read()[-500:].decode(errors='replace')}")
                time.sleep(0.05)
            # A server with health checks counts as up before its first check. Wait briefly for connections
            # nevertheless.
            time.sleep(0.3)
            yield process.pid
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
