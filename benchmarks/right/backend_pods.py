"""Real Triton servers as pods, with what acts on a dead backend: agents, the operator's restarts, and a kubelet.

Triton, its start script, the agents' samples and examinations, and the decisions on restarts are the product's own code.
Stand-ins: the kubelet's probes and restarts (periods and thresholds of the rendered pod), the API server (an annotation arrives
in the pod after `ORDER_DELAY_S`), and the balancers (requests go in turn to the pods that no agent has taken out).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import aiohttp

from benchmarks.dataplane import installed
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, METRICS_PORT
from halcyon.api.spec.parse import parse
from halcyon.balancer.agent.agent import SAMPLE_INTERVAL_S, SUSPECT_SAMPLE_INTERVAL_S
from halcyon.control.objects import pods
from halcyon.control.reconcile.backend_restart import BackendRestart
from halcyon.control.state.scope import Scope, Signals
from halcyon.kube.client import Kube, Object
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.render import names, server, server_start
from halcyon.render.site import Site, Subject
from halcyon.triton.backend_probe import BackendProbes
from halcyon.triton.client import Endpoint, TritonClient
from halcyon.triton.dead_backend import DeadBackends, PodRequests
from halcyon.triton.pod_sampler import PodSampler

ORDER_DELAY_S = 1.5
"""Time from a write of a pod's annotation until its volume has it, as measured on the embedded cluster."""
MODEL = "m"
_CGROUPS = Path("/sys/fs/cgroup")
SUBJECT = Subject("default", MODEL, "0c8a9a4e-0000-4000-8000-000000000001")
_addresses = (f"127.94.{number // 250}.{number % 250 + 1}" for number in itertools.count())


def rendered(**runtime: Any) -> Mapping[str, Any]:
    """Return the container of Triton in the pod template that the operator renders."""
    spec = parse(MODEL, {"model": {"source": {"persistentVolumeClaim": {"claimName": "x"}}}, **runtime})
    site = Site(operator_image="o", balancer_image="b", server_image="t", collector=None)
    template = server.pod_template(SUBJECT, spec, site, revision="r", model=MODEL, overlay="o", snapshot=None)
    return cast("Mapping[str, Any]", template["spec"]["containers"][0])


@cache
def _tree() -> Path:
    return installed.triton()


