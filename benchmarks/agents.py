"""Many agents in one process, each with the real agent client, its own token, connection and phase.

The contents of their reports come from `stand_in`. The client decides when to send them: after a change, at most once a
second, else every 5 s. The state is polled once a second, and a second time if the load surges. Tokens are requested
from the API server as the kubelet does, for the ServiceAccount of each model's balancer.
"""

import asyncio
import contextlib
import json
import math
import random
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.counts import Counts
from benchmarks.errors import BenchError
from benchmarks.plane import Plane
from benchmarks.stand_in import StandIn
from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.documents.observation_report import AUDIENCE, AgentReport, BalancerSample
from halcyon.balancer.telemetry.arrival_surge import CONFIRM_INTERVAL_S, ArrivalSurge
from halcyon.balancer.telemetry.report_stream import ReportStream
from halcyon.kube import kinds
from halcyon.render import names

POLL_INTERVAL_S = 1.0
"""Interval in seconds at which an agent polls its balancer and its pods."""
_ADDRESSES_A_NETWORK = 254
_TOKENS_AT_ONCE = 4
_TOKEN_S = 3600


class Agents:
    """The agents, which send reports while this context is open."""

    def __init__(
        self,
        plane: Plane,
        counts: Counts,
        *,
        seed: int = 0,
        spread_s: float = POLL_INTERVAL_S,
        idle_look_every_s: float = POLL_INTERVAL_S,
    ) -> None:
        """Create the agents, which send nothing before `begin`.

        Their polls are spread randomly over `spread_s` seconds. An agent whose model has no load polls every
        `idle_look_every_s` seconds, because thousands of agents share one process here. It sends as many reports as before.
        """
        self._spread_s, self._idle_look_every_s = spread_s, idle_look_every_s
        self._woken: dict[str, asyncio.Event] = {}
        """Event of each model that is set when the model's load changes."""
        self._lags_s: list[float] = []
        self._plane, self._counts = plane, counts
        self._models: dict[str, StandIn] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._uplinks: list[ReportStream] = []
        self._draw = random.Random(seed)
        self._folder = tempfile.TemporaryDirectory(prefix="halcyon-tokens-")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    @property
    def connected(self) -> int:
        """Return the number of open connections."""
        return sum(uplink.connected for uplink in self._uplinks)

    def take_lag_s(self) -> float:
        """Return the 99th percentile of the time by which polls were late since the last call.

        If it is large, this process is short of CPU time, and the measured times include its own delays.
        """
        lags_s, self._lags_s = sorted(self._lags_s), []
        return lags_s[int(0.99 * len(lags_s))] if lags_s else 0.0

    async def begin(self, models: Iterable[str], *, balancers: int = 1) -> None:
        """Start the agents of these models, one for each of `balancers` balancer pods, which must be ready.

        The agents of a model report the same pods, and equal parts of the requests.

        Raises:
            BenchError: a token is rejected, or the operator doesn't accept the connections.
        """
        limit = asyncio.Semaphore(_TOKENS_AT_ONCE)

        async def request_credentials(name: str, agent: str) -> tuple[CollectorAddress, Path]:
            async with limit:
                return await asyncio.to_thread(self._credentials, name, agent)

        pods = [(name, part, agent) for name in models for part, agent in enumerate(self._balancers(name, balancers))]
        credentials = await asyncio.gather(*(request_credentials(name, agent) for name, _, agent in pods))
        for (name, part, agent), (collector, token) in zip(pods, credentials, strict=True):
            if name not in self._models:
                self._models[name] = StandIn(self._counts.namespace_of(name), name)
                self._woken[name] = asyncio.Event()
            uplink = ReportStream(collector, token, resolve=_here, local_address=address(len(self._uplinks)))
            self._uplinks.append(uplink)
            reporting = self._report(name, uplink, agent=agent, part=part, parts=balancers)
            self._tasks += [asyncio.create_task(uplink.run()), asyncio.create_task(reporting)]
        end_s = time.monotonic() + 60
        while self.connected < len(self._uplinks):
            self.check()
            if time.monotonic() > end_s:
                raise BenchError(
                    f"{self.connected} of {len(self._uplinks)} agents are connected after 60 s\n"
                    f"{self._plane.operator.tail()}"
                )
            await asyncio.sleep(0.1)

    def set_rate(self, name: str, rate_rps: float) -> None:
        """Set the load of a model from now on."""
        self._models[name].set_rate(time.time(), rate_rps, self._counts.ready_servers(name))
        self._woken[name].set()
        self._woken[name] = asyncio.Event()

    def check(self) -> None:
        """Raise the error with which an agent has failed, if there is one."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _balancers(self, name: str, count: int) -> list[str]:
        ready = self._counts.balancers(name)
        if len(ready) < count:
            raise BenchError(f"{name} has {len(ready)} ready balancer pods, and {count} agents were requested")
        return ready[:count]

    async def _report(self, name: str, uplink: ReportStream, *, agent: str, part: int, parts: int) -> None:
        model = self._models[name]
        clock = asyncio.get_running_loop().time
        surge = ArrivalSurge()

        def poll() -> AgentReport:
            report = model.report(time.time(), self._counts.ready_servers(name), agent)
            return report if parts == 1 else replace(report, balancer=share(report.balancer, part=part, parts=parts))

        due_s = clock() + self._draw.uniform(0.0, self._spread_s)
        while True:
            await asyncio.sleep(due_s - clock())
            self._lags_s.append(clock() - due_s)
            report = poll()
            uplink.publish(report)
            due_s = max(due_s + POLL_INTERVAL_S, clock())
            if model.is_idle and self._idle_look_every_s > POLL_INTERVAL_S:
                # Polls keep their phase, so that a step of the load is noticed as late as by an agent that polls each second.
                resting_s = self._idle_look_every_s - POLL_INTERVAL_S
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(resting_s):
                        await self._woken[name].wait()
                due_s += POLL_INTERVAL_S * max(math.ceil((clock() - due_s) / POLL_INTERVAL_S), 0)
            requests = report.balancer.requests if report.balancer else 0
            if surge.add(requests, process=agent, now=clock()):
                await asyncio.sleep(CONFIRM_INTERVAL_S)
                uplink.publish(poll(), urgent=True)

    def _credentials(self, name: str, agent: str) -> tuple[CollectorAddress, Path]:
        """Return the address for the model's reports, from its plan, and the file with its agent's token."""
        api, namespace = self._plane.cluster.api, self._counts.namespace_of(name)
        balancer = names.balancer(name)
        plan = api.call("GET", kinds.CONFIG_MAP.path(namespace, balancer))
        pod = {"kind": "Pod", "apiVersion": "v1", "name": agent}
        request = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_S, "boundObjectRef": pod}}
        token = api.call("POST", kinds.SERVICE_ACCOUNT.path(namespace, balancer, "token"), request)
        if plan.body is None or token.body is None or token.status != 201:
            raise BenchError(
                f"no credentials for {balancer}: the plan was answered {plan.status}, the token {token.status}"
            )
        collector = json.loads(plan.body["data"]["plan.json"])["collector"]
        file = Path(self._folder.name) / agent
        file.write_text(token.body["status"]["token"])
        # The port in the plan is that of the operator's pods. In the benchmark the operator uses a different port.
        return CollectorAddress(**{**collector, "port": self._plane.operator.port}), file


def share(sample: BalancerSample | None, *, part: int, parts: int) -> BalancerSample | None:
    """Return the sample of one of `parts` balancers among which the requests of a model are divided evenly."""
    if sample is None:
        return None
    divided = {name: (getattr(sample, name) + part) // parts for name in ("queued", "inflight", "requests")}
    return replace(sample, **divided)


def address(number: int) -> str:
    """Return the loopback address of an agent. Addresses end with 1 to 254, and begin with 127.1."""
    network, last = divmod(number, _ADDRESSES_A_NETWORK)
    return f"127.{1 + network // 256}.{network % 256}.{1 + last}"


async def _here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]
