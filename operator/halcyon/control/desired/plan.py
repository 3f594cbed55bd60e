"""The plan of a reconcile: the objects that should exist for a ModelDeployment. Pure.

The plan uses the current spec if the spec is valid and its source exists. Otherwise it uses the last accepted spec. If
no spec has ever been accepted, only the status is written. A source whose config.pbtxt is invalid counts as missing.

The plan also names the revision to run. If that revision has failed, the servers run the previous revision
(`control/rollout/rollout.py`).

Out of scope: the choice of the requested revision (`requested_revision`), existing objects with another owner
(`name_conflicts`), and deletions (`surplus`).
"""

# spec      source    names    a spec was accepted before   spec in force             revision
# valid     exists    free     -                            the current spec          rendered now, or from its ControllerRevision
# valid     exists    taken    yes                          the last accepted spec    the newest
# valid     missing   -        yes                          the last accepted spec    the newest
# invalid   -         -        yes                          the last accepted spec    the newest
# valid     missing   -        no                           none: only the status is written
# invalid   -         -        no                           none: only the status is written
# valid     exists    taken    no                           the current spec, but no object is created

from __future__ import annotations

from dataclasses import dataclass, replace

from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.acceptance import accepted_spec_digest, config_check, site_policy
from halcyon.control.acceptance.spec_checks import objections
from halcyon.control.desired import network_policies, routing
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.desired.external_hpa import ExternalHpa, autoscaler
from halcyon.control.desired.name_conflicts import ConflictingObject, conflict, conflicting_objects, orphans
from halcyon.control.desired.requested_revision import find_requested
from halcyon.control.desired.surplus import surplus, unread_revisions
from halcyon.control.objects import pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.rollout import rollout, sequence_models
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.rollout.slot_allocation import SlotAllocation
from halcyon.control.state.ownership import own, own_servers, server_counts
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, Object, kind_of
from halcyon.render import hpa as render_hpa
from halcyon.render import names, revision, server
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class ReconcilePlan:
    """Desired state of one ModelDeployment: its objects, and the decisions that lead to them."""

    acceptance: Acceptance
    spec: Spec | None = None
    """The accepted spec; None if no spec has ever been accepted."""
    rollout: RolloutPlan | None = None
    """Rollout of the revision that the accepted spec requests; None if no spec has ever been accepted."""
    actuator: Actuator = Actuator.NONE
    actuator_why: str = ""
    external_hpa: ExternalHpa | None = None
    """External HPA that controls the replicas; None if there is none."""
    first: tuple[Object, ...] = ()
    """Objects to which other objects in the plan refer. They are applied before those in `then`."""
    then: tuple[Object, ...] = ()
    delete: tuple[tuple[Kind, str], ...] = ()
    conflicts: tuple[ConflictingObject, ...] = ()
    orphans: tuple[tuple[Kind, str], ...] = ()
    """Objects without an owner that the ModelDeployment adopts before anything else is written. None are adopted if the
    spec was rejected, or if other objects have the names of children."""
    has_surplus_balancers: bool = False
    """Whether balancer pods that are no longer needed still exist. After they have ended, more objects must be
    deleted."""
    outdated: tuple[str, ...] = ()
    """Differences between the stored rendering of the requested revision and a new rendering by this operator; empty if
    there is no stored rendering."""

    @property
    def target(self) -> Revision | None:
        """Revision that the servers run: the requested one, or the previous one if the requested one has failed."""
        return None if self.rollout is None else self.rollout.target

    @property
    def adopted_replicas(self) -> int | None:
        """Number of replicas to copy to spec.replicas from a Deployment that an external HPA scales, or None.

        Because of the copy, the replicas stay the same when the HPA is deleted. Without spec.scaling, or in a mode
        other than Active, Halcyon doesn't write spec.replicas. It then stays as declared by the user.
        """
        scaling = None if self.spec is None else self.spec.scaling
        is_ours = scaling is not None and scaling.mode == "Active"
        return self.external_hpa.count if is_ours and self.external_hpa is not None else None

    @property
    def awaits_deletion(self) -> bool:
        """Whether the model waits only for the garbage collection of objects of a deleted ModelDeployment."""
        return any(c.leaving for c in self.conflicts) and all(c.leaving or c.orphaned for c in self.conflicts)

    def kept_replicas(self, running: int) -> int:
        """Return the replicas with which Deployments with this number of running replicas are adopted.

        If Halcyon writes spec.replicas, running servers are kept, within the limit of `scaling`. The manifest may have
        been applied without replicas, which then are 1.
        """
        scaling = None if self.spec is None else self.spec.scaling
        if scaling is None or scaling.mode != "Active":
            return self.replicas
        return max(self.replicas, min(running, scaling.max_replicas))

    @property
    def replicas(self) -> int:
        """Current number of replicas: spec.replicas, or the number that an external HPA has set."""
        return 0 if self.spec is None else defaults.bounded_replicas(self.spec)


