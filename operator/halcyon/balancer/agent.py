"""The agent: watches, turns, looks and reports, each in a loop of its own, joined by a few plain fields.

A loop that fails ends the process, and the kubelet starts a new one: HAProxy goes on meanwhile, and the new agent takes over
what it finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from halcyon.api.plan import PLAN_KEY, BalancerPlan, PlanError
from halcyon.balancer import dead_backend, endpoints, probes, sensor
from halcyon.balancer.dead_backend import Outcomes
from halcyon.balancer.haproxy_config import ConfigError, Listen, Ports
from halcyon.balancer.kube import Access, Watch
from halcyon.balancer.log import log
from halcyon.balancer.pilot import Pilot
from halcyon.balancer.runtime_socket import HaproxyError, RuntimeSocket
from halcyon.balancer.triton import TritonClient
from halcyon.balancer.uplink import Uplink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from halcyon.api.plan import Collector
    from halcyon.balancer.sensor import Sighting
    from halcyon.balancer.slots import Endpoint

TURN_S = 2.0
"""Longest time without a turn; each look brings one too."""
WAITING_TURN_S = 0.2
"""While no server is in use: a request that comes now must be told at once."""
LOOK_S = 1.0
SUSPECT_LOOK_S = 0.5
_ANSWER_S = 5.0
_STALE_DRAIN_S = 30.0


@dataclass(frozen=True)
class Settings:
    """Where the agent runs."""

    namespace: str
    plan: str
    """Name of the plan's ConfigMap."""
    pod: str
    """Name of this pod."""
    run_dir: Path = Path("/run/halcyon")
    port: int = 9100
    ports: Ports = field(default_factory=Ports)
    metrics_port: int = 8002
    """Triton's."""
    secrets: Path = Path("/var/run/secrets")
    """Holds `kubernetes.io/serviceaccount/` and `halcyon/token`."""
    host: str | None = None
    """Address of the probes; all where it is None."""


