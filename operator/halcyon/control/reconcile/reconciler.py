"""The reconcile of one ModelDeployment, which is identified by its key. Most phases are in a module of their own."""

# phase            module               task
# overlap          `release_overlap`    leave the model alone if another Halcyon release manages it
# fetch, scope     `scope_builder`      collect all input, and fetch objects that the caches don't hold
# plan             `desired.plan`       compute the objects that should exist, and reserve their GPUs before anything is awaited
# adopt            `adoption`           become the owner of orphans, for example after a restore; the next reconcile writes them
# notify           observers            adopt the plan, for example the actuator or a canary to analyse
# apply children   `children_writer`    write the objects that differ; the status reports rejected writes
# repair           `backend_restart`    restart one pod with a dead backend
# status           `status_writer`      write the status: always, and last
# requeue          this module          return when to reconcile again if nothing changes before

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from halcyon.api.conditions import Reason
from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.desired import plan as desired_plan
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects import pod_preparation
from halcyon.control.objects.deployment_status import is_replaced
from halcyon.control.reconcile.adoption import ADOPTION_INTERVAL_S, Adoption
from halcyon.control.reconcile.backend_restart import BackendRestart
from halcyon.control.reconcile.children_writer import ChildrenWriter, StaleModel
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.release_overlap import ReleaseOverlap
from halcyon.control.reconcile.scope_builder import ScopeBuilder
from halcyon.control.reconcile.status_writer import STATUS_INTERVAL_S, StatusWriter
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.kube.kinds import Key, Kind, kind_of
from halcyon.kube.tracing import OFF, Tracer
from halcyon.render import balancer, names

log = logging.getLogger(__name__)

REJECTED_WRITE_REQUEUE_S = 30.0
CONFLICT_REQUEUE_S = 10.0
DELETION_REQUEUE_S = 0.5
BALANCER_DRAIN_REQUEUE_S = 5.0
STALE_CACHE_REQUEUE_S = 0.05
MIN_FAILURES = 3
"""Number of successive reconciles with a failed write after which the status reports the failure. A single failure is
normal if the API server is busy or restarts."""
OVERLAP_REQUEUE_S = 15.0
"""Time until a model that another Halcyon release manages is checked again, in seconds. The other release may have been
uninstalled in the meantime."""


@dataclass(frozen=True)
class Result:
    """Result of a reconcile: when the model is reconciled again."""

    requeue_s: float | None = None
    """Delay until the next reconcile if no change causes an earlier one, in seconds; None for no requeue."""
    postponed: bool = False
    """Whether the reconcile was postponed without doing anything. If so, the key keeps its priority in the queue."""


class ReconcileObserver(Protocol):
    """Component that receives every new plan."""

    def planned(self, key: Key, plan: ReconcilePlan, /) -> None:
        """Handle a new plan. This method is called before any object of the plan is written."""

    def deleted(self, key: Key, /) -> None:
        """Drop the state of a model that was deleted."""


