"""One reconcile: observe, plan, apply, status. Its only input is a key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.desired import plan
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.ownership import own
from halcyon.control.state.scope import Scope
from halcyon.control.status import status
from halcyon.control.status.events import status_events
from halcyon.kube import errors, kinds
from halcyon.kube.apply_diff import DIGEST, holds, with_digest
from halcyon.kube.client import Kube, Object
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.kube.kinds import Key, Kind, kind_of
from halcyon.kube.tracing import OFF, Tracer
from halcyon.render import balancer, names
from halcyon.render.site import Site

log = logging.getLogger(__name__)

STATUS_INTERVAL_S = 10.0
"""Minimum time between status writes for changes of values alone."""
COUNTS_INTERVAL_S = 1.0
"""The same for numbers of pods, which change one by one, and for the generation, which our own writes of replicas change too."""
STATES_INTERVAL_S = 0.5
"""The same for conditions and phases, so that related changes are written together. Changed desired replicas never wait."""
REJECTED_WRITE_REQUEUE_S = 30.0
REPLACE_INTERVAL_S = 30.0
CONFLICT_REQUEUE_S = 10.0
DELETION_REQUEUE_S = 0.5
BALANCER_DRAIN_REQUEUE_S = 5.0
STALE_CACHE_REQUEUE_S = 0.05
_REFUSED = (errors.Refused, errors.Conflicted)
"""Errors after which nothing was written, and nothing will be without a change."""


@dataclass(frozen=True)
class Result:
    """The result of a reconcile, for the queue."""

    again_s: float | None = None
    """Requeue delay in seconds, unless something changes before; None: no requeue."""
    postponed: bool = False
    """Whether nothing was done, so that the key keeps its priority."""


class Shares(Protocol):
    """Shares of a limit that models have in common. They are reserved as a plan is made, because plans are made concurrently."""

    def planned(self, key: Key, plan: ReconcilePlan, /) -> None:
        """Reserve the share of a plan that was made in this turn of the event loop."""

    def sent(self, key: Key, /) -> None:
        """Record that its server Deployments were written, or may have been."""

    def written(self, key: Key, /) -> None:
        """Record that all of the plan is in place."""

    def withdrawn(self, key: Key, /) -> None:
        """Withdraw the reservation of a reconcile that ended before that."""


@dataclass
class ReconcileCounts:
    """Counters since the start, for /metrics."""

    written: int = 0
    skipped: int = 0
    statuses: int = 0


@dataclass
class Reconciler:
    """The reconciler: moves one ModelDeployment at a time to its desired state."""

    client: Kube
    caches: ClusterState
    recorder: EventRecorder
    site: Callable[[], Site]
    """Returns the current site: its certificate is issued after the process has started, and changes."""
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    on_plan: Callable[[Key, ReconcilePlan], None]
    """Called with each plan."""
    on_gone: Callable[[Key], None]
    """Called when a ModelDeployment was deleted."""
    shares: Shares
    tracer: Tracer = OFF
    counts: ReconcileCounts = field(default_factory=ReconcileCounts)

    def __post_init__(self) -> None:
        """Start without any write."""
        self._refused: dict[Key, str] = {}
        self._status_at: dict[Key, float] = {}
        self._replaced_at: dict[Key, float] = {}
        self._as_is: dict[Key, dict[tuple[Kind, str], tuple[str, str]]] = {}

    async def reconcile(self, key: Key) -> Result:
        """Move this ModelDeployment one step towards its desired state, or all the way.

        Raises:
            ApiError, Unreachable: if a request failed that may succeed later; whatever was written stays.
        """
        if self.caches.is_behind(key):
            return Result(STALE_CACHE_REQUEUE_S, postponed=True)
        with self.tracer.span("reconcile", k8s__namespace__name=key.namespace, halcyon__model=key.name) as span:
            outcome = await self._reconcile(key)
            span.note(halcyon__again_s=-1.0 if outcome.again_s is None else outcome.again_s)
            return outcome

    async def _reconcile(self, key: Key) -> Result:
        try:
            return await self._follow_plan(key)
        finally:
            # Changes nothing if all was written. Also after a cancellation: such a reconcile plans and writes no more.
            self.shares.withdrawn(key)

    async def _follow_plan(self, key: Key) -> Result:
        with self.tracer.part("observe"):
            observed = await self._observe(key)
        if observed is None:
            self._forget(key)
            return Result()
        view, planned = observed
        self.on_plan(key, planned)
        self._tell_of_edit(view)
        try:
            with self.tracer.part("apply") as span:
                await self._follow(view, planned)
                refused = await self._apply(view, planned)
                span.note(halcyon__refused=refused)
            if not refused:
                self.shares.written(key)
            await self._replace_dead(view)
        except Exception:
            # Written last and always: the status reports failed writes, too. But not after a cancellation: the lease may be lost.
            await self._write_status(view, planned)
            raise
        with self.tracer.part("status"):
            again = await self._write_status(view, planned)
        before = self._refused.get(key, "")
        if refused != before:
            self._refused[key] = refused
            # At once for a new refusal. Some admission webhooks put another number into each message: no reason to hurry.
            return Result(STATUS_INTERVAL_S if refused and before else 0.0)
        waits = [again, planned.rollout.again_s if planned.rollout else None]
        if refused:
            waits.append(REJECTED_WRITE_REQUEUE_S)
        if planned.lingers:
            waits.append(BALANCER_DRAIN_REQUEUE_S)
        if planned.strangers:
            leaving = all(s.leaving for s in planned.strangers)
            waits.append(DELETION_REQUEUE_S if leaving else CONFLICT_REQUEUE_S)
        return Result(min((w for w in waits if w is not None), default=None))

    def _forget(self, key: Key) -> None:
        self.on_gone(key)
        self._refused.pop(key, None)
        self._status_at.pop(key, None)
        self._replaced_at.pop(key, None)
        self._as_is.pop(key, None)

    async def _observe(self, key: Key) -> tuple[Scope, ReconcilePlan] | None:
        """Return the scope and its plan. Objects that the plan would create are read first, in case they exist with another owner."""
        refused = self._refused.get(key, "")
        view = await self.caches.view(key, self.site(), found={}, refused=refused)
        if view is None:
            return None
        planned = self._planned(view)
        missing = [
            (kind_of(obj), obj["metadata"]["name"])
            for obj in (*planned.first, *planned.then)
            if (kind_of(obj), obj["metadata"]["name"]) not in view.children
        ]
        if not missing:
            return view, planned
        answers = await asyncio.gather(*(self.client.get(kind, key.namespace, name) for kind, name in missing))
        found = {where: obj for where, obj in zip(missing, answers, strict=True) if obj is not None}
        if not found:
            return view, planned
        view = await self.caches.view(key, self.site(), found=found, refused=refused)
        return None if view is None else (view, self._planned(view))

    def _planned(self, view: Scope) -> ReconcilePlan:
        """Return the plan, with its share reserved before anything is awaited, so that the values it was checked against still hold."""
        planned = plan.make(view)
        self.shares.planned(view.key, planned)
        return planned

    def _tell_of_edit(self, view: Scope) -> None:
        """Report an accepted spec that was overwritten. The edit isn't in force, and is replaced by the spec that is."""
        name = names.balancer(view.key.name)
        kept = own(view, kinds.CONFIG_MAP, name)
        if kept is None or not accepted_spec_digest.was_edited(kept, view.revisions, view.accepted):
            return
        message = (
            f"{balancer.ACCEPTED_KEY} of ConfigMap {name} isn't the spec that was accepted, so it isn't in force; what was accepted "
            "is written there again. Change the ModelDeployment instead, for example spec.scaling.maxReplicas"
        )
        if self.recorder.record(view.resource, NewEvent("Warning", "AcceptedSpecEdited", message)):
            log.warning("somebody has written over an accepted spec", extra={"key": str(view.key), "config_map": name})

    async def _follow(self, view: Scope, planned: ReconcilePlan) -> None:
        """Copy the replicas that an external HPA has set on our Deployment to spec.replicas."""
        count, before = planned.followed, (view.resource.get("spec") or {}).get("replicas", 1)
        if count is None or count == before:
            return
        after = await self.client.scale(kinds.MODEL_DEPLOYMENT, view.resource, before=before, after=count)
        self.caches.wrote(view.key, kinds.MODEL_DEPLOYMENT, after)

    async def _apply(self, view: Scope, planned: ReconcilePlan) -> str:
        """Write what differs. Return a sentence about what the API server refused; empty if nothing."""
        refused: list[str] = []
        for wave in (planned.first, planned.then):
            results = await asyncio.gather(*(self._one(view, obj) for obj in wave), return_exceptions=True)
            servers = (result for obj, result in zip(wave, results, strict=True) if plan.is_servers(obj))
            if not all(isinstance(result, _REFUSED) for result in servers):
                self.shares.sent(view.key)
            refused += _refusals(results)
            if refused:
                return "; ".join(refused)
        for kind, name in planned.delete:
            # Only with that uid: another object may have its name by now.
            seen = view.children.get((kind, name))
            uid = None if seen is None else seen["metadata"].get("uid")
            await self.client.delete(kind, view.key.namespace, name, uid=uid)
        return ""

    async def _replace_dead(self, view: Scope) -> None:
        """Evict a pod whose backend is dead: Triton itself stays "ready" and never restarts it.

        The agents have taken it out of service already. One pod per interval, and never the last ready one.
        """
        dead = [p for p in view.pods if view.signals and p["metadata"]["name"] in view.signals.maintenance]
        dead = [p for p in dead if pods.is_live(p)]
        serving = [p for p in view.pods if pods.is_ready(p) and p not in dead]
        if (
            not dead
            or not serving
            or self.clock() - self._replaced_at.get(view.key, -REPLACE_INTERVAL_S) < REPLACE_INTERVAL_S
        ):
            return
        name = dead[0]["metadata"]["name"]
        try:
            await self.client.evict(view.key.namespace, name)
        except (errors.Busy, errors.NotFound) as error:
            log.info("cannot evict yet", extra={"key": str(view.key), "pod": name, "error": str(error)})
            return
        self._replaced_at[view.key] = self.clock()
        message = f"pod {name} answered with backend errors only; it was taken out and is being replaced"
        self.recorder.record(view.resource, NewEvent("Warning", "BackendDied", message))

    async def _one(self, view: Scope, obj: Object) -> None:
        kind = kind_of(obj)
        wanted = with_digest(obj)
        meta = wanted["metadata"]
        where = (kind, meta["name"])
        live = view.children.get((kind, meta["name"]))
        if live is not None:
            version = live["metadata"]["resourceVersion"]
            digest = meta["annotations"][DIGEST]
            if holds(live, wanted) or self._as_is.get(view.key, {}).get(where) == (digest, version):
                self.counts.skipped += 1
                return
        # Not forced if there was no object a moment ago: if another writer has created it meanwhile, it isn't ours to take.
        after = await self.client.apply(kind, wanted, force=live is not None)
        self.counts.written += 1
        self.caches.wrote(view.key, kind, after)
        if not holds(after, wanted):
            # Something (an admission policy, say) changes what we write. Writing again would not end.
            this = (meta["annotations"][DIGEST], after["metadata"]["resourceVersion"])
            self._as_is.setdefault(view.key, {})[where] = this

    async def _write_status(self, view: Scope, planned: ReconcilePlan) -> float | None:
        """Write the status if it differs. Return the requeue delay in seconds if that has to wait, else None."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted = status.make(view, planned, now=stamp)
        told, tells = _settled(view.status), _settled(wanted)
        if told == tells:
            return None
        since = self.clock() - self._status_at.get(view.key, -STATUS_INTERVAL_S)
        if since < (rest_s := _rest_s(told, tells)):
            return rest_s - since
        body = {
            "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
            "kind": kinds.MODEL_DEPLOYMENT.kind,
            "metadata": {"namespace": view.key.namespace, "name": view.key.name},
            "status": wanted,
        }
        try:
            after = await self.client.apply(kinds.MODEL_DEPLOYMENT, body, subresource="status")
        except errors.NotFound:
            return None
        self.counts.statuses += 1
        self._status_at[view.key] = self.clock()
        self.caches.wrote(view.key, kinds.MODEL_DEPLOYMENT, after)
        for event in status_events(view.status, wanted):
            self.recorder.record(view.resource, event)
        return None


def _refusals(results: list[BaseException | None]) -> list[str]:
    """Return the messages of refused writes; raise any other error."""
    refused = []
    for result in results:
        if isinstance(result, _REFUSED):
            refused.append(str(result))
        elif isinstance(result, BaseException):
            raise result
    return refused


_TIMES = {"lastTransitionTime", "observedAt", "decidedAt", "startedAt"}
"""Fields that change by themselves. Also `startedAt`: if a revision can't be written, each reconcile restarts the rollout's time."""


def _settled(written: Any) -> Any:  # any JSON value
    """Return a status without the fields that change by themselves: times."""
    if isinstance(written, dict):
        return {k: _settled(v) for k, v in written.items() if k not in _TIMES}
    if isinstance(written, list):
        return [_settled(v) for v in written]
    return written


_PARTS = {"observedGeneration", "conditions", "summary", "scaling", "model", "rollout", "replicas", "coldStart", "cost"}
"""Fields of the status with values in them whose changes can wait."""
_COUNTS = {"total", "ready", "updated", "unschedulable"}


def _rest_s(before: Any, after: Any) -> float:  # any JSON values
    """Return the minimum time since the last status write, in seconds: 0 if the desired replicas differ."""
    if _asked(before) != _asked(after):
        return 0.0
    if _weighty(before) != _weighty(after):
        return STATES_INTERVAL_S
    return COUNTS_INTERVAL_S if _counts(before) != _counts(after) else STATUS_INTERVAL_S


def _asked(written: Any) -> Any:  # any JSON value
    """Return the desired replicas, which `control/autoscaling/scale_writer.py` waits for."""
    return (written.get("scaling") or {}).get("desired")


def _counts(written: Any) -> Any:  # any JSON value
    counts = {k: v for k, v in (written.get("replicas") or {}).items() if k in _COUNTS}
    return counts | {"generation": written.get("observedGeneration")}


def _weighty(written: Any) -> Any:  # any JSON value
    """Return everything that matters by itself: all but values, sentences about them, and numbers of pods."""
    return {
        **{k: v for k, v in written.items() if k not in _PARTS},
        "conditions": [(c["type"], c["status"], c["reason"]) for c in written.get("conditions") or ()],
        "scaling": {k: (written.get("scaling") or {}).get(k) for k in ("actuator", "desired")},
        "model": (written.get("model") or {}).get("versions"),
        "rollout": {k: v for k, v in (written.get("rollout") or {}).items() if k != "message"},
    }
