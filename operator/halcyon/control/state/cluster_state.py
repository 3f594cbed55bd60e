"""Caches of all objects that the controller reads. If an object changes, the affected ModelDeployments are queued.

Out of scope: the operator's own writes that the caches don't show yet (`own_writes`), and scale targets of HPAs
(`external_hpas`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.conditions import Reason, Type
from halcyon.api.stored import shape
from halcyon.api.types import GROUP
from halcyon.control.objects import pods, resource_quotas
from halcyon.control.objects.child_names import every_child
from halcyon.control.state import external_hpas, route_conflicts
from halcyon.control.state.gateway_routes import GatewayRoutes
from halcyon.control.state.own_writes import OwnWrites
from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.informers.informer import Informer, OnChange, drop_managed_fields
from halcyon.kube.informers.malformed_objects import Malformed
from halcyon.kube.informers.shared_texts import SharedTexts
from halcyon.kube.kinds import CHILDREN, Key, Kind
from halcyon.render import names

OURS = f"{names.MANAGER_LABEL}={names.MANAGER}"
QUOTA_INDEX = "quota"
"""Index value that all ResourceQuotas share. It is used to look up the ResourceQuotas of a namespace."""
MALFORMED = "malformed"
"""Key of an additional entry in a cached ModelDeployment: messages about fields that were dropped because their values
have the wrong type."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CONFLICT = (Type.AUTOSCALER_CONFLICT, Reason.EXTERNAL_WRITER)
MAX_LOGGED_FIELDS = 20
"""Maximum number of messages about malformed fields that are logged per object."""


def _pod_index(pod: Object) -> Iterable[str]:
    """Yield the index value of a pod: the model's name for a server pod, and `balancer/NAME` for a balancer pod."""
    for owner in _owner_index(pod):
        yield owner if pods.is_server(pod) else f"balancer/{owner}"


def _owner_index(obj: Object) -> Iterable[str]:
    owner = (obj["metadata"].get("labels") or {}).get(names.OWNER_LABEL)
    return (owner,) if owner else ()


def source_index(resource: Object) -> Iterable[str]:
    """Yield the index value for the source of a ModelDeployment, if it is a ConfigMap or a PersistentVolumeClaim."""
    source = ((resource.get("spec") or {}).get("model") or {}).get("source") or {}
    if name := (source.get("configMap") or {}).get("name"):
        yield f"configmap/{name}"
    if name := (source.get("persistentVolumeClaim") or {}).get("claimName"):
        yield f"claim/{name}"


def _only_version(obj: Object) -> Object:
    meta = obj["metadata"]
    return {"metadata": {k: meta.get(k) for k in ("namespace", "name", "uid", "resourceVersion")}}


def _claim(obj: Object) -> Object:
    return _only_version(obj) | {"spec": {"accessModes": (obj.get("spec") or {}).get("accessModes") or []}}


