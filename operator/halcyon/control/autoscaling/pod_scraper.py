"""Scraping of server pods by the operator once a second, for models without balancers and therefore without agents.

Models are scraped at different times within the second. A model with pods that don't respond takes 1.6 s. Other models
are delayed only if at least `MAX_AT_ONCE` models have such pods. With 200 of them, each model is scraped every 5 s.

Both replicas of the operator scrape, so that the standby has current data when it becomes the leader. The samples are
stored as if an agent named `scrape` had reported them. After a change of its routing mode, a model is scraped once its
last balancer is gone, because until then the balancers' agents report.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field, replace

import aiohttp

from halcyon.api.rollout_status import routed_name
from halcyon.api.spec import routing_mode
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.decider import SCRAPE
from halcyon.control.autoscaling.poll_schedule import PollSchedule
from halcyon.control.autoscaling.scraped_demand import ScrapedDemand
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import balancers
from halcyon.kube.client import Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.render.model_overlay import model_name
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import validate
from halcyon.triton import pod_sampler as sampler
from halcyon.triton.backend_probe import BackendProbes
from halcyon.triton.client import Endpoint, TritonClient
from halcyon.triton.dead_backend import DeadBackends
from halcyon.triton.pod_sampler import PodSampler

log = logging.getLogger(__name__)

EVERY_S = 1.0
TICK_S = 0.05
MAX_AT_ONCE = 64
"""Maximum number of models that are scraped at the same time."""


@dataclass
class _ScrapedModel:
    """State of one model whose server pods the operator scrapes."""

    model: str
    pod_sampler: PodSampler
    dead: DeadBackends
    """Detection of dead backends in the pods. Without a balancer, pods with a dead backend still receive requests until
    their containers restart."""
    probes: BackendProbes
    demand: ScrapedDemand = field(default_factory=ScrapedDemand)


@dataclass
class PodScraper:
    """Scraper of the server pods of all models without balancers."""

    caches: ClusterState
    hub: ObservationStore
    specs: SpecsInForce
    clock: Clock
    http_port: int = names.HTTP_PORT
    metrics_port: int = names.METRICS_PORT

    _models: dict[Key, _ScrapedModel] = field(default_factory=dict)

    async def run(self) -> None:
        """Scrape server pods until cancelled."""
        # Set no connection limit: pods that don't respond would use it up, so that others would seem unreachable. The number of
        # connections is bounded by `MAX_AT_ONCE`, and by the sampler's limit on pods of a model that are read at a time.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            slots, schedule = asyncio.Semaphore(MAX_AT_ONCE), PollSchedule[Key](EVERY_S)
            listed_at = -math.inf
            async with asyncio.TaskGroup() as group:
                while True:
                    now = self.clock.monotonic()
                    if now - listed_at >= EVERY_S:
                        listed_at = now
                        self._list(session)
                        schedule.keep(self._models, now)
                    for key in schedule.take(now):
                        group.create_task(self._turn(key, schedule, slots))
                    await asyncio.sleep(TICK_S)

    def _list(self, session: aiohttp.ClientSession) -> None:
        """Update the list of models whose pods are scraped. Models that stay in the list keep their samplers."""
        self._models = {key: self._model_of(key, model, session) for key, model in self._scraped_models()}

    async def _turn(self, key: Key, schedule: PollSchedule[Key], slots: asyncio.Semaphore) -> None:
        try:
            async with slots:
                if (scraped := self._models.get(key)) is not None:
                    await self._scrape(key, scraped)
        except Exception:
            # A failure for one model must not end the scraping of others.
            log.exception("cannot read the metrics of server pods", extra={"key": str(key)})
        finally:
            schedule.done(key)

    def _scraped_models(self) -> list[tuple[Key, str]]:
        models = []
        for key in self.caches.resources.all_keys():
            spec = self.specs.get(key)
            if spec is not None and routing_mode.is_direct(spec) and not balancers(self.caches, key):
                # Pods of an earlier revision have its name, for example after a rollback.
                routed = routed_name(self.caches.resources.get(key) or {})
                models.append((key, routed or model_name(key.name, spec)))
        return models

    def _model_of(self, key: Key, model: str, session: aiohttp.ClientSession) -> _ScrapedModel:
        scraped = self._models.get(key)
        if scraped is None or scraped.model != model:
            client = TritonClient(session, model, self.http_port, self.metrics_port)
            dead = DeadBackends()
            probes = BackendProbes(client, dead, self.clock.monotonic)
            scraped = _ScrapedModel(model, PodSampler(client, self.clock.wall), dead, probes)
        return scraped

    async def _scrape(self, key: Key, scraped: _ScrapedModel) -> None:
        servers = map(endpoint, self.caches.pods.find(key.namespace, key.name))
        endpoints = [server for server in servers if server is not None]
        samples = await scraped.pod_sampler.sample(endpoints)
        now = self.clock.monotonic()
        scraped.probes.examine(endpoints, scraped.dead.update(endpoints, samples, now))
        report = sampler.report(
            namespace=key.namespace,
            name=key.name,
            agent=SCRAPE,
            at=self.clock.wall(),
            endpoints=endpoints,
            samples=samples,
            maintenance=scraped.dead.out,
            backend_failures=scraped.dead.failures,
        )
        # Validate the samples, because a pod can report any value about itself.
        validated = validate(report).report
        self.hub.receive(replace(validated, balancer=scraped.demand.sample(validated.pods)), self.clock.monotonic())


def endpoint(pod: Object) -> Endpoint | None:
    """Return a server pod as an endpoint, like those of EndpointSlices; None if it has no address yet, or has ended."""
    address = pod["status"].get("podIP")
    leaving = pod["metadata"]["deletionTimestamp"] is not None
    if not address or not (leaving or pods.is_live(pod)):
        return None
    slot = str(pod["metadata"]["labels"].get(names.SLOT_LABEL, ""))
    return Endpoint(slot, pod["metadata"]["name"], address, serving=pods.is_ready(pod), terminating=leaving)