@dataclass
class ServerPod:
    """A Triton server with its start script, and the kubelet that probes and restarts it."""

    name: str
    home: Path
    address: str = field(default_factory=lambda: next(_addresses))
    ready: bool = False
    restarts: int = 0
    times: dict[str, float] = field(default_factory=dict)
    """Monotonic times of the last restart, in seconds: `ordered`, `arrived` in the volume, `ended`, and `restarted`."""
    cgroup: Path | None = None
    _process: subprocess.Popen[bytes] | None = None
    _order: int = 0
    _has_started: bool = False
    _is_stopping: bool = False

    @property
    def endpoint(self) -> Endpoint:
        """Return the pod as its EndpointSlice lists it."""
        return Endpoint("a", self.name, self.address, serving=self.ready, terminating=False)

    @property
    def termination_message(self) -> str:
        """Return what the container has written about its end."""
        file = self.home / "orders" / "termination-log"
        return file.read_text().strip() if file.exists() else ""

    def prepare(self, files: Mapping[str, str]) -> None:
        """Write the model repository."""
        for path, content in files.items():
            file = self.home / "models" / MODEL / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        (self.home / "orders").mkdir(parents=True, exist_ok=True)
        (self.home / "orders" / "restart").write_text("")

    def start(self) -> None:
        """Start the container."""
        tree = _tree()
        ports = {"http": HTTP_PORT, "grpc": GRPC_PORT, "metrics": METRICS_PORT}
        script = server_start.command("/mnt", direct=False)[2]
        script = script.replace(server_start.ORDERS, "/srv").replace("/dev/termination-log", "/srv/termination-log")
        options = ["--model-repository=/mnt", "--model-control-mode=none", "--exit-on-error=false"]
        options += [f"--{kind}-address={self.address}" for kind in ports]
        options += [f"--{kind}-port={port}" for kind, port in ports.items()]
        mounts = [
            f"mount --rbind /dev {tree}/dev",
            f"mount -t tmpfs -o size=256m shm {tree}/dev/shm",
            f"mount -t proc proc {tree}/proc",
            *self._cgroup_mounts(tree),
            f"mount --bind {self.home}/models {tree}/mnt",
            f"mount --bind {self.home}/orders {tree}/srv",
            f"mount -t tmpfs tmp {tree}/tmp",
            f'exec chroot {tree} /bin/sh -c "$SCRIPT" tritonserver {" ".join(options)}',
        ]
        if self.cgroup is not None:
            mounts.insert(0, f"echo $$ > {self.cgroup}/cgroup.procs")
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*enter, "sh", "-c", " && ".join(mounts)],
                env={**os.environ, "SCRIPT": script, server_start.POD_IP: self.address},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def limit_memory(self, limit_bytes: int) -> None:
        """Make a memory cgroup for the container, which its next start joins.

        Raises:
            OSError: this machine doesn't allow it.
        """
        v1 = _CGROUPS / "memory"
        self.cgroup = (v1 if v1.is_dir() else _CGROUPS) / f"halcyon-right-{os.getpid()}-{self.name}"
        self.cgroup.mkdir(exist_ok=True)
        (self.cgroup / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(limit_bytes))

    def _cgroup_mounts(self, tree: Path) -> list[str]:
        """Return commands that show the container its own cgroup, as a container runtime does."""
        if self.cgroup is None:
            return []
        at = tree / "sys/fs/cgroup" / ("memory" if self.cgroup.parent != _CGROUPS else "")
        return [f"mount -t tmpfs sys {tree}/sys", f"mkdir -p {at}", f"mount --bind {self.cgroup} {at}"]

    def stop(self) -> None:
        """End the container at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.ready = False

    def pids(self, command: str) -> list[int]:
        """Return the ids of the container's processes, on this machine, whose command line contains this text."""
        pids, children = [], {self._process.pid} if self._process else set()
        stats = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                stats[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        for _ in range(5):
            children |= {pid for pid, parent in stats.items() if parent in children}
        for pid in sorted(children):
            with contextlib.suppress(OSError):
                if command in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    pids.append(pid)
        return pids

    def kill_stub(self, number: int = 0, sent_signal: signal.Signals = signal.SIGKILL) -> None:
        """End one of the container's Python stub processes."""
        os.kill(self.pids("triton_python_backend_stub")[number], sent_signal)

    async def order_restart(self) -> None:
        """Write the operator's order into the pod's volume, as the kubelet does after the annotation has changed."""
        self.times["ordered"] = time.monotonic()
        await asyncio.sleep(ORDER_DELAY_S)
        self._order += 1
        (self.home / "orders" / "restart").write_text(str(self._order))
        self.times["arrived"] = time.monotonic()

    async def run_kubelet(self, session: aiohttp.ClientSession) -> None:
        """Probe the container, and restart it if it has ended or as the rendered probes say, until cancelled."""
        container = rendered()
        # The kubelet runs each probe by itself: one that gets no response delays no other.
        readiness = asyncio.create_task(self._run_readiness(session, container["readinessProbe"]))
        try:
            await self._run_liveness(session, container["livenessProbe"])
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)

    async def _run_readiness(self, session: aiohttp.ClientSession, probe: Mapping[str, Any]) -> None:
        failures = 0
        while True:
            await asyncio.sleep(probe["periodSeconds"])
            restarts = self.restarts
            loaded = await self._get(session, probe["httpGet"]["path"], probe["timeoutSeconds"])
            failures = 0 if loaded else failures + 1
            if restarts == self.restarts and not self._is_stopping:
                self.ready = loaded or (self.ready and failures < probe["failureThreshold"])
                self._has_started = self._has_started or loaded

    async def _run_liveness(self, session: aiohttp.ClientSession, probe: Mapping[str, Any]) -> None:
        failures, backoff_s, began = 0, 0.0, time.monotonic()
        while True:
            await asyncio.sleep(probe["periodSeconds"])
            if self._has_started:
                lives = await self._get(session, probe["httpGet"]["path"], probe["timeoutSeconds"])
                failures = 0 if lives else failures + 1
            has_ended = self._process is not None and self._process.poll() is not None
            if failures < probe["failureThreshold"] and not has_ended:
                continue
            self.ready, self._is_stopping = False, True
            self.times["ended"] = time.monotonic()
            if not has_ended:
                # The kubelet's minimum after SIGTERM is 2 s.
                await asyncio.sleep(probe["terminationGracePeriodSeconds"] + 2.0)
            await asyncio.to_thread(self.stop)
            await asyncio.sleep(backoff_s)
            backoff_s = 0.0 if time.monotonic() - began > 600 else min(max(10.0, 2 * backoff_s), 300.0)
            self.restarts, failures, began = self.restarts + 1, 0, time.monotonic()
            self._has_started = self._is_stopping = False
            self.start()
            self.times["restarted"] = time.monotonic()

    async def _get(self, session: aiohttp.ClientSession, path: str, timeout_s: float) -> bool:
        url = f"http://{self.address}:{HTTP_PORT}{path}"
        try:
            # The kubelet keeps no connection open, and a Triton that stops still serves open ones.
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with session.get(url, timeout=timeout, headers={"Connection": "close"}) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


