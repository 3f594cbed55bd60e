"""Many agents in one process, each with the real agent client, its own token, connection and phase.

The contents of their reports come from `stand_in`. The client decides when to send them: after a change, at most once a
second, else every 5 s. The state is polled once a second, and a second time if the load surges. Tokens are requested
from the API server as the kubelet does, for the ServiceAccount of each model's balancer.
"""

import asyncio
import json
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

LOOK_EVERY_S = 1.0
"""Interval in seconds at which an agent polls its balancer and its pods."""
_TOKENS_AT_ONCE = 4
_TOKEN_S = 3600


class Agents:
    """The agents, which send reports while this context is open."""

    def __init__(self, plane: Plane, counts: Counts, *, seed: int = 0, spread_s: float = LOOK_EVERY_S) -> None:
        """Create the agents, which send nothing before `begin`.

        Their polls are spread randomly over `spread_s` seconds.
        """
        self._spread_s = spread_s
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

    async def begin(self, wanted: Iterable[str], *, balancers: int = 1) -> None:
        """Start the agents of these models, one for each of `balancers` balancer pods, which must be ready.

        The agents of a model report the same pods, and equal parts of the requests.

        Raises:
            BenchError: a token is rejected, or the operator doesn't accept the connections.
        """
        limit = asyncio.Semaphore(_TOKENS_AT_ONCE)
        found = list(wanted)

        async def one(name: str, agent: str) -> tuple[CollectorAddress, Path]:
            async with limit:
                return await asyncio.to_thread(self._credentials, name, agent)

        pods = [(name, part, agent) for name in found for part, agent in enumerate(self._balancers(name, balancers))]
        told = await asyncio.gather(*(one(name, agent) for name, _, agent in pods))
        for (name, part, agent), (collector, token) in zip(pods, told, strict=True):
            if name not in self._models:
                self._models[name] = StandIn(self._counts.namespace_of(name), name)
            uplink = ReportStream(collector, token, resolve=_here)
            self._uplinks.append(uplink)
            speaking = self._speak(name, uplink, agent=agent, part=part, parts=balancers)
            self._tasks += [asyncio.create_task(uplink.run()), asyncio.create_task(speaking)]
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

    def check(self) -> None:
        """Raise the error with which an agent has failed, if there is one."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _balancers(self, name: str, count: int) -> list[str]:
        ready = self._counts.balancers(name)
        if len(ready) < count:
            raise BenchError(f"{name} has {len(ready)} ready balancer pods, and {count} agents were asked for")
        return ready[:count]

    async def _speak(self, name: str, uplink: ReportStream, *, agent: str, part: int, parts: int) -> None:
        model = self._models[name]
        clock = asyncio.get_running_loop().time
        surge = ArrivalSurge()

        def look() -> AgentReport:
            seen = model.record(time.time(), self._counts.ready_servers(name), agent)
            return seen if parts == 1 else replace(seen, balancer=share(seen.balancer, part=part, parts=parts))

        due_s = clock() + self._draw.uniform(0.0, self._spread_s)
        while True:
            await asyncio.sleep(due_s - clock())
            seen = look()
            uplink.publish(seen)
            due_s = max(due_s + LOOK_EVERY_S, clock())
            requests = seen.balancer.requests if seen.balancer else 0
            if surge.add(requests, process=agent, now=clock()):
                await asyncio.sleep(CONFIRM_INTERVAL_S)
                uplink.publish(look(), urgent=True)

    def _credentials(self, name: str, agent: str) -> tuple[CollectorAddress, Path]:
        """Return the address for the model's reports, from its plan, and the file with its agent's token."""
        api, namespace = self._plane.cluster.api, self._counts.namespace_of(name)
        beside = names.balancer(name)
        plan = api.call("GET", kinds.CONFIG_MAP.path(namespace, beside))
        bound = {"kind": "Pod", "apiVersion": "v1", "name": agent}
        wish = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_S, "boundObjectRef": bound}}
        token = api.call("POST", kinds.SERVICE_ACCOUNT.path(namespace, beside, "token"), wish)
        if plan.body is None or token.body is None or token.status != 201:
            raise BenchError(
                f"no credentials for {beside}: the plan was answered {plan.status}, the token {token.status}"
            )
        told = json.loads(plan.body["data"]["plan.json"])["collector"]
        file = Path(self._folder.name) / agent
        file.write_text(token.body["status"]["token"])
        # The port in the plan is that of the operator's pods. In the benchmark the operator uses a different port.
        return CollectorAddress(**{**told, "port": self._plane.operator.port}), file


def share(whole: BalancerSample | None, *, part: int, parts: int) -> BalancerSample | None:
    """Return the sample of one of `parts` balancers among which the requests of a model are divided evenly."""
    if whole is None:
        return None
    divided = {name: (getattr(whole, name) + part) // parts for name in ("queued", "inflight", "requests")}
    return replace(whole, **divided)


async def _here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]
