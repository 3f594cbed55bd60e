"""The models of a namespace, reconciled with an API server in memory, whose writes reach the caches at once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from typing_extensions import override

from halcyon.api.conditions import Reason
from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import CONFIG_MAP, MODEL_DEPLOYMENT, Key, Kind
from halcyon.render import gpu, names
from halcyon.render.site import Site
from tests.clocks import DrivenClock
from tests.unit.control.reconcilers import reconciler, scope_builder
from tests.unit.control.scope_builders import PVC, resource
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.render.rendered import SITE


class Api(MemoryKube):
    """An API server whose writes reach the caches at once.

    GETs wait for `answer` if it is set, and writes fail if requested.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caches = ClusterState(self, enqueue=lambda _: None)
        self.models_read: set[str] = set()
        """Models for which objects were read."""
        self.answer: asyncio.Event | None = None
        self.errors: dict[str, Exception] = {}
        """Error for writes, by kind."""
        self.accepted: dict[str, str] = {}
        """Reason of the condition Accepted, by model."""
        self.most = 0
        """Maximum number of GPUs requested by all Deployments of model pods together."""

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.models_read.add(name.partition("-")[0])
        if self.answer is not None:
            await self.answer.wait()
        if error := self.errors.get("GET"):
            raise error
        return await super().get(kind, namespace, name)

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        await asyncio.sleep(0)
        name = obj["metadata"]["name"]
        if subresource == "status":
            (accepted,) = (c for c in obj["status"]["conditions"] if c["type"] == "Accepted")
            self.accepted[name] = accepted["reason"]
            return obj | {"metadata": obj["metadata"] | {"resourceVersion": "1"}}
        if error := self.errors.get(kind.kind):
            raise error
        self._check((kind, "team", name), obj["metadata"])
        before = self.objects.get((kind, "team", name), {"metadata": {}})["metadata"].get("uid")
        stored = self._put(
            (kind, "team", name), obj | {"metadata": obj["metadata"] | ({"uid": before} if before else {})}
        )
        self.caches.children[kind]._store(Key("team", name), stored)
        self.caches.children[kind]._scopes[""].seen = int(stored["metadata"]["resourceVersion"])
        self.most = max(self.most, self.gpus())
        return stored

    def gpus(self) -> int:
        """Return the GPUs requested by all Deployments of model pods."""
        deployments = [obj for (kind, _, _), obj in self.objects.items() if kind.kind == "Deployment"]
        return sum(gpu.count(d["spec"]["template"]) * d["spec"]["replicas"] for d in deployments)


class Team:
    """A namespace, and the operator components that manage it."""

    def __init__(self, site: Site = SITE, *, api: Api | None = None) -> None:
        self.api = api or Api()
        caches = self.caches = self.api.caches
        caches.resources._scopes[""].seen = 1
        self.spec_of = AcceptedSpecs(caches)
        limited = site.policy.limits.gpus_per_namespace is not None
        self.gpus = GpuReservations(caches, self.spec_of, lambda _: None, limited=limited)
        claim = {"metadata": {"namespace": "team", "name": "models", "resourceVersion": "1"}}
        caches.claims._store(Key("team", "models"), claim)
        later = itertools.count(1000.0, 60.0).__next__
        self.recorder = EventRecorder(self.api, instance="op", clock=DrivenClock(lambda: 1000.0))
        clock = DrivenClock(later)
        scopes = scope_builder(
            self.api, caches, site=site, specs=self.spec_of, reservations=self.gpus, clock=DrivenClock(lambda: 1000.0)
        )
        self.reconciler = reconciler(self.api, scopes, self.recorder, clock)
        self._versions = itertools.count(1)

    def ask(self, name: str, *, uid: str = "", **spec: Any) -> None:
        """Create or change a ModelDeployment."""
        document = resource({"model": {"source": PVC}, "replicas": 1} | spec)
        document["metadata"] |= {"name": name, "uid": uid or f"u-{name}", "resourceVersion": str(next(self._versions))}
        self.api.objects[MODEL_DEPLOYMENT, "team", name] = document
        self.caches.resources._store(Key("team", name), document)

    def delete(self, name: str) -> None:
        """Delete a ModelDeployment, without its children."""
        self.api.objects.pop((MODEL_DEPLOYMENT, "team", name), None)
        self.caches.resources._store(Key("team", name), None)

    def seen(self, kind: Kind, name: str, obj: Object | None) -> None:
        """Update the caches after another writer has changed or deleted an object."""
        if obj is None:
            self.api.objects.pop((kind, "team", name), None)
        stored = None if obj is None else self.api._put((kind, "team", name), obj)
        self.caches.children[kind]._store(Key("team", name), stored)

    def accepted_text(self, name: str) -> str:
        """Return the text of the accepted spec in the ConfigMap."""
        text: str = self.api.objects[CONFIG_MAP, "team", names.balancer(name)]["data"]["accepted.json"]
        return text

    def write_accepted(self, name: str, text: str) -> None:
        """Write to the ConfigMap of the accepted spec, as a tenant."""
        config_map = self.api.objects[CONFIG_MAP, "team", names.balancer(name)]
        self.seen(CONFIG_MAP, names.balancer(name), config_map | {"data": config_map["data"] | {"accepted.json": text}})

    async def reconcile(self, *models: str) -> None:
        """Reconcile all models concurrently. Their reads get responses only after all have sent one."""
        self.api.models_read.clear()
        self.api.answer = asyncio.Event()
        working = [asyncio.create_task(self.reconciler.reconcile(Key("team", name))) for name in models]
        for _ in range(100):
            await asyncio.sleep(0)
        self.api.answer.set()
        await asyncio.gather(*working)

    @property
    def accepted(self) -> list[str]:
        """Return the models whose spec was accepted."""
        return sorted(name for name, reason in self.api.accepted.items() if reason == Reason.ACCEPTED)

    def event_reasons(self) -> list[str]:
        """Return the reasons of the Events so far."""
        return [event["reason"] for event, _ in self.recorder._pending]