@dataclass
class Reconciler:
    """Reconciler of ModelDeployments. It brings the objects of each ModelDeployment to their desired state."""

    client: Kube
    caches: ClusterState
    scopes: ScopeBuilder
    adoption: Adoption
    children: ChildrenWriter
    restarts: BackendRestart
    statuses: StatusWriter
    reservations: GpuReservations
    overlap: ReleaseOverlap
    events: EventRecorder
    observers: Sequence[ReconcileObserver] = ()
    tracer: Tracer = OFF

    _rejected: dict[Key, str] = field(default_factory=dict)
    """Message with which the API server rejected a write in the last reconcile, by model."""
    _failures: dict[Key, int] = field(default_factory=dict)
    """Number of successive reconciles with a failed write that may succeed later, by model."""
    _uids: dict[Key, str] = field(default_factory=dict)
    """uid of the object in the last reconcile, by model."""

    async def reconcile(self, key: Key) -> Result:
        """Reconcile a ModelDeployment: write the objects that differ from the plan, and write the status.

        Raises:
            ApiError, Unreachable: a request failed but may succeed later. Anything already written is kept.
        """
        if self.caches.own_writes.is_behind(key):
            return Result(STALE_CACHE_REQUEUE_S, postponed=True)
        with self.tracer.span("reconcile", k8s__namespace__name=key.namespace, halcyon__model=key.name) as span:
            try:
                result = await self._phases(key)
            finally:
                # This changes nothing if all of the plan was written. It is right after a cancellation too: nothing more is written.
                self.reservations.withdrawn(key)
            span.note(halcyon__again_s=-1.0 if result.requeue_s is None else result.requeue_s)
            return result

    async def _phases(self, key: Key) -> Result:
        resource = self.caches.resources.get(key)
        if resource is not None and await self.overlap.manager(resource):
            self._deleted(key)
            return Result(OVERLAP_REQUEUE_S)
        if resource is not None:
            uid = str(resource["metadata"]["uid"])
            if self._uids.setdefault(key, uid) != uid:
                # Deleted and created again before a reconcile: the state belongs to another object of this name.
                self._deleted(key)
            self._uids[key] = uid
        with self.tracer.part("observe"):
            observation = await self._scope_and_plan(key)
        if observation is None:
            self.overlap.forget(key)
            self._deleted(key)
            return Result()
        scope, plan = observation
        adopted, not_adopted = await self.adoption.adopt(scope, plan)
        if adopted:
            return Result(STALE_CACHE_REQUEUE_S)
        self._notify(scope, plan)
        try:
            try:
                rejected = await self._apply(scope, plan)
                rejected = "; ".join(filter(None, (not_adopted, rejected)))
            except (errors.Busy, errors.Unreachable):
                # Writes may fail for hours, for example while an admission webhook is down.
                await self.restarts.repair(scope)
                raise
            repair_due_s = await self.restarts.repair(scope)
        except StaleModel:
            raise  # the status would be that of the earlier version
        except Exception as error:
            # Write the status after failed writes too, but not after a cancellation, when the lease may be lost.
            await self.statuses.write(replace(scope, failing=self._failing(key, error)), plan)
            raise
        self._failures.pop(key, None)
        with self.tracer.part("status"):
            status_due_s = await self.statuses.write(scope, plan)
        delays = (status_due_s, repair_due_s, pod_preparation.due_s(scope.pods, scope.now))
        due_s = min((delay for delay in delays if delay is not None), default=None)
        return self._requeue(key, plan, rejected, due_s)

    def _failing(self, key: Key, error: Exception) -> str:
        """Count a failed write, and return its message for the status; "" for fewer than `MIN_FAILURES` in a row.

        A write that conflicts with a change by another writer isn't counted.
        """
        if isinstance(error, errors.Busy | errors.Unreachable):
            self._failures[key] = self._failures.get(key, 0) + 1
        return str(error) if self._failures.get(key, 0) >= MIN_FAILURES else ""

    # Fetch, scope, plan

    async def _scope_and_plan(self, key: Key) -> tuple[Scope, ReconcilePlan] | None:
        """Return the scope of a ModelDeployment and the plan for it; None if it doesn't exist.

        Objects that the plan would create are fetched from the API server first, in case they exist with another owner.
        """
        rejected = self._rejected.get(key, "")
        scope = await self.scopes.build(key, uncached={}, rejected=rejected)
        if scope is None:
            return None
        plan = self._plan(scope)
        uncached = await self._fetch_uncached(scope, plan)
        if not uncached:
            return scope, plan
        scope = await self.scopes.build(key, uncached=uncached, rejected=rejected)
        return None if scope is None else (scope, self._plan(scope))

    async def _fetch_uncached(self, scope: Scope, plan: ReconcilePlan) -> dict[tuple[Kind, str], Object]:
        """Return the objects that the plan would create but that exist already.

        They aren't in the caches, because they don't have Halcyon's label.
        """
        desired = [(kind_of(obj), str(obj["metadata"]["name"])) for obj in (*plan.first, *plan.then)]
        uncached = [child for child in desired if child not in scope.children]
        fetched = await asyncio.gather(*(self.client.get(kind, scope.key.namespace, name) for kind, name in uncached))
        return {child: obj for child, obj in zip(uncached, fetched, strict=True) if obj is not None}

    def _plan(self, scope: Scope) -> ReconcilePlan:
        """Return the plan for a scope, and reserve the plan's GPUs.

        Nothing is awaited in between, so GPUs that were free for the plan are still free when they are reserved.
        """
        plan = desired_plan.make(scope)
        self.reservations.planned(scope.key, plan)
        return plan

    # Notify

    def _notify(self, scope: Scope, plan: ReconcilePlan) -> None:
        for observer in self.observers:
            observer.planned(scope.key, plan)
        self._report_edited_spec(scope)
        self._report_replaced_templates(scope)

    def _report_replaced_templates(self, scope: Scope) -> None:
        """Record an event if another writer has replaced the pod template of a server Deployment, which is put back."""
        for slot in names.SLOTS:
            deployment = own(scope, kinds.DEPLOYMENT, names.server(scope.key.name, slot))
            if deployment is None or not is_replaced(deployment):
                continue
            message = (
                "another writer, for example kubectl rollout undo, replaced the pod template of Deployment "
                f"{deployment['metadata']['name']}; Halcyon restores it. To return to an earlier revision, run halcyon "
                f"undo {scope.key.name}"
            )
            self.events.record(scope.resource, NewEvent("Warning", "TemplateReplaced", message))

    def _report_edited_spec(self, scope: Scope) -> None:
        """Record an event if another writer has overwritten the stored accepted spec. The edit never takes effect."""
        name = names.balancer(scope.key.name)
        stored = own(scope, kinds.CONFIG_MAP, name)
        if stored is None or not accepted_spec_digest.was_edited(stored, scope.revisions, scope.accepted):
            return
        message = (
            f"another writer changed the key {balancer.ACCEPTED_KEY} of ConfigMap {name}; Halcyon ignores the change and restores "
            "the accepted spec. To change the model, edit the ModelDeployment, for example its field spec.scaling.maxReplicas"
        )
        if self.events.record(scope.resource, NewEvent("Warning", "AcceptedSpecEdited", message)):
            log.warning(
                "another writer changed the stored copy of the accepted spec; restoring it",
                extra={"key": str(scope.key), "config_map": name},
            )

    def _deleted(self, key: Key) -> None:
        """Drop the state of a model that was deleted or that another release manages."""
        self.reservations.deleted(key)
        for observer in self.observers:
            observer.deleted(key)
        for state in (self._rejected, self._failures, self._uids):
            state.pop(key, None)
        for part in (self.adoption, self.children, self.restarts, self.statuses):
            part.forget(key)

    # Apply children

    async def _apply(self, scope: Scope, plan: ReconcilePlan) -> str:
        """Write spec.replicas and the child objects. Return the API server's messages about rejected writes, or ""."""
        with self.tracer.part("apply") as span:
            rejections = [await self._follow_hpa(scope, plan), await self.children.apply(scope, plan)]
            rejected = "; ".join(filter(None, rejections))
            span.note(halcyon__refused=rejected)
        return rejected

    async def _follow_hpa(self, scope: Scope, plan: ReconcilePlan) -> str:
        """Copy the replicas that an external HPA has set on a server Deployment. Return the message of a rejection, or ""."""
        replicas, current = plan.adopted_replicas, (scope.resource.get("spec") or {}).get("replicas", 1)
        if replicas is None or replicas == current:
            return ""
        try:
            written = await self.client.scale(kinds.MODEL_DEPLOYMENT, scope.resource, before=current, after=replicas)
        except errors.Refused as error:
            return str(error)
        self.caches.own_writes.wrote(scope.key, kinds.MODEL_DEPLOYMENT, written)
        return ""

    # Requeue

    def _requeue(self, key: Key, plan: ReconcilePlan, rejected: str, due_s: float | None) -> Result:
        """Return the result of a reconcile, with the shortest requeue delay that applies."""
        before = self._rejected.get(key, "")
        if rejected != before:
            self._rejected[key] = rejected
            # Write a new rejection to the status at once. If only its message differs, wait: some webhooks number their messages.
            return Result(STATUS_INTERVAL_S if rejected and before else 0.0)
        delays = [due_s, plan.rollout.requeue_s if plan.rollout else None]
        if rejected:
            delays.append(REJECTED_WRITE_REQUEUE_S)
        if plan.orphans:
            delays.append(ADOPTION_INTERVAL_S)
        if plan.has_surplus_balancers:
            delays.append(BALANCER_DRAIN_REQUEUE_S)
        if plan.acceptance.reason is Reason.CONFLICT:
            delays.append(DELETION_REQUEUE_S if plan.awaits_deletion else CONFLICT_REQUEUE_S)
        return Result(min((d for d in delays if d is not None), default=None))