@dataclass
class Events:
    """Events in the order in which the operator records them."""

    recorded: list[NewEvent] = field(default_factory=list)

    def record(self, _: object, new: NewEvent) -> bool:
        """Keep an event."""
        self.recorded.append(new)
        return True


@dataclass
class _Api:
    """The API server's part: writes to pods."""

    fleet: Fleet
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def patch(self, _kind: object, _namespace: str, name: str, _body: object) -> None:
        task = asyncio.create_task(self.fleet.pods[name].order_restart())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def evict(self, _namespace: str, pod: Object) -> None:
        self.fleet.evicted.append(str(pod["metadata"]["name"]))


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


@dataclass
class Fleet:
    """Pods of one model, two agents and the operator."""

    pods: dict[str, ServerPod]
    agents: list[DeadBackends] = field(default_factory=lambda: [DeadBackends(), DeadBackends()])
    events: Events = field(default_factory=Events)
    out_at: dict[str, float] = field(default_factory=dict)
    """Time at which every agent had taken the pod out, first time only."""
    ever_out: set[str] = field(default_factory=set)
    """Pods that any agent has taken out at any time."""
    failed_at: dict[str, float] = field(default_factory=dict)
    """Time of the first failed request by pod."""
    failing: dict[str, str] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    loads: dict[str, PodRequests] = field(default_factory=dict)
    """Requests of the first agent's balancer, by address."""
    _turn: int = 0

    def candidates(self) -> list[ServerPod]:
        """Return the pods that take requests."""
        out = self.agents[0].out
        return [pod for pod in self.pods.values() if pod.ready and pod.name not in out]

    async def infer(self, session: aiohttp.ClientSession, value: float, timeout_s: float = 60.0) -> int:
        """Send a request to the next pod, wait for one if there is none, and return the status; 0 if the connection failed."""
        while not (candidates := self.candidates()):  # noqa: ASYNC110 - pods change in several places
            await asyncio.sleep(0.05)
        self._turn += 1
        return await self.send(session, candidates[self._turn % len(candidates)], value, timeout_s)

    async def send(self, session: aiohttp.ClientSession, pod: ServerPod, value: float, timeout_s: float = 60.0) -> int:
        """Send a request to this pod, and return the status; 0 if the connection failed."""
        with self.counted(pod) as statuses:
            statuses.append(await infer(session, pod, value, timeout_s))
        if statuses == [500]:
            self.failed_at.setdefault(pod.name, time.monotonic())
        return statuses[0]

    @contextlib.contextmanager
    def counted(self, pod: ServerPod) -> Iterator[list[int]]:
        """Count a request as a balancer does; the block adds the status to the list, 0 if there was no response."""
        statuses: list[int] = []
        self._add(pod, 1, 0)
        try:
            yield statuses
        finally:
            self._add(pod, -1, int(any(statuses)))

    def _add(self, pod: ServerPod, inflight: int, answered: int) -> None:
        before = self.loads.get(pod.address, PodRequests(0, 0))
        self.loads[pod.address] = PodRequests(before.inflight + inflight, before.answered + answered)

    async def run_agent(self, number: int, session: aiohttp.ClientSession) -> None:
        """Sample and examine the pods as an agent does."""
        dead = self.agents[number]
        client = TritonClient(session, MODEL, HTTP_PORT, METRICS_PORT)
        sampler, probes = PodSampler(client, time.time), BackendProbes(client, dead, time.monotonic, self.note)
        await asyncio.sleep(0.4 * number)
        try:
            while True:
                began = time.monotonic()
                endpoints = [pod.endpoint for pod in self.pods.values()]
                samples = await sampler.sample(endpoints)
                suspects = dead.update(endpoints, samples, time.monotonic(), self.loads if number == 0 else None)
                probes.examine(endpoints, suspects)
                self.note()
                interval_s = SUSPECT_SAMPLE_INTERVAL_S if suspects else SAMPLE_INTERVAL_S
                await asyncio.sleep(max(began + interval_s - time.monotonic(), 0.0))
        finally:
            await probes.close()

    def note(self) -> None:
        """Note which pods are out."""
        now = time.monotonic()
        for name in self.pods:
            states = [name in agent.out for agent in self.agents]
            if any(states):
                self.ever_out.add(name)
            if all(states):
                self.out_at.setdefault(name, now)
        for agent in self.agents:
            self.failing |= {n: reason for n, reason in agent.failures.items() if n not in agent.dead}

    async def run_operator(self) -> None:
        """Restart pods as the operator does."""
        restarts = BackendRestart(cast("Kube", _Api(self)), cast("EventRecorder", self.events), _Clock())
        while True:
            dead = {name: reason for agent in self.agents for name, reason in agent.dead.items() if name in agent.out}
            resource = {"metadata": {"namespace": "default", "name": MODEL, "uid": SUBJECT.uid}}
            scope = Scope(
                resource,
                cast("Site", None),
                {},
                pods=tuple(_object(pod) for pod in self.pods.values()),
                signals=Signals(dead=dead),
            )
            await restarts.repair(scope)
            await asyncio.sleep(0.2)


