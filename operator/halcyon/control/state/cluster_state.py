"""The caches of everything that the controller reads, and which ModelDeployments a change concerns.

Out of scope: writes of ours that the caches have yet to see (`own_writes`), and HPAs by their scale target (`external_hpas`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.schema import shape
from halcyon.control.objects import pods, resource_quotas
from halcyon.control.objects.child_names import every_child
from halcyon.control.state import external_hpas, route_conflicts
from halcyon.control.state.gateway_routes import GatewayRoutes
from halcyon.control.state.own_writes import OwnWrites
from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import FIELD_MANAGER, Kube, Object
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.informer import Informer, OnChange, drop_managed_fields
from halcyon.kube.kinds import CHILDREN, Key, Kind
from halcyon.kube.malformed_objects import Malformed
from halcyon.render import names

OURS = f"{names.MANAGER_LABEL}={names.MANAGER}"
QUOTA_WORD = "quota"
"""Index value of every ResourceQuota."""


MALFORMED = "malformed"
"""Key in a cached ModelDeployment: sentences about fields that were dropped because they are of the wrong type."""


MAX_SAID = 20
"""Maximum number of such sentences that are logged per object."""


def _ignore(_key: Key, _before: Object | None, _after: Object | None) -> None:
    """Do nothing: each decision reads the quotas anyway."""


def _pod_index(pod: Object) -> Iterable[str]:
    """Yield the index value of a pod: its owner's name for a server pod, `balancer/NAME` for a balancer pod."""
    for owner in _owner_index(pod):
        yield owner if pods.is_server(pod) else f"balancer/{owner}"


def _owner_index(obj: Object) -> Iterable[str]:
    owner = (obj["metadata"].get("labels") or {}).get(names.OWNER_LABEL)
    return (owner,) if owner else ()


def source_words(resource: Object) -> Iterable[str]:
    """Yield the index values for the ConfigMap or PersistentVolumeClaim that a ModelDeployment's source refers to."""
    source = ((resource.get("spec") or {}).get("model") or {}).get("source") or {}
    if name := (source.get("configMap") or {}).get("name"):
        yield f"configmap/{name}"
    if name := (source.get("persistentVolumeClaim") or {}).get("claimName"):
        yield f"claim/{name}"


def _only_version(obj: Object) -> Object:
    meta = obj["metadata"]
    return {"metadata": {k: meta.get(k) for k in ("namespace", "name", "uid", "resourceVersion")}}


