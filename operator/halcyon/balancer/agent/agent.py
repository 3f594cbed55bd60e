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
from halcyon.balancer.runtime.rate_feedback import RateFeedback
from halcyon.balancer.runtime.runtime_api import HaproxyError, RuntimeSocket
from halcyon.balancer.telemetry import metrics_page, sampler
from halcyon.balancer.telemetry.arrival_surge import CONFIRM_INTERVAL_S, ArrivalSurge
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

PASS_INTERVAL_S = 2.0
"""Maximum time between two passes of the controller; each sample of the pods triggers one too."""
MIN_PASS_INTERVAL_S = 0.05
"""Minimum time between two passes triggered by endpoints or a plan: a single change takes effect at once, a burst together."""
HELD_POLL_INTERVAL_S = 0.15
"""Interval at which HAProxy is polled for held requests while no server is in use, so that they are reported at once."""
MIN_URGENT_INTERVAL_S = 1.0
"""Minimum time between two urgent reports."""
SAMPLE_INTERVAL_S = 1.0
SUSPECT_SAMPLE_INTERVAL_S = 0.5
_RESPONSE_TIMEOUT_S = 5.0
FORBIDDEN_TIMEOUT_S = 10.0
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
        self._controller = HaproxyController(self._runtime, settings.config, listen(settings), files=files(settings))
        self._plan: BalancerPlan | None = None
        self._slices: Mapping[str, Mapping[str, Any]] | None = None
        self._listed: tuple[Endpoint, ...] | None = None
        self._noticed = NoticedEndpoints()
        self._has_adopted = False
        self._dead = DeadBackends()
        self._samples: dict[str, ScrapedPod] = {}
        self._wake = asyncio.Event()
        self._replan = asyncio.Event()
        self._stream: ReportStream | None = None
        self._feedback = RateFeedback(self._controller.variables)
        self._surge = ArrivalSurge()
        self._held_total = 0
        self._reported_at = float("-inf")
        self._plan_errors = 0
        self._leaving_until = float("-inf")
        self._denials: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            KubeError: at startup, the API server forbids the agent's reads.
        """
        server = await probes.serve(self, host=self._settings.host, port=self._settings.port)
        self._read_copy()
        connector = aiohttp.TCPConnector(
            limit=sampler.MAX_CONCURRENT_READS + 4, keepalive_timeout=30, use_dns_cache=False
        )
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                loops = [
                    self._watch_plan(session),
                    self._follow_plan(session),
                    self._run_passes(),
                    self._check_permissions(),
                    _until(stop),
                ]
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
        return (
            None if self._controller.written else "; ".join(["the plan has not been read yet", *self._denials.values()])
        )

    def ready(self) -> str | None:
        """Return None if ready: HAProxy responds and runs a plan, and endpoints came from the API server or a previous agent."""
        if self._is_leaving():
            return "draining"
        if self._controller.is_shut:
            return self._controller.problem or "HAProxy is loading its first certificate"
        if not self._controller.answered_within(_RESPONSE_TIMEOUT_S):
            return "HAProxy does not respond"
        if self._endpoints is None and not self._has_adopted:
            return "; ".join(["EndpointSlices have not been read yet", *self._denials.values()])
        return None

    @property
    def _endpoints(self) -> tuple[Endpoint, ...] | None:
        """All pods of the slots; None while unknown."""
        return self._noticed.amend(self._listed, time.monotonic())

    @property
    def _problems(self) -> str:
        """Problems of this balancer, in sentences; empty if there are none."""
        return "; ".join(filter(None, [self._controller.problem, *self._denials.values()]))

    def metrics(self) -> str:
        """Return the page of `metrics_page`; HAProxy has its own exporter."""
        return metrics_page.page(
            metrics_page.PageInput(
                reading=self._controller.reading,
                endpoints=self._endpoints,
                samples=self._samples,
                maintenance=self._dead.pods,
                unplaced=len(self._controller.unplaced),
                reloads=self._controller.reloads,
                plan_errors=self._plan_errors,
                has_problem=bool(self._problems),
                expires=self._controller.expires,
                streams=self._stream.connected if self._stream else 0,
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
            while (await self._runtime.held_requests()).held:
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(HELD_POLL_INTERVAL_S)
        self._leaving_until = time.monotonic() + self._settings.stop_within_s

    def _is_leaving(self) -> bool:
        return time.monotonic() < self._leaving_until

    # Loops.

    async def _watch_plan(self, session: aiohttp.ClientSession) -> None:
        def take(kept: Mapping[str, str | None]) -> None:
            text = kept.get(self._settings.plan)
            # A ConfigMap that is gone changes nothing: the last accepted plan stays in force.
            if text is not None:
                self._accept_plan(text, keep=True)

        await Watch(
            session,
            self._access,
            f"/api/v1/namespaces/{self._settings.namespace}/configmaps",
            params={"fieldSelector": f"metadata.name={self._settings.plan}"},
            project=lambda item: (item.get("data") or {}).get(PLAN_KEY),
            on_change=take,
            on_denied=self._denial_callback("the plan"),
        ).run()

    def _denial_callback(self, resource: str) -> Callable[[str], None]:
        """Return a callback that records the API server's reason why `resource` can't be read; an empty text clears it."""

        def on_denied(text: str) -> None:
            self._denials.pop(resource, None)
            if text:
                self._denials[resource] = f"{resource} can't be read: {text}; Role {self._settings.plan} must grant it"
            self._wake.set()

        return on_denied

    async def _check_permissions(self) -> None:
        """Fail if nothing can be read at startup; an agent that has a plan and endpoints keeps working."""
        clock = asyncio.get_running_loop().time
        known_at = clock()
        while True:
            is_known = self._plan is not None and (self._endpoints is not None or self._has_adopted)
            if is_known or not self._denials:
                known_at = clock()
            elif clock() - known_at > FORBIDDEN_TIMEOUT_S:
                raise KubeError("; ".join(self._denials.values()))
            await asyncio.sleep(1)

    def _read_copy(self) -> None:
        # A container that restarts while the API server is unavailable still finds its plan.
        if self._plan_copy.exists():
            self._accept_plan(self._plan_copy.read_text(), keep=False)

    def _accept_plan(self, text: str, *, keep: bool) -> None:
        try:
            plan = BalancerPlan.from_json(text)
            if plan == self._plan:
                return
            self._controller.accept(plan)
        except (PlanError, ConfigError) as error:
            self._plan_errors += 1
            log("error", "the plan is invalid; the last valid one stays in force", error=str(error))
            return
        if keep:
            self._plan_copy.write_text(text)
        self._plan = plan
        self._replan.set()
        self._wake.set()

    async def _follow_plan(self, session: aiohttp.ClientSession) -> None:
        """Restart the tasks that depend on the plan whenever a change of it affects them."""
        tasks: list[asyncio.Future[None]] = []
        current: tuple[object, ...] = ()
        try:
            while True:
                plan = self._plan
                self._replan.clear()
                if plan is not None:
                    services = {slot.service: slot.name for slot in plan.slots}
                    inputs = (plan.namespace, plan.name, plan.model, plan.collector, tuple(services.items()))
                    if inputs != current:
                        await _end(tasks)
                        tasks = [
                            asyncio.ensure_future(self._watch_slices(session, plan.namespace, services)),
                            asyncio.ensure_future(self._sample_pods(session, plan)),
                        ]
                        self._stream = None
                        if plan.collector is not None:
                            tasks.append(asyncio.ensure_future(self._report(plan.collector)))
                        current = inputs
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
            on_denied=self._denial_callback("endpoints"),
        ).run()

    async def _report(self, collector: CollectorAddress) -> None:
        def take(notice: Notice) -> None:
            self._noticed.add(notice, time.monotonic())
            self._wake.set()

        stream = ReportStream(collector, self._settings.secrets / "halcyon/token", on_notice=take)
        self._stream = stream
        try:
            await stream.run()
        except (OSError, ValueError) as error:
            log("error", "the CA certificate of the collector can't be read; no reports are sent", error=str(error))
            await asyncio.Event().wait()

    async def _run_passes(self) -> None:
        while True:
            self._wake.clear()
            self._controller.variables.set({STOPPING: int(self._is_leaving())})
            await self._controller.run_pass(self._endpoints, out=self._dead.pods)
            if self._controller.reading is not None:
                self._has_adopted = self._has_adopted or self._controller.in_use > 0
            await asyncio.sleep(MIN_PASS_INTERVAL_S)
            await (self._wait(PASS_INTERVAL_S) if self._controller.in_use else self._wait_polling_held())

    async def _wait(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    async def _wait_polling_held(self) -> None:
        """Return when the next pass is due; report requests that find no server at once. Each poll costs HAProxy microseconds."""
        clock = asyncio.get_running_loop().time
        until = clock() + PASS_INTERVAL_S
        while clock() < until and not self._wake.is_set():
            await self._wait(HELD_POLL_INTERVAL_S)
            try:
                held_total = (await self._runtime.held_requests()).total
            except HaproxyError:
                return
            if self._controller.reading is None:
                return
            # A lower count: another process, and all requests that it counts are new.
            is_new, self._held_total = held_total != self._held_total and held_total > 0, held_total
            if is_new and clock() - self._reported_at >= MIN_URGENT_INTERVAL_S:
                self._reported_at = clock()
                await self._controller.run_pass(self._endpoints, out=self._dead.pods)
                self._publish(urgent=True)

    async def _sample_pods(self, session: aiohttp.ClientSession, plan: BalancerPlan) -> None:
        client = TritonClient(session, plan.model, self._settings.ports.server_http, self._settings.metrics_port)
        pod_sampler = sampler.PodSampler(client, time.time)
        clock = asyncio.get_running_loop().time
        # Counters of another plan's pods are not compared with; pods that were taken out stay out.
        self._dead = DeadBackends(self._dead.pods)
        next_s = clock()
        while True:
            known = self._endpoints or ()
            self._samples = await pod_sampler.sample(known)
            ejection = self._dead.look(known, self._samples, clock())
            if ejection.dead is not None:
                log(
                    "warning",
                    "the backend of a pod fails every request; the pod gets no more requests",
                    pod=ejection.dead,
                )
            # A report describes one moment: HAProxy is read right after the pods.
            await self._controller.run_pass(self._endpoints, out=self._dead.pods)
            await self._feedback.update(self._controller.reading, servers=self._controller.in_use, now=clock())
            self._publish(urgent=False)
            next_s = max(next_s + (SUSPECT_SAMPLE_INTERVAL_S if ejection.suspects else SAMPLE_INTERVAL_S), clock())
            if self._is_surge(clock()):
                await asyncio.sleep(CONFIRM_INTERVAL_S)
                await self._controller.run_pass(self._endpoints, out=self._dead.pods)
                self._publish(urgent=True)
            await asyncio.sleep(next_s - clock())

    def _is_surge(self, now: float) -> bool:
        """Return True if arrivals grew by more than chance explains; HAProxy is read again soon to confirm it."""
        reading = self._controller.reading
        return reading is not None and self._surge.add(reading.requests, process=reading.process, now=now)

    def _publish(self, *, urgent: bool) -> None:
        # Before the endpoints are known, a report would claim that there are no pods.
        if self._stream is None or self._plan is None or self._endpoints is None:
            return
        reading = self._controller.reading
        report = sampler.report(
            namespace=self._plan.namespace,
            name=self._plan.name,
            agent=self._settings.pod,
            at=time.time() if reading is None else reading.at,
            reading=reading,
            endpoints=self._endpoints,
            samples=self._samples,
            maintenance=self._dead.pods,
            problem=self._problems,
        )
        self._stream.publish(report, urgent=urgent)


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
