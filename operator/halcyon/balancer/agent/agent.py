"""The agent of one balancer pod.

Separate loops watch the plan and the EndpointSlices, configure HAProxy, sample the server pods, and send reports to the
operator. The loops share their state in a few fields of one object.

If a loop fails, the process exits and the kubelet restarts the container. HAProxy continues to serve during the
restart, and the new agent adopts the running state of HAProxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import aiohttp

from halcyon.balancer.agent import probes, readiness, slow_clients, tasks
from halcyon.balancer.agent.api_denials import ApiDenials
from halcyon.balancer.agent.drain import HELD_POLL_INTERVAL_S, BalancerDrain
from halcyon.balancer.agent.endpoint_watch import EndpointWatch
from halcyon.balancer.agent.front_end_checks import FrontEndChecks
from halcyon.balancer.agent.plan_watch import PlanWatch
from halcyon.balancer.agent.pod_shares import BALANCERS, PodShares
from halcyon.balancer.agent.settings import collector_of, files, listen
from halcyon.balancer.config.haproxy_cfg import STOPPING
from halcyon.balancer.discovery.kube_watch import ApiServerAccess
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.overload_limits import pod_statistics
from halcyon.balancer.runtime.rate_feedback import RateFeedback
from halcyon.balancer.runtime.runtime_api import RuntimeSocket
from halcyon.balancer.telemetry import metrics_page
from halcyon.balancer.telemetry.arrival_surge import CONFIRM_INTERVAL_S, ArrivalSurge
from halcyon.balancer.telemetry.balancer_sample import balancer_sample, pod_requests, users_report
from halcyon.balancer.telemetry.report_stream import ReportStream
from halcyon.triton import pod_sampler as sampler
from halcyon.triton.backend_probe import MAX_PROBES, BackendProbes
from halcyon.triton.client import TritonClient
from halcyon.triton.dead_backend import DeadBackends
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan, CollectorAddress
    from halcyon.api.documents.pod_notice import Notice
    from halcyon.balancer.agent.settings import AgentSettings
    from halcyon.triton.client import Endpoint

PASS_INTERVAL_S = 2.0
"""Maximum time between two passes of the HAProxy controller, in seconds. A pass also starts after each sample of the
server pods."""
MIN_PASS_INTERVAL_S = 0.05
"""Minimum time between two passes caused by changes of the endpoints or the plan, in seconds. A single change takes
effect at once. Changes that follow within this time are applied together by the next pass."""
MIN_URGENT_INTERVAL_S = 1.0
"""Minimum time between two urgent reports to the operator, in seconds."""
SAMPLE_INTERVAL_S = 1.0
SUSPECT_SAMPLE_INTERVAL_S = 0.5


class Agent:
    """Agent of the HAProxy that runs in the same pod."""

    def __init__(self, settings: AgentSettings, access: ApiServerAccess) -> None:
        """Create the agent without starting it."""
        run_dir = settings.run_dir
        self._settings = settings
        self._access = access
        self._runtime = RuntimeSocket(str(run_dir / "haproxy.sock"), str(run_dir / "master.sock"), settings.ports)
        self._shares = PodShares(settings)
        self._front_ends = FrontEndChecks(run_dir)
        self._controller = HaproxyController(
            self._runtime,
            settings.config,
            listen(settings),
            files=files(settings),
            concurrency=self._shares.concurrency,
        )
        self._endpoint_watch = EndpointWatch(access, self._accept_balancers)
        self._has_adopted = False
        self._dead = DeadBackends()
        self._samples: dict[str, sampler.ScrapedPod] = {}
        self._wake = asyncio.Event()
        self._plans = PlanWatch(settings, self._accept_plan)
        self._drain = BalancerDrain(self._runtime, settings.stop_within_s)
        self._denials = ApiDenials(settings.plan, self._wake.set)
        self._stream: ReportStream | None = None
        self._feedback = RateFeedback(self._controller.variables)
        self._surge = ArrivalSurge()
        self._held_total = 0
        self._has_proof = False
        """Whether a backend was found to be dead since the last report."""
        self._reported_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """Run all loops until `stop` is set.

        Raises:
            KubeError: the API server denies the agent access to the plan or the EndpointSlices at startup.
        """
        settings = self._settings
        server = await probes.serve(self, host=settings.host, port=settings.port, drain_key=settings.drain_key)
        self._plans.read_copy()
        connector = aiohttp.TCPConnector(
            # Probes of pods that hang must not use up the connections for samples.
            limit=sampler.MAX_CONCURRENT_READS + MAX_PROBES + 4,
            keepalive_timeout=30,
            use_dns_cache=False,
        )
        try:
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                loops = [
                    self._plans.run(session, self._access, self._denials.callback("the plan")),
                    self._follow_plan(session),
                    self._run_passes(),
                    self._denials.check(lambda: self._plan is not None and self._has_endpoints),
                    self._front_ends.run(),
                    slow_clients.run(self._runtime, self._controller),
                    tasks.until(stop),
                ]
                running = [asyncio.ensure_future(loop) for loop in loops]
                try:
                    await tasks.first(running)
                finally:
                    await tasks.end(running)
        finally:
            server.close()

    async def haproxy_ended(self) -> None:
        """Wait until HAProxy no longer responds."""
        with contextlib.suppress(HaproxyError):
            while True:
                await self._runtime.read()
                await asyncio.sleep(0.1)

    # The methods of `probes.Health`, for the HTTP server of the probes.

    def healthy(self) -> str | None:
        """Return the reason why HAProxy may not start yet; None if it may start.

        HAProxy may start once its configuration has been written.
        """
        return None if self._controller.written else "; ".join(["the plan has not been read yet", *self._denials.texts])

    def ready(self) -> str | None:
        """Return the reason why the balancer isn't ready; None if it is ready (`readiness.why_unready`)."""
        return readiness.why_unready(
            self._controller,
            self._front_ends,
            is_leaving=self._drain.is_leaving,
            knows_endpoints=self._has_endpoints,
            denials=self._denials.texts,
        )

    @property
    def _endpoints(self) -> tuple[Endpoint, ...] | None:
        """Server pods of all slots (the Deployments a and b); None while unknown."""
        return self._endpoint_watch.endpoints(time.monotonic())

    @property
    def _has_endpoints(self) -> bool:
        return self._endpoints is not None or self._has_adopted

    @property
    def _plan(self) -> BalancerPlan | None:
        return self._plans.plan

    @property
    def _problems(self) -> str:
        """Problems of this balancer as text, for the report to the operator; empty if there are none."""
        return "; ".join(filter(None, [self._controller.problem, *self._denials.texts]))

    def load(self) -> str:
        """Return the load of this balancer as JSON, which the agents of the other balancers read."""
        return self._shares.concurrency.own.to_json()

    def metrics(self) -> str:
        """Return the page with the agent's metrics. HAProxy exports its own metrics separately."""
        return metrics_page.page(
            metrics_page.PageInput(
                reading=self._controller.reading,
                endpoints=self._endpoints,
                samples=self._samples,
                maintenance=self._dead.out,
                unplaced=len(self._controller.unplaced),
                reloads=self._controller.reloads,
                plan_errors=self._plans.errors,
                has_problem=bool(self._problems),
                expires=self._controller.expires,
                streams=self._stream.connected if self._stream else 0,
                process=metrics_page.process(),
            )
        )

    async def drain(self, delay_s: float) -> None:
        """Make the balancer unready, disconnect its clients, and wait until the caller may stop HAProxy.

        The method returns after `delay_s`. While requests are held because no server is ready, it waits longer, up to
        the plan's drain time: a stopping HAProxy receives no new servers, so these requests would fail.

        If HAProxy is still running `stop_within_s` seconds after that, the balancer becomes ready again.
        """
        until = self._drain.begin(delay_s + (self._plan.drain_ms / 1000 if self._plan else 0.0))
        self._wake.set()
        await self._drain.finish(delay_s, until)

    def _accept_plan(self, plan: BalancerPlan) -> None:
        self._controller.accept(plan)
        self._wake.set()

    def _accept_balancers(self, balancers: tuple[Endpoint, ...]) -> None:
        self._shares.balancers = balancers
        self._wake.set()

    async def _follow_plan(self, session: aiohttp.ClientSession) -> None:
        """Run the tasks that depend on the plan, and restart a task if the plan changes in a way that affects it."""
        running: list[asyncio.Future[None]] = []
        current: tuple[object, ...] = ()
        try:
            while True:
                plan = self._plan
                self._plans.changed.clear()
                if plan is not None:
                    # The client Service, which has the model's name, lists the balancers.
                    services = {slot.service: slot.name for slot in plan.slots} | {plan.name: BALANCERS}
                    collector = collector_of(self._settings, plan)
                    inputs = (plan.namespace, plan.name, plan.model, collector, tuple(services.items()))
                    if inputs != current:
                        await tasks.end(running)
                        running = [
                            asyncio.ensure_future(
                                self._endpoint_watch.run(
                                    session, plan.namespace, services, self._denials.callback("endpoints")
                                )
                            ),
                            asyncio.ensure_future(self._sample_pods(session, plan)),
                            asyncio.ensure_future(self._shares.run(self._controller, self._limit_queue)),
                        ]
                        self._stream = None
                        if collector is not None:
                            running.append(asyncio.ensure_future(self._report(collector)))
                        current = inputs
                waiting = asyncio.ensure_future(tasks.until(self._plans.changed))
                try:
                    await tasks.first([*running, waiting])
                finally:
                    waiting.cancel()
        finally:
            await tasks.end(running)

    async def _report(self, collector: CollectorAddress) -> None:
        def take(notice: Notice) -> None:
            self._endpoint_watch.add(notice, time.monotonic())
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
            self._controller.variables.set({STOPPING: int(self._drain.is_leaving)})
            await self._controller.run_pass(self._endpoints, out=self._dead.out)
            if self._has_proof:
                # The operator restarts the container, so it must not wait for the next sample.
                self._publish(urgent=True)
            if self._controller.reading is not None:
                self._has_adopted = self._has_adopted or self._controller.in_use > 0
            await asyncio.sleep(MIN_PASS_INTERVAL_S)
            await (self._wait(PASS_INTERVAL_S) if self._controller.in_use else self._wait_polling_held())

    async def _wait(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    async def _wait_polling_held(self) -> None:
        """Wait until the next pass is due, and request an urgent report if HAProxy holds new requests.

        Polling HAProxy for held requests costs it a few microseconds each time.
        """
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
            # The counter of another HAProxy process starts at 0, so all requests in it are new.
            is_new, self._held_total = held_total != self._held_total and held_total > 0, held_total
            if is_new and clock() - self._reported_at >= MIN_URGENT_INTERVAL_S:
                self._reported_at = clock()
                await self._controller.run_pass(self._endpoints, out=self._dead.out)
                self._publish(urgent=True)

    async def _sample_pods(self, session: aiohttp.ClientSession, plan: BalancerPlan) -> None:
        ports, clock = self._settings.ports, asyncio.get_running_loop().time
        client = TritonClient(session, plan.model, ports.server_http, self._settings.metrics_port)
        # The pods of a changed plan are not compared with older counters. Dead pods stay in maintenance.
        self._dead = DeadBackends(self._dead.dead, self._dead.partial, self._dead.revisions)
        examinations = BackendProbes(client, self._dead, clock, on_dead=self._backend_died)
        try:
            await self._sample_repeatedly(client, plan, examinations)
        finally:
            await examinations.close()

    def _backend_died(self) -> None:
        self._has_proof = True
        self._wake.set()

    async def _sample_repeatedly(self, client: TritonClient, plan: BalancerPlan, examinations: BackendProbes) -> None:
        pod_sampler = sampler.PodSampler(client, time.time)
        clock = asyncio.get_running_loop().time
        next_s = clock()
        while True:
            pods, since = self._endpoints or (), clock()
            self._samples, _ = await asyncio.gather(pod_sampler.sample(pods), self._shares.read_facts(client, pods))
            metrics = {pod: read.metrics for pod, read in self._samples.items()}
            self._shares.concurrency.add_samples(metrics, since, clock() - since)
            suspects = self._dead.update(pods, self._samples, clock(), pod_requests(self._controller.reading))
            examinations.examine(pods, suspects)
            # Read HAProxy right after the pods, so that the report describes one moment.
            await self._controller.run_pass(self._endpoints, out=self._dead.out)
            statistics = {pod: pod_statistics(sample) for pod, sample in self._samples.items()}
            self._shares.sample(self._plan or plan, statistics)
            await self._feedback.update(
                self._plan or plan,
                self._controller.reading,
                statistics,
                servers=self._controller.in_use,
                now=clock(),
                share=self._shares.concurrency.share((self._plan or plan).balancers),
                instances=self._shares.concurrency.instances(self._plan or plan),
            )
            self._shares.concurrency.rejected_load = self._feedback.limits.rejected_load
            await self._limit_queue()
            self._publish(urgent=False)
            next_s = max(next_s + (SUSPECT_SAMPLE_INTERVAL_S if suspects else SAMPLE_INTERVAL_S), clock())
            if self._is_surge(clock()):
                await asyncio.sleep(CONFIRM_INTERVAL_S)
                await self._controller.run_pass(self._endpoints, out=self._dead.out)
                self._publish(urgent=True)
            await asyncio.sleep(next_s - clock())

    async def _limit_queue(self) -> None:
        """Set the limits on HAProxy's queue, from the latency objective and this balancer's share of the capacity."""
        plan, reading, concurrency = self._plan, self._controller.reading, self._shares.concurrency
        if plan is None or reading is None:
            return
        limits, servers = self._feedback.limits, self._controller.in_use
        capacity, share = limits.capacity, concurrency.share(plan.balancers)
        if limits.lasts:
            # With few requests per pod, the whole-number limits of balancers differ by more than their demand, and so do their rates.
            share = concurrency.served_share(plan.balancers) or share
        elsewhere = None if limits.lasts else concurrency.elsewhere(plan.balancers)
        sent, fills = concurrency.sent, concurrency.fills_servers(plan)
        bounded = limits.lasts or (concurrency.has_late and not fills)
        concurrency.objective_bound = (
            capacity.bound(servers, plan.balancers) if capacity is not None and servers and bounded else 0
        )
        values = limits.values(servers, share, 1 / plan.balancers, sent=sent, fills=fills, elsewhere=elsewhere)
        self._controller.variables.set(values | self._shares.room(plan, self._controller.classes, servers=servers))
        await self._controller.variables.write(reading.identity)

    def _is_surge(self, now: float) -> bool:
        """Return True if arrivals have grown by more than chance can explain.

        The caller then takes another sample soon, to confirm the growth.
        """
        reading = self._controller.reading
        return reading is not None and self._surge.add(reading.demand, process=reading.identity, now=now)

    def _publish(self, *, urgent: bool) -> None:
        # Until the endpoints are known, a report would state that there are no pods.
        if self._stream is None or self._plan is None or self._endpoints is None:
            return
        reading = self._controller.reading
        report = sampler.report(
            namespace=self._plan.namespace,
            name=self._plan.name,
            agent=self._settings.pod,
            at=time.time() if reading is None else reading.at,
            balancer=balancer_sample(reading, self._problems),
            endpoints=self._endpoints,
            samples=self._samples,
            maintenance=self._dead.out,
            backend_failures=self._dead.failures,
        )
        part = self._shares.concurrency.users_part if self._plan.has_lower_class else None
        self._stream.publish(users_report(report, part), urgent=urgent or self._has_proof)
        self._has_proof = False