@dataclass
class ClusterState:
    """The informers, and the writes of ours that they have yet to see."""

    client: Kube
    enqueue: Callable[[Key], None]
    """Called with the key of every ModelDeployment that is affected by a change."""
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty: all."""
    walls: bool = False
    """Whether NetworkPolicies are created. Only then may the operator read them."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        """Create the informers; `run` starts them."""
        self.malformed = Malformed()
        self.own_writes = OwnWrites(self._cache_of, self.clock)
        self.resources = self._informer(
            kinds.MODEL_DEPLOYMENT,
            index=source_words,
            listener=self._resource_changed,
            selector="",
            project=_project_resource,
        )
        self.children: dict[Kind, Informer] = {
            kind: self._informer(kind, index=_owner_index, listener=self._child_changed)
            for kind in (*CHILDREN, *(kinds.WALLS if self.walls else ()))
            if kind is not kinds.HPA
        }
        # An external HPA is found by its scale target.
        self.hpas = self._informer(
            kinds.HPA, index=external_hpas.scale_targets, listener=self._hpa_changed, selector=""
        )
        self.children[kinds.HPA] = self.hpas
        of_routes = {
            kind: self._informer(kind, index=_owner_index, listener=self._child_changed, project=_project_route)
            for kind in kinds.ROUTES
        }
        self.routes = GatewayRoutes(self.client, of_routes, on_found=self._enqueue_all, enqueue=self.enqueue)
        self.pods = self._informer(
            kinds.POD,
            index=_pod_index,
            listener=self._pod_changed,
            selector=f"{OURS},{names.COMPONENT_LABEL} in ({names.SERVER},{names.BALANCER})",
            project=pods.project,
        )
        self.quotas = self._informer(
            kinds.RESOURCE_QUOTA,
            index=lambda _: (QUOTA_WORD,),
            listener=_ignore,
            selector="",
            project=resource_quotas.project,
        )
        self.config_maps = self._source_informer(kinds.CONFIG_MAP, "configmap")
        self.claims = self._source_informer(kinds.PERSISTENT_VOLUME_CLAIM, "claim")

    @property
    def informers(self) -> list[Informer]:
        """Every informer except those of `routes`."""
        return [self.resources, *self.children.values(), self.pods, self.quotas, self.config_maps, self.claims]

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled."""
        return all(i.synced.is_set() for i in self.informers)

    def size(self) -> int:
        """Return the number of objects in all caches."""
        return sum(map(len, self.informers))

    def changes(self) -> int:
        """Return how many objects were added, changed or removed so far."""
        return sum(i.changes for i in self.informers)

    async def run(self) -> None:
        """Keep the caches filled until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
            group.create_task(self.routes.run(), name="routes")

    async def wait_synced(self) -> None:
        """Wait until every cache has been filled."""
        for informer in self.informers:
            await informer.synced.wait()

    def replicas(self, key: Key) -> int:
        """Return the replicas in force (spec.replicas) of a ModelDeployment."""
        # Below 0 only if it was stored past the schema: such replicas can be neither held nor granted.
        return max(int(((self.resources.get(key) or {}).get("spec") or {}).get("replicas", 1)), 0)

    def published_desired(self, key: Key) -> int | None:
        """Return the desired replicas in its status; None if there are none."""
        status = (self.resources.get(key) or {}).get("status") or {}
        desired = (status.get("scaling") or {}).get("desired")
        return desired if isinstance(desired, int) else None

    def unpublished_replicas(self, key: Key) -> int:
        """Return the replicas if the operator has written them and the status doesn't show them yet, else 0."""
        resource, replicas = self.resources.get(key) or {}, self.replicas(key)
        published = ((resource.get("status") or {}).get("scaling") or {}).get("current")
        is_ours = (resource.get("metadata") or {}).get("replicasWriter") == FIELD_MANAGER
        return replicas if is_ours and published != replicas else 0

    def wrote(self, owner: Key, kind: Kind, obj: Object) -> None:
        """Record a write of ours: no decision for `owner` is made before the cache has seen it."""
        self.own_writes.wrote(owner, kind, obj)

    def is_behind(self, owner: Key) -> bool:
        """Return whether the caches have yet to see a write of ours for this ModelDeployment."""
        return self.own_writes.is_behind(owner)

    def children_of(self, key: Key) -> dict[tuple[Kind, str], Object]:
        """Return the cached objects with names that a ModelDeployment's children have, whatever their owner."""
        return {
            (kind, name): child
            for kind, name in every_child(key.name)
            if (self.walls or kind not in kinds.WALLS)
            and (child := self._cache_of(kind).get(Key(key.namespace, name))) is not None
        }

    def owned(self, kind: Kind, key: Key, uid: str) -> list[Object]:
        """Return a ModelDeployment's own objects of a kind; `uid` is the ModelDeployment's."""
        return [obj for obj in self.children[kind].find(key.namespace, key.name) if belongs(obj, uid)]

    def forget_writes(self, owner: Key) -> None:
        """Drop the writes that the caches have yet to see for a ModelDeployment that was deleted."""
        self.own_writes.forget(owner)

    def _cache_of(self, kind: Kind) -> Informer:
        if kind in self.routes.informers:
            return self.routes.informers[kind]
        return self.resources if kind is kinds.MODEL_DEPLOYMENT else self.children[kind]

    def _enqueue_all(self) -> None:
        for key in self.resources.all_keys():
            self.enqueue(key)

    def _informer(
        self,
        kind: Kind,
        *,
        index: Callable[[Object], Iterable[str]],
        listener: OnChange,
        selector: str = OURS,
        project: Callable[[Object], Object] = drop_managed_fields,
    ) -> Informer:
        return Informer(
            self.client,
            kind,
            selector=selector,
            namespaces=self.namespaces,
            project=project,
            index=index,
            listeners=[listener],
            malformed=self.malformed,
        )

    def _source_informer(self, kind: Kind, word: str) -> Informer:
        def changed(key: Key, _before: Object | None, _after: Object | None) -> None:
            for resource in self.resources.find(key.namespace, f"{word}/{key.name}"):
                self.enqueue(Key(key.namespace, resource["metadata"]["name"]))

        return Informer(
            self.client,
            kind,
            metadata_only=True,
            namespaces=self.namespaces,
            project=_only_version,
            listeners=[changed],
            malformed=self.malformed,
        )

    def _resource_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if wrong := (after or {}).get(MALFORMED):
            self.malformed.note(kinds.MODEL_DEPLOYMENT.kind, key, "fields", "; ".join(wrong[:MAX_SAID]))
        else:
            self.malformed.clear(kinds.MODEL_DEPLOYMENT.kind, key, "fields")
        # The status as well: a write of ours that was thought lost may arrive after a newer one.
        if before is None or after is None or _asked(before) != _asked(after):
            self.enqueue(key)

    def _child_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        # Both: an edit of the label takes a child away from its former owner, which must be reconciled, too.
        for owner in {owner for obj in (before, after) if obj for owner in _owner_index(obj)}:
            self.enqueue(Key(key.namespace, owner))

    def _pod_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if not all(pods.is_server(pod) for pod in (before, after) if pod):
            # For balancers the Deployment's status is enough, except for the reason why a pod doesn't start.
            if unready_reason(before) != unready_reason(after):
                self._child_changed(key, before, after)
            return
        if before is None or after is None or _said(before) != _said(after):
            self._child_changed(key, before, after)

    def _hpa_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for hpa in (before, after):
            for target in external_hpas.scale_targets(hpa) if hpa else ():
                if (deployment := external_hpas.deployment_name(target)) is not None:
                    where = Key(key.namespace, deployment)
                    self._child_changed(where, None, self.children[kinds.DEPLOYMENT].get(where))
                else:
                    self.enqueue(Key(key.namespace, target))