def _object(pod: ServerPod) -> dict[str, Any]:
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(pod.ready)}],
        "containerStatuses": [{"name": names.TRITON, "restartCount": pod.restarts}],
    }
    manifest = {
        "metadata": {"namespace": "default", "name": pod.name, "uid": pod.name, "resourceVersion": "1"},
        "status": status,
    }
    return pods.project(manifest)


async def infer(session: aiohttp.ClientSession, pod: ServerPod, value: float, timeout_s: float = 60.0) -> int:
    """Send a request with this value to a pod, and return the status; 0 if the connection failed."""
    url = f"http://{pod.address}:{HTTP_PORT}/v2/models/{MODEL}/infer"
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [value]}]})
    try:
        async with session.post(url, data=body, timeout=aiohttp.ClientTimeout(total=timeout_s)) as response:
            return response.status
    except (aiohttp.ClientError, OSError, TimeoutError):
        return 0


@contextlib.asynccontextmanager
async def running(
    folder: Path, count: int, files: Mapping[str, str], *, memory_bytes: int | None = None
) -> AsyncIterator[tuple[Fleet, aiohttp.ClientSession]]:
    """Start this many pods, agents and the operator, and yield them when all pods are ready."""
    server_pods = [ServerPod(f"m-a-7d9f8b6c5d-{number:05}", folder / str(number)) for number in range(count)]
    fleet = Fleet({pod.name: pod for pod in server_pods})
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks: list[asyncio.Task[None]] = []
        try:
            for pod in server_pods:
                pod.prepare(files)
                if memory_bytes is not None:
                    pod.limit_memory(memory_bytes)
                pod.start()
                tasks.append(asyncio.create_task(pod.run_kubelet(session)))
            async with asyncio.timeout(120):
                while not all(pod.ready for pod in server_pods):  # noqa: ASYNC110 - the same
                    await asyncio.sleep(0.1)
            tasks += [asyncio.create_task(fleet.run_agent(number, session)) for number in range(2)]
            tasks.append(asyncio.create_task(fleet.run_operator()))
            yield fleet, session
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for pod in server_pods:
                pod.stop()
                if pod.cgroup is not None:
                    await asyncio.sleep(0.5)  # the kernel needs a moment to see that the cgroup is empty
                    pod.cgroup.rmdir()
