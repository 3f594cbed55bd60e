"""Writer of child objects. It applies objects that differ from the plan in two waves, then deletes surplus objects.

Each write is conditional on the object that the reconcile has read, so that it can't change another object. If the
object has changed since, `Conflicted` is raised, and the model is reconciled again with the current objects.
"""

# object that was read     condition of the write
# none                     no object has this name
# an object of ours        the same uid; of Deployments and kinds without a status (`kinds.WITH_STATUS`) the resourceVersion too
# a surplus object         the same uid and resourceVersion

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from halcyon.control.desired.plan import ReconcilePlan, is_servers
from halcyon.control.objects.deployment_status import SlotState, is_replaced
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import encoding, errors, field_ownership, kinds
from halcyon.kube.apply_diff import DIGEST, holds, with_digest
from halcyon.kube.client import FIELD_MANAGER, Kube, Object
from halcyon.kube.kinds import DEPLOYMENT, HPA, MODEL_DEPLOYMENT, WITH_STATUS, Key, Kind, kind_of
from halcyon.render import names, server

_REJECTED = (errors.Refused, errors.NotFound)
"""Errors of writes that would fail again. `NotFound` means that the cluster lacks the kind, for example a Gateway's."""
_NOT_WRITTEN = (*_REJECTED, errors.Conflicted)
"""Errors after which it is certain that the API server has not written anything."""
_LASTING = (*_REJECTED, errors.Busy, errors.Unreachable)
"""Errors that may last for one object although others can be written, for example while an admission webhook is down."""
_WITHOUT_PODS = frozenset({kinds.ROLE_BINDING, kinds.SERVICE, HPA, kinds.PDB, *kinds.OPTIONAL, *kinds.ROUTES})
"""Kinds whose rejected writes change neither the number of pods nor their GPUs."""


class StaleModel(errors.Conflicted):
    """The cached ModelDeployment is out of date, or the ModelDeployment or one of its Deployments was deleted."""


@dataclass
class FreshnessCheck:
    """Check before the first write of a reconcile that the cached ModelDeployment is current.

    The caches of a new leader may be out of date. Without the check, it could write objects of an earlier spec.
    """

    client: Kube
    caches: ClusterState
    scope: Scope
    _reads: dict[tuple[Kind, Key], asyncio.Task[Object | None]] = field(default_factory=dict)
    """Reads of objects that are needed by more than one write."""

    async def require_fresh(self, *, creates: bool = False, must_read: bool = False) -> None:
        """Check that the cached ModelDeployment is current, and with `creates` that its server Deployments exist.

        Raises:
            StaleModel: the ModelDeployment has changed or was deleted, or a Deployment of servers was deleted.
            Refused: `must_read` is true, and the ModelDeployment may not be read.
        """
        key, cached = self.scope.key, self.scope.resource["metadata"]
        try:
            live = await self._read(MODEL_DEPLOYMENT, key)
        except errors.Refused:  # a ClusterRole of an earlier version has only list and watch
            if must_read:
                raise
            return
        meta = {} if live is None else live["metadata"]
        if meta.get("uid") != cached["uid"] or "deletionTimestamp" in meta:
            raise StaleModel(409, f"ModelDeployment {key} was deleted, so its objects are not written")
        written = self.caches.own_writes.version(key, MODEL_DEPLOYMENT, key)
        if meta["resourceVersion"] not in {cached["resourceVersion"], written}:
            raise StaleModel(409, f"ModelDeployment {key} has changed; the next reconcile writes its objects")
        for name in (names.server(key.name, slot) for slot in names.SLOTS if creates):
            # Each kind has a watch of its own: the present ModelDeployment may be cached before the deletion of a slot's Deployment.
            if own(self.scope, DEPLOYMENT, name) and await self._read(DEPLOYMENT, Key(key.namespace, name)) is None:
                raise StaleModel(409, f"Deployment {key.namespace}/{name} was deleted; the next reconcile creates it")

    async def present(self, live: Object) -> Object:
        """Return a cached Deployment as it is now. Raise `StaleModel` if more of it than its status has changed."""
        key = Key(live["metadata"]["namespace"], live["metadata"]["name"])
        now = await self.client.get(DEPLOYMENT, key.namespace, key.name)
        if now is None or any(now["metadata"].get(f) != live["metadata"].get(f) for f in ("uid", "generation")):
            raise StaleModel(409, f"Deployment {key} has changed; the next reconcile writes it")
        return now

    async def _read(self, kind: Kind, key: Key) -> Object | None:
        if (kind, key) not in self._reads:
            self._reads[kind, key] = asyncio.create_task(self.client.get(kind, key.namespace, key.name))
        return await self._reads[kind, key]