def unready_reason(*found: Object | None) -> str:
    """Return the reason why one of these pods isn't ready, in a sentence; empty if there is none."""
    trouble = pods.failure(pod for pod in found if pod is not None)
    return f"pod {trouble.pod}: {trouble.message}" if trouble else ""


def _project_resource(resource: Object) -> Object:
    """Return a ModelDeployment without managedFields and malformed fields.

    The last writer of spec.replicas is kept from the former, and sentences about the latter.
    """
    found, wrong = shape.fitted(resource)
    meta = dict(found["metadata"])
    meta["replicasWriter"] = _writer_of_replicas(meta.pop("managedFields", ()))
    made = found | {"metadata": meta}
    return made | {MALFORMED: wrong} if wrong else made


def _project_route(route: Object) -> Object:
    """Return a route without managedFields. One that can't be read (another version of the Gateway API may differ) must fail here."""
    route_conflicts.same(route, route)
    return drop_managed_fields(route)


def _writer_of_replicas(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the field manager that set spec.replicas last; empty if none did."""
    owners = [e for e in entries if "f:replicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})]
    return str(max(owners, key=lambda e: str(e.get("time") or ""))["manager"]) if owners else ""


def _asked(resource: Object) -> tuple[Any, ...]:
    meta = resource["metadata"]
    asked = (meta.get("generation"), meta.get("labels"), meta.get("annotations"), meta.get("deletionTimestamp"))
    return (*asked, resource.get("status"))


def _said(pod: Object) -> tuple[Any, ...]:
    return pod["status"], pod["metadata"]["deletionTimestamp"], pod["metadata"]["labels"]