@dataclass
class ClusterState:
    """Informers with their caches, and the operator's own writes that the caches don't show yet."""

    client: Kube
    enqueue: Callable[[Key], None]
    """Function that is called with the key of each ModelDeployment that a change affects."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; all namespaces if empty."""
    has_network_policies: bool = False
    """Whether the site enables NetworkPolicies. The operator has permission to read them only if it does."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        """Create the informers; `run` starts them."""
        self.malformed = Malformed()
        self.own_writes = OwnWrites(self._cache_of, self.clock)
        texts = SharedTexts()
        self.resources = self._informer(
            kinds.MODEL_DEPLOYMENT,
            index=source_index,
            listener=self._resource_changed,
            selector="",
            project=lambda resource: texts.share(_project_resource(resource)),
        )
        self.children: dict[Kind, Informer] = {
            kind: self._informer(kind, index=_owner_index, listener=self._child_changed, packed=True)
            for kind in (*CHILDREN, *(kinds.OPTIONAL if self.has_network_policies else ()))
            if kind is not kinds.HPA
        }
        # Cache all HPAs, not only Halcyon's: an external HPA is found by its scale target.
        self.hpas = self._informer(
            kinds.HPA, index=external_hpas.scale_targets, listener=self._hpa_changed, selector="", packed=True
        )
        self.children[kinds.HPA] = self.hpas
        routes = {
            kind: self._informer(kind, index=_owner_index, listener=self._child_changed, project=_project_route)
            for kind in kinds.ROUTES
        }
        self.routes = GatewayRoutes(routes, on_synced=self._enqueue_all, enqueue=self.enqueue)
        self.pods = self._informer(
            kinds.POD,
            index=_pod_index,
            listener=self._pod_changed,
            selector=f"{OURS},{names.COMPONENT_LABEL} in ({names.SERVER},{names.BALANCER})",
            project=pods.project,
        )
        self.quotas = self._informer(
            kinds.RESOURCE_QUOTA,
            index=lambda _: (QUOTA_INDEX,),
            listener=lambda *_: None,  # scaling decisions read the current quotas from the cache
            selector="",
            project=resource_quotas.project,
        )
        self.config_maps = self._source_informer(kinds.CONFIG_MAP, "configmap")
        self.claims = self._source_informer(kinds.PERSISTENT_VOLUME_CLAIM, "claim", project=_claim)

    @property
    def informers(self) -> list[Informer]:
        """All informers except those of Gateway API routes."""
        return [self.resources, *self.children.values(), self.pods, self.quotas, self.config_maps, self.claims]

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled."""
        return all(informer.synced.is_set() for informer in self.informers)

    def size(self) -> int:
        """Return the number of objects in all caches."""
        return sum(map(len, self.informers))

    def changes(self) -> int:
        """Return the number of additions, changes and removals of cached objects since the start."""
        return sum(informer.changes for informer in self.informers)

    async def run(self) -> None:
        """Keep the caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
            group.create_task(self.routes.run(), name="routes")

    async def wait_synced(self) -> None:
        """Wait until all caches have been filled."""
        for informer in self.informers:
            await informer.synced.wait()

    def replicas(self, key: Key) -> int:
        """Return the current number of replicas (spec.replicas) of a ModelDeployment."""
        # A negative number can only be stored by bypassing the schema; treat it as 0.
        return max(int(((self.resources.get(key) or {}).get("spec") or {}).get("replicas", 1)), 0)

    def published_desired(self, key: Key) -> int | None:
        """Return the desired replicas in the status of a ModelDeployment; None if the status has none."""
        status = (self.resources.get(key) or {}).get("status") or {}
        desired = (status.get("scaling") or {}).get("desired")
        return desired if isinstance(desired, int) else None

    def unpublished_replicas(self, key: Key) -> int:
        """Return spec.replicas if the status doesn't show this value yet, else 0."""
        status, replicas = (self.resources.get(key) or {}).get("status") or {}, self.replicas(key)
        return 0 if (status.get("scaling") or {}).get("current") == replicas else replicas

    def published_conflict(self, key: Key) -> str:
        """Return the message in the status about another writer of the replicas; empty if the status has none."""
        conditions = ((self.resources.get(key) or {}).get("status") or {}).get("conditions") or ()
        return next((str(c.get("message")) for c in conditions if (c.get("type"), c.get("reason")) == _CONFLICT), "")

    def children_of(self, key: Key) -> dict[tuple[Kind, str], Object]:
        """Return the cached objects, of any owner, that have the name of a child of this ModelDeployment."""
        return {
            (kind, name): child
            for kind, name in every_child(key.name)
            if (self.has_network_policies or kind not in kinds.OPTIONAL)
            and (child := self._cache_of(kind).get(Key(key.namespace, name))) is not None
        }

    def owned(self, kind: Kind, key: Key, uid: str) -> list[Object]:
        """Return the cached objects of a kind that a ModelDeployment owns. `uid` is the uid of the ModelDeployment."""
        return [obj for obj in self.children[kind].find(key.namespace, key.name) if belongs(obj, uid)]

    def owned_or_ownerless(self, kind: Kind, key: Key, uid: str) -> tuple[list[Object], list[Object]]:
        """Return the cached objects of a kind that a ModelDeployment owns, and those with its label but without an owner."""
        labelled = self.children[kind].find(key.namespace, key.name)
        owned = [obj for obj in labelled if belongs(obj, uid)]
        return owned, [obj for obj in labelled if not obj["metadata"].get("ownerReferences")]

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
        packed: bool = False,
    ) -> Informer:
        return Informer(
            self.client,
            kind,
            selector=selector,
            namespaces=self.namespaces,
            project=project,
            index=index,
            listeners=[listener],
            packed=packed,
            malformed=self.malformed,
        )

    def _source_informer(self, kind: Kind, name: str, *, project: Callable[[Object], Object] | None = None) -> Informer:
        """Return an informer for a kind of model source. Without `project`, it fetches and keeps only metadata."""

        def changed(key: Key, _before: Object | None, _after: Object | None) -> None:
            for resource in self.resources.find(key.namespace, f"{name}/{key.name}"):
                self.enqueue(Key(key.namespace, resource["metadata"]["name"]))

        return Informer(
            self.client,
            kind,
            metadata_only=project is None,
            namespaces=self.namespaces,
            project=project or _only_version,
            listeners=[changed],
            malformed=self.malformed,
        )

    def _resource_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if malformed := (after or {}).get(MALFORMED):
            self.malformed.note(kinds.MODEL_DEPLOYMENT.kind, key, "fields", "; ".join(malformed[:MAX_LOGGED_FIELDS]))
        else:
            self.malformed.clear(kinds.MODEL_DEPLOYMENT.kind, key, "fields")
        # Reconcile after a change of the status too: a late write by the operator may have overwritten a newer status.
        if before is None or after is None or _requested_state(before) != _requested_state(after):
            self.enqueue(key)

    def _child_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        # Enqueue both owners: if the owner label was edited, the former owner must be reconciled too.
        for owner in {owner for obj in (before, after) if obj for owner in _owner_index(obj)}:
            self.enqueue(Key(key.namespace, owner))

    def _pod_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if not all(pods.is_server(pod) for pod in (before, after) if pod):
            # For balancers the Deployment's status is enough, except for the reason why a pod isn't ready.
            if unready_reason(before) != unready_reason(after):
                self._child_changed(key, before, after)
            return
        if before is None or after is None or _pod_state(before) != _pod_state(after):
            self._child_changed(key, before, after)

    def _hpa_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for hpa in (before, after):
            for target in external_hpas.scale_targets(hpa) if hpa else ():
                if (deployment := external_hpas.deployment_name(target)) is not None:
                    child_key = Key(key.namespace, deployment)
                    self._child_changed(child_key, None, self.children[kinds.DEPLOYMENT].get(child_key))
                else:
                    self.enqueue(Key(key.namespace, target))