def is_servers(obj: Object) -> bool:
    """Return whether an object of a plan is a Deployment of server pods. These are the pods that hold GPUs."""
    component: str = obj["metadata"]["labels"][names.COMPONENT_LABEL]
    return kind_of(obj) is kinds.DEPLOYMENT and component == names.SERVER


def make(scope: Scope) -> ReconcilePlan:
    """Return the plan for the reconcile with the given scope."""
    acceptance, spec = _in_force(scope)
    plan = _planned(scope, acceptance, spec)
    if acceptance.accepted and plan.conflicts and (stored := _stored(scope)) is not None:
        return replace(_planned(scope, plan.acceptance, stored), acceptance=plan.acceptance, orphans=plan.orphans)
    return plan


def _planned(scope: Scope, acceptance: Acceptance, spec: Spec | None) -> ReconcilePlan:
    """Return the plan for the spec in force."""
    if spec is None:
        return ReconcilePlan(acceptance)
    requested, outdated = find_requested(scope, spec, accepted=acceptance.accepted)
    if acceptance.accepted and requested is not None and (message := sequence_models.objection(scope, spec, requested)):
        acceptance, spec = Acceptance(accepted=False, reason=Reason.INVALID, message=message), _stored(scope)
        if spec is None:
            return ReconcilePlan(acceptance)
        requested, outdated = find_requested(scope, spec, accepted=False)
    if requested is None:
        return ReconcilePlan(acceptance)
    if not acceptance.accepted:
        # The field spec.replicas may belong to the rejected spec.
        spec = sequence_models.with_allowed_replicas(scope, spec, requested)
    # Set the digest for a stored spec too: an earlier operator version may have stored no digest, or a different text.
    requested = replace(requested, seal=accepted_spec_digest.of(accepted_spec_digest.text(spec)))
    external_hpa = autoscaler(scope, spec)
    if external_hpa is not None and external_hpa.count is not None:
        spec = spec.model_copy(update={"replicas": external_hpa.count})
        spec = sequence_models.with_allowed_replicas(scope, spec, requested)
    rollout_plan = rollout.decide(scope, spec, requested, own_servers(scope))
    actuator, why = _actuator(scope, spec, external_hpa)
    first = [*_records(scope, rollout_plan, acceptance), *routing.prerequisites(scope, spec)]
    then = _children(scope, spec, rollout_plan, actuator)
    conflicts = conflicting_objects(scope, [*first, *then])
    adopted = orphans(scope) if acceptance.accepted and all(c.orphaned for c in conflicts) else ()
    if conflicts:
        # Create no new objects for a ModelDeployment that can't be complete; only update those that it already has.
        first, then = (
            [obj for obj in objects if own(scope, kind_of(obj), obj["metadata"]["name"])] for objects in (first, then)
        )
        # A rejected spec adopts nothing, so its own message says what to do.
        if acceptance.accepted or not all(c.orphaned for c in conflicts):
            acceptance = conflict(conflicts)
    return ReconcilePlan(
        acceptance=acceptance,
        spec=spec,
        rollout=rollout_plan,
        actuator=actuator,
        actuator_why=why,
        external_hpa=external_hpa,
        first=tuple(first),
        then=tuple(then),
        delete=tuple(surplus(scope, spec, rollout_plan, actuator)),
        has_surplus_balancers=routing.has_surplus_balancers(scope, spec),
        conflicts=tuple(conflicts),
        orphans=adopted,
        outdated=outdated,
    )