@dataclass
class ChildrenWriter:
    """Writer of the child objects of all models, with the state that it keeps between reconciles."""

    client: Kube
    caches: ClusterState
    reservations: GpuReservations
    counts: ReconcileCounts

    _current: dict[Key, dict[tuple[Kind, str], str]] = field(default_factory=dict)
    """Digest and version of child objects that aren't compared in each reconcile: they are up to date, or the cluster
    changes them on each write, for example by an admission policy."""

    async def apply(self, scope: Scope, plan: ReconcilePlan) -> str:
        """Apply the child objects that differ from the plan, then delete the surplus ones.

        Return the API server's messages if it rejected a write, otherwise "". After a rejected apply, only a surplus
        HPA and surplus revisions are deleted. After a failure in the first wave, nothing is created, and servers keep their pod template.

        Raises:
            StaleModel: the cached ModelDeployment or servers are out of date. Some objects may already be written.
            ApiError, Unreachable: a request failed that may succeed later, for example because an object has changed
                since it was read (`Conflicted`). Anything already written is kept.
        """
        check = FreshnessCheck(self.client, self.caches, scope)
        planned = {(kind_of(obj), obj["metadata"]["name"]) for obj in (*plan.first, *plan.then)}
        current = self._current.get(scope.key, {})
        self._current[scope.key] = {child: state for child, state in current.items() if child in planned}
        then, failures = plan.then, await self._wave(scope, plan.first, check)
        if failures:
            # The accepted spec in the ConfigMap must match its digest in the ControllerRevision.
            kept = kinds.CONFIG_MAP if any(kind is kinds.CONTROLLER_REVISION for kind, _ in failures) else None
            present = (self._with_present_template(scope, obj) for obj in plan.then if kind_of(obj) is not kept)
            then = tuple(obj for obj in present if obj is not None)
        failures += await self._wave(scope, then, check)
        if all(kind in _WITHOUT_PODS for kind, _ in failures):
            self.reservations.written(scope.key)
        rejections = [str(error) for _, error in failures]
        # Something else scales the servers of a surplus HPA already. Old revisions may use up the quota for a new one.
        always = {HPA, kinds.CONTROLLER_REVISION}
        surplus = [(kind, name) for kind, name in plan.delete if kind in always or not rejections]
        for kind, name in surplus:
            await check.require_fresh()
            try:
                await self.client.delete(kind, scope.key.namespace, name, seen=scope.children[kind, name])
            except errors.Refused as error:
                rejections.append(str(error))
        for _, failure in failures:
            if not isinstance(failure, _REJECTED):
                raise failure
        return "; ".join(rejections)

    async def _wave(
        self, scope: Scope, objects: tuple[Object, ...], check: FreshnessCheck
    ) -> list[tuple[Kind, errors.HalcyonError]]:
        """Apply objects at the same time. Return the errors in `_LASTING`, each with the kind of the object."""
        writes = (self._apply_object(scope, obj, check) for obj in objects)
        results = await asyncio.gather(*writes, return_exceptions=True)
        servers = (result for obj, result in zip(objects, results, strict=True) if is_servers(obj))
        if not all(isinstance(result, _NOT_WRITTEN) for result in servers):
            self.reservations.sent(scope.key)
        failures: list[tuple[Kind, errors.HalcyonError]] = []
        for obj, result in zip(objects, results, strict=True):
            if isinstance(result, _LASTING):
                failures.append((kind_of(obj), result))
            elif result is not None:
                raise result
        return failures

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._current.pop(key, None)

    async def _apply_object(self, scope: Scope, obj: Object, check: FreshnessCheck) -> None:
        kind = kind_of(obj)
        desired = with_digest(obj)
        child = (kind, desired["metadata"]["name"])
        live, current = scope.children.get(child), self._current[scope.key]
        if live is not None:
            state = _state(desired, live)
            if current.get(child) == state or holds(live, desired):
                current[child] = state
                self.counts.skipped += 1
                return
        await check.require_fresh(creates=live is None)
        if live is not None and kind is DEPLOYMENT and is_replaced(live):
            await self._take_over_template(live)
        if live is not None and kind is DEPLOYMENT:
            live = await check.present(live)
        versioned = kind is DEPLOYMENT or kind not in WITH_STATUS
        body = encoding.creating(desired) if live is None else encoding.changing(desired, live, versioned=versioned)
        try:
            after = await self.client.apply(kind, body)
        except errors.Refused:
            # The API server rejects the new pod template, for example by a policy. Servers are scaled with the present one.
            present = self._with_present_template(scope, obj) if is_servers(obj) else None
            if present is not None and present != obj:
                self.reservations.sent(scope.key)
                await self._apply_object(scope, present, check)
            raise
        self.counts.written += 1
        self.caches.own_writes.wrote(scope.key, kind, after)
        # If the object differs from the plan even now, something changes it on each write. Don't write it in each reconcile.
        current[child] = _state(desired, after)

    async def _take_over_template(self, live: Object) -> None:
        """Become the owner of all fields of a pod template that another writer has replaced.

        The next apply then removes the fields that only the other template has, such as a second source of a volume.
        """
        namespace, name = live["metadata"]["namespace"], live["metadata"]["name"]
        deployment = await self.client.get(DEPLOYMENT, namespace, name)
        if deployment is None or deployment["metadata"]["uid"] != live["metadata"]["uid"]:
            return
        meta = deployment["metadata"]
        entries = field_ownership.with_sole_owner(meta.get("managedFields") or (), FIELD_MANAGER, ("spec", "template"))
        if entries is None:
            return
        condition = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        await self.client.patch(DEPLOYMENT, namespace, name, {"metadata": condition | {"managedFields": entries}})

    def _with_present_template(self, scope: Scope, obj: Object) -> Object | None:
        """Return an object of the plan, with its present pod template if it has servers; None if that is unknown."""
        live = scope.children.get((kind_of(obj), obj["metadata"]["name"]))
        if live is None or not is_servers(obj):
            return live and obj
        revision = next((r for r in scope.revisions if r.key == SlotState.of(live).revision), None)
        if revision is None:
            return None
        desired, rolling_update = obj["spec"]["replicas"], obj["spec"]["strategy"]["rollingUpdate"]
        # The desired replicas are for the plan's template, whose pods may have fewer GPUs.
        reserved = self.reservations.replicas(scope.key, revision.template, desired)
        return server.deployment(
            scope.subject,
            obj["metadata"]["labels"][names.SLOT_LABEL],
            revision.template,
            replicas=max(reserved, min(desired, live["spec"].get("replicas") or 0)),
            startup_timeout_s=revision.startup_timeout_s,
            max_surge=rolling_update["maxSurge"],
            max_unavailable=rolling_update["maxUnavailable"],
        )


def _state(desired: Object, live: Object) -> str:
    """Return a string that changes if an object of the plan or the live object changes, except for the live status."""
    meta = live["metadata"]
    # A change of the status changes the resourceVersion, but not the generation.
    ignored = {"managedFields", "resourceVersion"} if "generation" in meta else {"managedFields"}
    version = hash(tuple((key, str(meta[key])) for key in sorted(meta.keys() - ignored)))
    return f"{desired['metadata']['annotations'][DIGEST]} {version}"