def has_ipv6() -> bool:
    """HAProxy can listen on IPv6 here."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


class Agent:
    """One process beside one HAProxy."""

    def __init__(self, settings: Settings, access: Access) -> None:
        """Nothing runs before `run`."""
        run_dir = settings.run_dir
        self._settings = settings
        self._access = access
        self._plan_copy = run_dir / "plan.json"
        self._runtime = RuntimeSocket(str(run_dir / "haproxy.sock"), str(run_dir / "master.sock"), settings.ports)
        listen = Listen(settings.ports, has_ipv6(), str(run_dir / "haproxy.sock"))
        self._pilot = Pilot(self._runtime, run_dir / "haproxy.cfg", listen)
        self._plan: BalancerPlan | None = None
        self._slices: Mapping[str, Mapping[str, Any]] | None = None
        self._endpoints: tuple[Endpoint, ...] | None = None
        self._took_over = False
        self._maintenance: frozenset[str] = frozenset()
        self._sightings: dict[str, Sighting] = {}
        self._wake = asyncio.Event()
        self._replan = asyncio.Event()
        self._uplink: Uplink | None = None
        self._refused = 0
        self._plan_errors = 0
        self._not_ready_until = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        server = await probes.serve(self, host=self._settings.host, port=self._settings.port)
        self._read_copy()
        connector = aiohttp.TCPConnector(limit=sensor.MOST_AT_ONCE + 4, keepalive_timeout=30, use_dns_cache=False)
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                loops = [self._watch_plan(session), self._by_plan(session), self._turns(), _until(stop)]
                tasks = [asyncio.ensure_future(loop) for loop in loops]
                try:
                    await _first(tasks)
                finally:
                    await _end(tasks)
        finally:
            server.close()

    async def haproxy_is_gone(self) -> None:
        """Return when HAProxy does not answer any more."""
        with contextlib.suppress(HaproxyError):
            while True:
                await self._runtime.read()
                await asyncio.sleep(0.1)

    # What the probes ask.

    def healthy(self) -> str | None:
        """HAProxy may start as soon as there is a configuration."""
        return None if self._pilot.written else "no plan yet"

    def ready(self) -> str | None:
        """Ready takes a HAProxy that answers and runs a plan, and endpoints: from the API server, or those of a former agent."""
        if time.monotonic() < self._not_ready_until:
            return "draining"
        if not self._pilot.answered_within(_ANSWER_S):
            return "HAProxy does not answer"
        if self._endpoints is None and not self._took_over:
            return "EndpointSlices are not known yet"
        return None

    def metrics(self) -> Mapping[str, float]:
        """Gauges about the agent itself; HAProxy has its own exporter."""
        return {
            "endpoints": len(self._endpoints or ()),
            "endpoints_known": float(self._endpoints is not None),
            "endpoints_unplaced": len(self._pilot.unplaced),
            "maintenance": len(self._maintenance),
            "plan_errors_total": self._plan_errors,
            "reloads_total": self._pilot.reloads,
            "uplinks": self._uplink.connected if self._uplink else 0,
        }

    async def drain(self, delay_s: float) -> None:
        """Not ready from now on; after `delay_s` the caller may stop HAProxy. Where it then isn't stopped, ready again."""
        self._not_ready_until = time.monotonic() + delay_s + _STALE_DRAIN_S
        await asyncio.sleep(delay_s)

    # Loops.

    async def _watch_plan(self, session: aiohttp.ClientSession) -> None:
        def take(kept: Mapping[str, str | None]) -> None:
            text = kept.get(self._settings.plan)
            # A ConfigMap that is gone says nothing: what was accepted last goes on.
            if text is not None:
                self._accept(text, keep=True)

        await Watch(
            session,
            self._access,
            f"/api/v1/namespaces/{self._settings.namespace}/configmaps",
            params={"fieldSelector": f"metadata.name={self._settings.plan}"},
            project=lambda item: (item.get("data") or {}).get(PLAN_KEY),
            on_change=take,
        ).run()

    def _read_copy(self) -> None:
        # A container that restarts while the API server is away still finds its plan.
        if self._plan_copy.exists():
            self._accept(self._plan_copy.read_text(), keep=False)

    def _accept(self, text: str, *, keep: bool) -> None:
        try:
            plan = BalancerPlan.from_json(text)
            if plan == self._plan:
                return
            self._pilot.accept(plan)
        except (PlanError, ConfigError) as error:
            self._plan_errors += 1
            log("error", "the plan is refused; the last good one stays in force", error=str(error))
            return
        if keep:
            self._plan_copy.write_text(text)
        self._plan = plan
        self._replan.set()
        self._wake.set()

    async def _by_plan(self, session: aiohttp.ClientSession) -> None:
        """What depends on the plan begins anew with each plan that changes it."""
        tasks: list[asyncio.Future[None]] = []
        begun: tuple[object, ...] = ()
        try:
            while True:
                plan = self._plan
                self._replan.clear()
                if plan is not None:
                    services = {slot.service: slot.name for slot in plan.slots}
                    wants = (plan.namespace, plan.name, plan.model, plan.collector, tuple(services.items()))
                    if wants != begun:
                        await _end(tasks)
                        tasks = [
                            asyncio.ensure_future(self._watch_slices(session, plan.namespace, services)),
                            asyncio.ensure_future(self._looks(session, plan)),
                        ]
                        self._uplink = None
                        if plan.collector is not None:
                            tasks.append(asyncio.ensure_future(self._report(plan.collector)))
                        begun = wants
                waiting = asyncio.ensure_future(_until(self._replan))
                try:
                    await _first([*tasks, waiting])
                finally:
                    waiting.cancel()
        finally:
            await _end(tasks)

    async def _watch_slices(self, session: aiohttp.ClientSession, namespace: str, services: Mapping[str, str]) -> None:
        def take(kept: Mapping[str, tuple[Endpoint, ...]]) -> None:
            self._endpoints = endpoints.merge(kept.values())
            self._wake.set()

        await Watch(
            session,
            self._access,
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            params={"labelSelector": f"{endpoints.SERVICE_LABEL} in ({','.join(sorted(services))})"},
            project=lambda item: endpoints.of_slice(item, slots=services),
            on_change=take,
        ).run()

    async def _report(self, collector: Collector) -> None:
        uplink = Uplink(collector, self._settings.secrets / "halcyon/token")
        self._uplink = uplink
        try:
            await uplink.run()
        except (OSError, ValueError) as error:
            log("error", "the collector's certificate authority can't be read; nothing is reported", error=str(error))
            await asyncio.Event().wait()

    async def _turns(self) -> None:
        while True:
            self._wake.clear()
            await self._pilot.turn(self._endpoints, out=self._maintenance)
            reading = self._pilot.reading
            if reading is not None:
                self._took_over = self._took_over or self._pilot.in_use
                if not self._pilot.in_use and (reading.queued or reading.refused > self._refused):
                    self._offer(urgent=True)
                self._refused = reading.refused
            try:
                async with asyncio.timeout(TURN_S if self._pilot.in_use else WAITING_TURN_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _looks(self, session: aiohttp.ClientSession, plan: BalancerPlan) -> None:
        client = TritonClient(session, plan.model, self._settings.ports.server_http, self._settings.metrics_port)
        eyes = sensor.Sensor(client, time.time)
        clock = asyncio.get_running_loop().time
        before: dict[str, Outcomes] = {}
        last_s: float | None = None
        next_s = clock()
        while True:
            known = self._endpoints or ()
            self._sightings = await eyes.look(known)
            after = {
                pod: Outcomes(seen.metrics.succeeded, seen.metrics.backend_failed)
                for pod, seen in self._sightings.items()
                if seen.metrics is not None
            }
            self._maintenance &= {endpoint.pod for endpoint in known}
            serving = {e.pod for e in known if e.serving and not e.terminating} - self._maintenance
            verdict = dead_backend.judge(before, after, serving=serving, last_s=last_s, now=clock())
            if verdict.dead is not None:
                log(
                    "warning",
                    "a pod's backend answers nothing but failures; it gets no more requests",
                    pod=verdict.dead,
                )
                self._maintenance |= {verdict.dead}
                last_s = clock()
            # A pod that did not answer this time is compared with what it said before.
            before = {pod: outcomes for pod, outcomes in {**before, **after}.items() if pod in self._sightings}
            # A record is of one moment: HAProxy is read right after the pods.
            await self._pilot.turn(self._endpoints, out=self._maintenance)
            self._offer(urgent=False)
            next_s = max(next_s + (SUSPECT_LOOK_S if verdict.suspects else LOOK_S), clock())
            await asyncio.sleep(next_s - clock())

    def _offer(self, *, urgent: bool) -> None:
        # Before the endpoints are known a record would say that there are no pods.
        if self._uplink is None or self._plan is None or self._endpoints is None:
            return
        record = sensor.record(
            namespace=self._plan.namespace,
            name=self._plan.name,
            agent=self._settings.pod,
            at=time.time(),
            reading=self._pilot.reading,
            endpoints=self._endpoints,
            sightings=self._sightings,
            maintenance=self._maintenance,
        )
        self._uplink.offer(record, urgent=urgent)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _first(tasks: Sequence[asyncio.Future[None]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