def _in_force(scope: Scope) -> tuple[Acceptance, Spec | None]:
    if scope.malformed:
        return Acceptance(accepted=False, reason=Reason.INVALID, message="; ".join(scope.malformed)), _stored(scope)
    try:
        spec = parse(scope.key.name, scope.resource.get("spec") or {})
    except SpecError as error:
        return Acceptance(accepted=False, reason=Reason.INVALID, message=str(error)), _stored(scope)
    if messages := objections(spec, scope.site):
        return Acceptance(accepted=False, reason=Reason.INVALID, message="; ".join(messages)), _stored(scope)
    if denied := site_policy.violations(scope, spec):
        return Acceptance(accepted=False, reason=Reason.POLICY_DENIED, message="; ".join(denied)), _stored(scope)
    if scope.source.lacking:
        return Acceptance(accepted=False, reason=Reason.INVALID, message=scope.source.lacking), _stored(scope)
    if scope.source.missing:
        refusal = Acceptance(accepted=False, reason=Reason.SOURCE_NOT_FOUND, message=scope.source.missing)
        return refusal, _stored(scope)
    if wrong_config := config_check.objection(scope, spec):
        return Acceptance(accepted=False, reason=Reason.MODEL_CONFIG_INVALID, message=wrong_config), _stored(scope)
    return Acceptance(accepted=True, reason=Reason.ACCEPTED, message="the spec is valid"), spec


def _stored(scope: Scope) -> Spec | None:
    """Return the last accepted spec, with the current spec.replicas.

    The actuator sets spec.replicas, so the current value does not belong to the rejected spec.
    """
    spec = scope.accepted
    if spec is None:
        config_map = own(scope, kinds.CONFIG_MAP, names.balancer(scope.key.name))
        spec = None if config_map is None else accepted_spec_digest.read(scope.key.name, config_map, scope.revisions)
    if spec is None:
        return None
    count = (scope.resource.get("spec") or {}).get("replicas")
    if not isinstance(count, int) or not 0 <= count <= 1000:  # the field's own bounds
        return spec
    limit = site_policy.max_replicas(scope, spec)
    running = sum(server_counts(scope).values())
    # Keep the running replicas, but allow no more: `kubectl scale` isn't checked by the admission policy and could bypass it.
    return spec.model_copy(update={"replicas": count if limit is None else min(count, max(limit, running))})


# policy     actuator in the spec   Halcyon serves     HPAs keep a      actuator
#                                   the metrics API    tolerance of 0
# any        Direct                 -                  -                Direct
# any        HPA                    -                  -                HPA (the reason mentions a missing tolerance, for Planner)
# Rules      Auto                   yes                -                HPA
# Planner    Auto                   yes                yes              HPA
# any        Auto                   else                                Direct
# While something is unknown, an HPA that the model has stays.
def _actuator(scope: Scope, spec: Spec, external_hpa: ExternalHpa | None) -> tuple[Actuator, str]:
    if external_hpa is not None:
        return Actuator.NONE, external_hpa.why
    if spec.scaling is None:
        return Actuator.NONE, "spec.scaling is not set, so the number of replicas is spec.replicas"
    is_planner = defaults.policy(spec) == "Planner"
    coarse = "HPAs in this cluster do not support a configurable tolerance, so they ignore changes of up to 10 %"
    if scope.metrics_api.tolerance is None:
        coarse = "it is unknown whether HPAs in this cluster support a configurable tolerance"
    if spec.scaling.actuator == "Direct":
        return Actuator.DIRECT, "spec.scaling.actuator is Direct"
    if spec.scaling.actuator == "HPA":
        why = "spec.scaling.actuator is HPA"
        return Actuator.HPA, why if not is_planner or _have_tolerance(scope) else f"{why}, but {coarse}"
    hpa, ours = own(scope, kinds.HPA, scope.key.name), scope.metrics_api.ours
    if (ours or (ours is None and hpa is not None)) and (not is_planner or _have_tolerance(scope)):
        return Actuator.HPA, f"Auto: {scope.metrics_api.why}"
    why = coarse if ours else scope.metrics_api.why
    return Actuator.DIRECT, f"Auto: {why}"


