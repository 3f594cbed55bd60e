"""The agent: it watches, applies, samples and reports, each in a loop of its own; the loops share a few plain fields.

If a loop fails, the process ends and the kubelet starts a new one. HAProxy keeps serving meanwhile, and the new agent adopts
the state it finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import aiohttp

from halcyon.api.documents.balancer_plan import PLAN_KEY, BalancerPlan, PlanError
from halcyon.balancer.agent import probes
from halcyon.balancer.agent.settings import files, listen
from halcyon.balancer.config.haproxy_cfg import STOPPING
from halcyon.balancer.config.writer import ConfigError
from halcyon.balancer.discovery import endpoint_slices
from halcyon.balancer.discovery.kube_watch import ApiServerAccess, KubeError, Watch
from halcyon.balancer.discovery.pod_notices import NoticedEndpoints
from halcyon.balancer.log import log
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.runtime.rate_feedback import Pacing
from halcyon.balancer.runtime.runtime_api import HaproxyError, RuntimeSocket
from halcyon.balancer.telemetry import metrics_page, sampler
from halcyon.balancer.telemetry.arrival_surge import CONFIRM_S, ArrivalSurge
from halcyon.balancer.telemetry.dead_backend import DeadBackends
from halcyon.balancer.telemetry.report_stream import ReportStream
from halcyon.balancer.telemetry.triton_client import TritonClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from halcyon.api.documents.balancer_plan import CollectorAddress
    from halcyon.api.documents.pod_notice import Notice
    from halcyon.balancer.agent.settings import AgentSettings
    from halcyon.balancer.runtime.server_assignment import Endpoint
    from halcyon.balancer.telemetry.sampler import ScrapedPod

TURN_S = 2.0
"""Maximum time between two passes of the controller; each sample of the pods triggers one too."""
STORM_S = 0.05
"""Minimum time between two passes triggered by endpoints or a plan: a single change takes effect at once, a burst together."""
KNOCK_S = 0.15
"""Interval at which HAProxy is polled for held requests while no server is in use, so that they are reported at once."""
URGENT_S = 1.0
"""Minimum time between two urgent reports."""
LOOK_S = 1.0
SUSPECT_LOOK_S = 0.5
_ANSWER_S = 5.0
REFUSED_S = 10.0
"""If the plan or the endpoints are missing and forbidden for this long, the agent exits; the pod status has the reason."""


class Agent:
    """The agent process of one HAProxy."""

    def __init__(self, settings: AgentSettings, access: ApiServerAccess) -> None:
        """Prepare the agent; nothing runs before `run`."""
        run_dir = settings.run_dir
        self._settings = settings
        self._access = access
        self._plan_copy = run_dir / "plan.json"
        self._runtime = RuntimeSocket(str(run_dir / "haproxy.sock"), str(run_dir / "master.sock"), settings.ports)
        self._pilot = HaproxyController(self._runtime, settings.config, listen(settings), files=files(settings))
        self._plan: BalancerPlan | None = None
        self._slices: Mapping[str, Mapping[str, Any]] | None = None
        self._listed: tuple[Endpoint, ...] | None = None
        self._noticed = NoticedEndpoints()
        self._took_over = False
        self._dead = DeadBackends()
        self._sightings: dict[str, ScrapedPod] = {}
        self._wake = asyncio.Event()
        self._replan = asyncio.Event()
        self._uplink: ReportStream | None = None
        self._pacing = Pacing(self._pilot.variables)
        self._surge = ArrivalSurge()
        self._came = 0
        self._told_at = float("-inf")
        self._plan_errors = 0
        self._leaving_until = float("-inf")
        self._refusals: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            KubeError: at startup, the API server forbids the agent's reads.
        """
        server = await probes.serve(self, host=self._settings.host, port=self._settings.port)
        self._read_copy()
        connector = aiohttp.TCPConnector(limit=sampler.MAX_AT_ONCE + 4, keepalive_timeout=30, use_dns_cache=False)
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                loops = [self._watch_plan(session), self._by_plan(session), self._turns(), self._rights(), _until(stop)]
                tasks = [asyncio.ensure_future(loop) for loop in loops]
                try:
                    await _first(tasks)
                finally:
                    await _end(tasks)
        finally:
            server.close()

    async def haproxy_is_gone(self) -> None:
        """Return when HAProxy no longer responds."""
        with contextlib.suppress(HaproxyError):
            while True:
                await self._runtime.read()
                await asyncio.sleep(0.1)

    # Called by the probes.

    def healthy(self) -> str | None:
        """Return None once there is a configuration and HAProxy may start, else the reason."""
        return None if self._pilot.written else "; ".join(["no plan yet", *self._refusals.values()])

    def ready(self) -> str | None:
        """Return None if ready: HAProxy responds and runs a plan, and endpoints came from the API server or a previous agent."""
        if self._is_leaving():
            return "draining"
        if self._pilot.is_shut:
            return self._pilot.trouble or "HAProxy takes over its first certificate"
        if not self._pilot.answered_within(_ANSWER_S):
            return "HAProxy does not answer"
        if self._endpoints is None and not self._took_over:
            return "; ".join(["EndpointSlices are not known yet", *self._refusals.values()])
        return None

    @property
    def _endpoints(self) -> tuple[Endpoint, ...] | None:
        """All pods of the slots; None while unknown."""
        return self._noticed.amend(self._listed, time.monotonic())

    @property
    def _trouble(self) -> str:
        """Problems of this balancer, in sentences; empty if there are none."""
        return "; ".join(filter(None, [self._pilot.trouble, *self._refusals.values()]))

    def metrics(self) -> str:
        """Return the page of `metrics_page`; HAProxy has its own exporter."""
        return metrics_page.page(
            metrics_page.PageInput(
                reading=self._pilot.reading,
                endpoints=self._endpoints,
                sightings=self._sightings,
                maintenance=self._dead.pods,
                unplaced=len(self._pilot.unplaced),
                reloads=self._pilot.reloads,
                plan_errors=self._plan_errors,
                in_trouble=bool(self._trouble),
                expires=self._pilot.expires,
                uplinks=self._uplink.connected if self._uplink else 0,
                process=metrics_page.process(),
            )
        )

    async def drain(self, delay_s: float) -> None:
        """Become unready and ask clients to disconnect; return when the caller may stop HAProxy.

        That is after `delay_s`. While requests are held for the first server, it is extended by at most the plan's drain time: a
        stopped HAProxy doesn't learn of new servers. If HAProxy isn't stopped then, everything is undone after `stop_within_s`. An
        agent that dies meanwhile loses the deadline: its successor knows of no stop, and asks no client to disconnect.
        """
        longest_s = delay_s + (self._plan.drain_ms / 1000 if self._plan else 0.0)
        until = time.monotonic() + longest_s
        self._leaving_until = max(self._leaving_until, until + self._settings.stop_within_s)
        self._wake.set()
        await asyncio.sleep(delay_s)
        with contextlib.suppress(HaproxyError):
            while (await self._runtime.knocks()).held:
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(KNOCK_S)
        self._leaving_until = time.monotonic() + self._settings.stop_within_s

    def _is_leaving(self) -> bool:
        return time.monotonic() < self._leaving_until

    # Loops.

    async def _watch_plan(self, session: aiohttp.ClientSession) -> None:
        def take(kept: Mapping[str, str | None]) -> None:
            text = kept.get(self._settings.plan)
            # A ConfigMap that is gone changes nothing: the last accepted plan stays in force.
            if text is not None:
                self._accept(text, keep=True)

        await Watch(
            session,
            self._access,
            f"/api/v1/namespaces/{self._settings.namespace}/configmaps",
            params={"fieldSelector": f"metadata.name={self._settings.plan}"},
            project=lambda item: (item.get("data") or {}).get(PLAN_KEY),
            on_change=take,
            on_refusal=self._hear("the plan"),
        ).run()

    def _hear(self, what: str) -> Callable[[str], None]:
        """Return a callback for the API server's reason why `what` can't be read; an empty text clears it."""

        def hear(text: str) -> None:
            self._refusals.pop(what, None)
            if text:
                self._refusals[what] = f"{what} can't be read: {text}; Role {self._settings.plan} is to grant it"
            self._wake.set()

        return hear

    async def _rights(self) -> None:
        """Fail if nothing can be read at startup; an agent that has a plan and endpoints keeps working."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while True:
            knows = self._plan is not None and (self._endpoints is not None or self._took_over)
            if knows or not self._refusals:
                since = clock()
            elif clock() - since > REFUSED_S:
                raise KubeError("; ".join(self._refusals.values()))
            await asyncio.sleep(1)

    def _read_copy(self) -> None:
        # A container that restarts while the API server is unavailable still finds its plan.
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
        """Restart the tasks that depend on the plan whenever a change of it affects them."""
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
            self._listed = endpoint_slices.merge(kept.values())
            self._wake.set()

        await Watch(
            session,
            self._access,
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            params={"labelSelector": f"{endpoint_slices.SERVICE_LABEL} in ({','.join(sorted(services))})"},
            project=lambda item: endpoint_slices.of_slice(item, slots=services),
            on_change=take,
            on_refusal=self._hear("endpoints"),
        ).run()

    async def _report(self, collector: CollectorAddress) -> None:
        def take(notice: Notice) -> None:
            self._noticed.hear(notice, time.monotonic())
            self._wake.set()

        uplink = ReportStream(collector, self._settings.secrets / "halcyon/token", on_notice=take)
        self._uplink = uplink
        try:
            await uplink.run()
        except (OSError, ValueError) as error:
            log("error", "the collector's certificate authority can't be read; nothing is reported", error=str(error))
            await asyncio.Event().wait()

    async def _turns(self) -> None:
        while True:
            self._wake.clear()
            self._pilot.variables.want({STOPPING: int(self._is_leaving())})
            await self._pilot.turn(self._endpoints, out=self._dead.pods)
            if self._pilot.reading is not None:
                self._took_over = self._took_over or self._pilot.in_use > 0
            await asyncio.sleep(STORM_S)
            await (self._woken(TURN_S) if self._pilot.in_use else self._woken_or_asked())

    async def _woken(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    async def _woken_or_asked(self) -> None:
        """Return when the next pass is due; report requests that find no server at once. Each poll costs HAProxy microseconds."""
        clock = asyncio.get_running_loop().time
        until = clock() + TURN_S
        while clock() < until and not self._wake.is_set():
            await self._woken(KNOCK_S)
            try:
                came = (await self._runtime.knocks()).came
            except HaproxyError:
                return
            if self._pilot.reading is None:
                return
            # A lower count: another process, and all requests that it counts are new.
            knocked, self._came = came != self._came and came > 0, came
            if knocked and clock() - self._told_at >= URGENT_S:
                self._told_at = clock()
                await self._pilot.turn(self._endpoints, out=self._dead.pods)
                self._offer(urgent=True)

    async def _looks(self, session: aiohttp.ClientSession, plan: BalancerPlan) -> None:
        client = TritonClient(session, plan.model, self._settings.ports.server_http, self._settings.metrics_port)
        eyes = sampler.PodSampler(client, time.time)
        clock = asyncio.get_running_loop().time
        # Counters of another plan's pods are not compared with; pods that were taken out stay out.
        self._dead = DeadBackends(self._dead.pods)
        next_s = clock()
        while True:
            known = self._endpoints or ()
            self._sightings = await eyes.look(known)
            verdict = self._dead.look(known, self._sightings, clock())
            if verdict.dead is not None:
                log(
                    "warning",
                    "a pod's backend answers nothing but failures; it gets no more requests",
                    pod=verdict.dead,
                )
            # A report describes one moment: HAProxy is read right after the pods.
            await self._pilot.turn(self._endpoints, out=self._dead.pods)
            await self._pacing.look(self._pilot.reading, servers=self._pilot.in_use, now=clock())
            self._offer(urgent=False)
            next_s = max(next_s + (SUSPECT_LOOK_S if verdict.suspects else LOOK_S), clock())
            if self._surges(clock()):
                await asyncio.sleep(CONFIRM_S)
                await self._pilot.turn(self._endpoints, out=self._dead.pods)
                self._offer(urgent=True)
            await asyncio.sleep(next_s - clock())

    def _surges(self, now: float) -> bool:
        """Return True if arrivals grew by more than chance explains; HAProxy is read again soon to confirm it."""
        reading = self._pilot.reading
        return reading is not None and self._surge.look(reading.requests, process=reading.process, now=now)

    def _offer(self, *, urgent: bool) -> None:
        # Before the endpoints are known, a report would claim that there are no pods.
        if self._uplink is None or self._plan is None or self._endpoints is None:
            return
        reading = self._pilot.reading
        record = sampler.record(
            namespace=self._plan.namespace,
            name=self._plan.name,
            agent=self._settings.pod,
            at=time.time() if reading is None else reading.at,
            reading=reading,
            endpoints=self._endpoints,
            sightings=self._sightings,
            maintenance=self._dead.pods,
            trouble=self._trouble,
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