def unready_reason(*candidates: Object | None) -> str:
    """Return a message with the name of a failed pod among `candidates` and the reason; empty if no pod has failed."""
    failure = pods.failure(pod for pod in candidates if pod is not None)
    return f"pod {failure.pod}: {failure.message}" if failure else ""


def _project_resource(resource: Object) -> Object:
    """Return a ModelDeployment as the cache keeps it.

    It lacks malformed fields, managedFields, and the annotation of `kubectl apply`, which repeats the whole object. Three
    things are added: from managedFields the last writer of spec.replicas and the times of Halcyon's annotations, and a
    message about each malformed field.
    """
    fields, malformed = shape.fitted(resource)
    meta = dict(fields["metadata"])
    entries = meta.pop("managedFields", ())
    meta["replicasWriter"], meta["replicasWrittenAt"] = _writer_of_replicas(entries)
    if times := _annotation_times(entries):
        meta["annotatedAt"] = times
    if _LAST_APPLIED in (annotations := meta.get("annotations") or {}):
        meta["annotations"] = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
    projected = fields | {"metadata": meta}
    return projected | {MALFORMED: malformed} if malformed else projected


def _project_route(route: Object) -> Object:
    """Return a Gateway API route without its field managedFields.

    A route that can't be read, for example of another version of the API, raises an error now and not in a reconcile.
    """
    route_conflicts.shared_requests(route, route)
    return drop_managed_fields(route)


def _writer_of_replicas(entries: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the field manager that last set spec.replicas, and the time in RFC 3339; both empty if none has set it."""
    owners = [e for e in entries if "f:replicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})]
    newest = max(owners, key=lambda e: str(e.get("time") or ""), default={})
    return str(newest.get("manager") or ""), str(newest.get("time") or "")


def _annotation_times(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the time in RFC 3339 at which each of Halcyon's annotations was last set, by name of the annotation."""
    times: dict[str, str] = {}
    for entry in entries:
        for field in ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or ():
            if (name := field.removeprefix("f:")).startswith(f"{GROUP}/"):
                times[name] = max(times.get(name, ""), str(entry.get("time") or ""))
    return times


def _requested_state(resource: Object) -> tuple[Any, ...]:
    meta = resource["metadata"]
    values = (meta.get("generation"), meta.get("labels"), meta.get("annotations"), meta.get("deletionTimestamp"))
    return (*values, resource.get("status"))


def _pod_state(pod: Object) -> tuple[Any, ...]:
    return pod["status"], pod["metadata"]["deletionTimestamp"], pod["metadata"]["labels"]