def _have_tolerance(scope: Scope) -> bool:
    """Return whether HPAs of this cluster support a tolerance. If unknown, check this model's HPA for a tolerance."""
    if scope.metrics_api.tolerance is not None:
        return scope.metrics_api.tolerance
    behavior = (own(scope, kinds.HPA, scope.key.name) or {"spec": {}})["spec"].get("behavior") or {}
    return "tolerance" in (behavior.get("scaleUp") or {})


def _records(scope: Scope, rollout_plan: RolloutPlan, acceptance: Acceptance) -> list[Object]:
    subject, requested, target = scope.subject, rollout_plan.requested, rollout_plan.target
    objects = [revision.overlay_map(subject, requested)]
    if target.overlay != requested.overlay:
        objects.append(revision.overlay_map(subject, target))
    if requested.snapshot and acceptance.accepted and scope.source.content is not None:
        objects.append(revision.snapshot_map(subject, requested.snapshot, scope.source.content))
    revisions = {r.key: r for r in (target, requested, *rollout_plan.changed)}
    unread = unread_revisions(scope)
    return objects + [
        revision.record(subject, r) for r in revisions.values() if names.revision(scope.key.name, r.key) not in unread
    ]


def _children(scope: Scope, spec: Spec, rollout_plan: RolloutPlan, actuator: Actuator) -> list[Object]:
    objects = [obj for allocation in rollout_plan.slots for obj in _slot(scope, allocation)]
    objects += routing.objects(scope, spec, rollout_plan)
    objects += network_policies.objects(scope, spec)
    if actuator is Actuator.HPA:
        spec, tolerance = routing.serving_spec(scope, spec), _have_tolerance(scope)
        objects.append(render_hpa.hpa(scope.subject, spec, tolerance=tolerance, hold=scope.site.hold_scale_down))
    return objects


def _slot(scope: Scope, allocation: SlotAllocation) -> list[Object]:
    subject, slot, rendered = scope.subject, allocation.slot, allocation.revision
    return [
        server.deployment(
            subject,
            slot,
            rendered.template,
            replicas=allocation.replicas,
            startup_timeout_s=rendered.startup_timeout_s,
            max_surge=allocation.pace.max_surge,
            max_unavailable=allocation.pace.max_unavailable,
        ),
        server.slot_service(subject, slot),
        server.disruption_budget(subject, slot),
    ]


def counts(scope: Scope, plan: ReconcilePlan) -> tuple[int, int, int]:
    """Return the numbers of desired, live and ready server pods, including a canary's.

    A pod with a dead backend is not ready. If spec.replicas is 1, a canary runs beside the one replica, so 2 pods are
    desired.
    """
    live = [p for p in scope.pods if pods.is_live(p)]
    canary = None if plan.rollout is None else plan.rollout.canary
    desired = plan.replicas if canary is None else max(plan.replicas, canary.pods + 1)
    dead = scope.signals.dead if scope.signals else {}
    return desired, len(live), sum(pods.is_ready(p) and p["metadata"]["name"] not in dead for p in live)
