"""The plan of a reconcile: the objects that should exist for a ModelDeployment. Pure.

The plan uses the current spec if the spec is valid and its source exists. Otherwise it uses the last accepted spec. If
no spec was ever accepted, only the status is written. A source whose config.pbtxt is invalid counts as missing.

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
from halcyon.control.desired.name_conflicts import ConflictingObject, conflict, conflicting_objects
from halcyon.control.desired.requested_revision import requested
from halcyon.control.desired.surplus import surplus, unread_revisions
from halcyon.control.objects import pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.rollout import rollout, sequence_models
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.rollout.slot_allocation import SlotAllocation
from halcyon.control.state.ownership import own, server_counts
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, Object, kind_of
from halcyon.render import hpa as render_hpa
from halcyon.render import names, revision, server
from halcyon.render.names import SLOTS
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class ReconcilePlan:
    """Desired state of one ModelDeployment: its objects, and the decisions that lead to them."""

    acceptance: Acceptance
    spec: Spec | None = None
    """The accepted spec; None if no spec was ever accepted."""
    rollout: RolloutPlan | None = None
    """Rollout of the revision that the accepted spec requests; None if no spec was ever accepted."""
    actuator: Actuator = Actuator.NONE
    actuator_why: str = ""
    foreign: ExternalHpa | None = None
    """External HPA that controls the replicas; None if there is none."""
    first: tuple[Object, ...] = ()
    """Objects to which other objects in the plan refer. They are applied before those in `then`."""
    then: tuple[Object, ...] = ()
    delete: tuple[tuple[Kind, str], ...] = ()
    conflicts: tuple[ConflictingObject, ...] = ()
    lingers: bool = False
    """Whether balancer pods that are no longer needed still exist. After they have ended, more objects must be
    deleted."""
    outdated: tuple[str, ...] = ()
    """Differences between the stored rendering of the requested revision and a new rendering by this operator; empty if
    there is no stored rendering."""

    @property
    def target(self) -> Revision | None:
        """Revision that the servers run.

        It is the requested revision, or the previous one if the requested one has failed.
        """
        return None if self.rollout is None else self.rollout.target

    @property
    def followed(self) -> int | None:
        """Number of replicas to copy to spec.replicas from a Deployment that an external HPA scales, or None.

        Because of the copy, the replicas stay the same when the HPA is deleted. Without spec.scaling, or in a mode
        other than Active, Halcyon doesn't write spec.replicas. It then stays as the user has declared it.
        """
        scaling = None if self.spec is None else self.spec.scaling
        is_ours = scaling is not None and scaling.mode == "Active"
        return self.foreign.count if is_ours and self.foreign is not None else None

    @property
    def replicas(self) -> int:
        """Current number of replicas: spec.replicas, or the number that an external HPA has set."""
        return 0 if self.spec is None else defaults.bounded_replicas(self.spec)


def is_servers(obj: Object) -> bool:
    """Return whether an object of a plan is a Deployment of server pods. These are the pods that hold GPUs."""
    component: str = obj["metadata"]["labels"][names.COMPONENT_LABEL]
    return kind_of(obj) is kinds.DEPLOYMENT and component == names.SERVER


def make(view: Scope) -> ReconcilePlan:
    """Return the plan for the reconcile with the given scope."""
    acceptance, spec = _in_force(view)
    planned = _planned(view, acceptance, spec)
    if acceptance.accepted and planned.conflicts and (kept := _stored(view)) is not None:
        return replace(_planned(view, planned.acceptance, kept), acceptance=planned.acceptance)
    return planned


def _planned(view: Scope, acceptance: Acceptance, spec: Spec | None) -> ReconcilePlan:
    """Return the plan for the spec in force."""
    if spec is None:
        return ReconcilePlan(acceptance)
    asked, outdated = requested(view, spec, accepted=acceptance.accepted)
    if acceptance.accepted and asked is not None and (wrong := sequence_models.objection(view, spec, asked)):
        acceptance, spec = Acceptance(accepted=False, reason=Reason.INVALID, message=wrong), _stored(view)
        if spec is None:
            return ReconcilePlan(acceptance)
        asked, outdated = requested(view, spec, accepted=False)
    if asked is None:
        return ReconcilePlan(acceptance)
    if not acceptance.accepted:
        spec = sequence_models.alone(view, spec, asked)  # spec.replicas may belong to the rejected spec
    # Set the digest for a stored spec too: an earlier operator version may have stored no digest, or a different text.
    asked = replace(asked, seal=accepted_spec_digest.of(accepted_spec_digest.text(spec)))
    foreign = autoscaler(view, spec)
    if foreign is not None and foreign.count is not None:
        spec = sequence_models.alone(view, spec.model_copy(update={"replicas": foreign.count}), asked)
    deployments = {slot: own(view, kinds.DEPLOYMENT, names.server(view.key.name, slot)) for slot in SLOTS}
    rolled = rollout.decide(view, spec, asked, {slot: found for slot, found in deployments.items() if found})
    actuator, why = _actuator(view, spec, foreign)
    first = [*_records(view, rolled, acceptance), *routing.first(view, spec)]
    then = _children(view, spec, rolled, actuator)
    conflicts = conflicting_objects(view, [*first, *then])
    if conflicts:
        # Create no new objects for a ModelDeployment that can't be complete; only update those that it already has.
        first, then = (
            [obj for obj in wave if own(view, kind_of(obj), obj["metadata"]["name"])] for wave in (first, then)
        )
        acceptance = conflict(conflicts)
    return ReconcilePlan(
        acceptance=acceptance,
        spec=spec,
        rollout=rolled,
        actuator=actuator,
        actuator_why=why,
        foreign=foreign,
        first=tuple(first),
        then=tuple(then),
        delete=tuple(surplus(view, spec, rolled, actuator)),
        lingers=routing.lingers(view, spec),
        conflicts=tuple(conflicts),
        outdated=outdated,
    )


def _in_force(view: Scope) -> tuple[Acceptance, Spec | None]:
    if view.malformed:
        return Acceptance(accepted=False, reason=Reason.INVALID, message="; ".join(view.malformed)), _stored(view)
    try:
        spec = parse(view.key.name, view.resource.get("spec") or {})
    except SpecError as error:
        return Acceptance(accepted=False, reason=Reason.INVALID, message=str(error)), _stored(view)
    if wrong := objections(spec, view.site):
        return Acceptance(accepted=False, reason=Reason.INVALID, message="; ".join(wrong)), _stored(view)
    if denied := site_policy.refused(view, spec):
        return Acceptance(accepted=False, reason=Reason.POLICY_DENIED, message="; ".join(denied)), _stored(view)
    if view.source.lacking:
        return Acceptance(accepted=False, reason=Reason.INVALID, message=view.source.lacking), _stored(view)
    if view.source.missing:
        refusal = Acceptance(accepted=False, reason=Reason.SOURCE_NOT_FOUND, message=view.source.missing)
        return refusal, _stored(view)
    if wrong_config := config_check.objection(view, spec):
        return Acceptance(accepted=False, reason=Reason.MODEL_CONFIG_INVALID, message=wrong_config), _stored(view)
    return Acceptance(accepted=True, reason=Reason.ACCEPTED, message="the spec is valid"), spec


def _stored(view: Scope) -> Spec | None:
    """Return the last accepted spec, with the current spec.replicas.

    The actuator sets spec.replicas, so the current value does not belong to the rejected spec.
    """
    spec = view.accepted
    if spec is None:
        kept = own(view, kinds.CONFIG_MAP, names.balancer(view.key.name))
        spec = None if kept is None else accepted_spec_digest.read(view.key.name, kept, view.revisions)
    if spec is None:
        return None
    count = (view.resource.get("spec") or {}).get("replicas")
    if not isinstance(count, int) or not 0 <= count <= 1000:  # the field's own bounds
        return spec
    limit = site_policy.most(view, spec)
    there = sum(server_counts(view).values())
    # Keep the running replicas, but allow no more: `kubectl scale` isn't checked by the admission policy and could bypass it.
    return spec.model_copy(update={"replicas": count if limit is None else min(count, max(limit, there))})


# policy     actuator in the spec   Halcyon serves     HPAs keep a      actuator
#                                   the metrics API    tolerance of 0
# any        Direct                 -                  -                Direct
# any        HPA                    -                  -                HPA (the reason mentions a missing tolerance, for Planner)
# Rules      Auto                   yes                -                HPA
# Planner    Auto                   yes                yes              HPA
# any        Auto                   else                                Direct
def _actuator(view: Scope, spec: Spec, foreign: ExternalHpa | None) -> tuple[Actuator, str]:
    if foreign is not None:
        return Actuator.NONE, foreign.why
    if spec.scaling is None:
        return Actuator.NONE, "spec.scaling is not set, so the number of replicas is spec.replicas"
    planned = defaults.policy(spec) == "Planner"
    coarse = "HPAs in this cluster do not support a configurable tolerance, so they ignore changes of up to 10 %"
    if spec.scaling.actuator == "Direct":
        return Actuator.DIRECT, "spec.scaling.actuator is Direct"
    if spec.scaling.actuator == "HPA":
        why = "spec.scaling.actuator is HPA"
        return Actuator.HPA, why if not planned or view.metrics_api.tolerance else f"{why}, but {coarse}"
    if view.metrics_api.ours and (not planned or view.metrics_api.tolerance):
        return Actuator.HPA, f"Auto: {view.metrics_api.why}"
    why = coarse if view.metrics_api.ours else view.metrics_api.why
    return Actuator.DIRECT, f"Auto: {why}"


def _records(view: Scope, rolled: RolloutPlan, acceptance: Acceptance) -> list[Object]:
    subject, asked, target = view.subject, rolled.asked, rolled.target
    objects = [revision.overlay_map(subject, asked)]
    if target.overlay != asked.overlay:
        objects.append(revision.overlay_map(subject, target))
    if asked.snapshot and acceptance.accepted and view.source.content is not None:
        objects.append(revision.snapshot_map(subject, asked.snapshot, view.source.content))
    known = {r.key: r for r in (target, asked, *rolled.changed)}
    unread = unread_revisions(view)
    return objects + [
        revision.record(subject, r) for r in known.values() if names.revision(view.key.name, r.key) not in unread
    ]


def _children(view: Scope, spec: Spec, rolled: RolloutPlan, actuator: Actuator) -> list[Object]:
    objects = [made for placed in rolled.slots for made in _slot(view, placed)]
    objects += routing.then(view, spec, rolled)
    objects += network_policies.then(view, spec)
    if actuator is Actuator.HPA:
        objects.append(
            render_hpa.hpa(view.subject, spec, tolerance=view.metrics_api.tolerance, hold=view.site.hold_scale_down)
        )
    return objects


def _slot(view: Scope, placed: SlotAllocation) -> list[Object]:
    subject, slot, made_of = view.subject, placed.slot, placed.revision
    return [
        server.deployment(
            subject,
            slot,
            made_of.template,
            replicas=placed.replicas,
            startup_timeout_s=made_of.startup_timeout_s,
            max_surge=placed.pace.max_surge,
            max_unavailable=placed.pace.max_unavailable,
        ),
        server.slot_service(subject, slot),
        server.disruption_budget(subject, slot),
    ]


def counts(view: Scope, plan: ReconcilePlan) -> tuple[int, int, int]:
    """Return the numbers of desired, live and ready server pods, including a canary's.

    A pod with a dead backend is not ready. If spec.replicas is 1, a canary runs beside the one replica, so 2 pods are
    desired.
    """
    live = [p for p in view.pods if pods.is_live(p)]
    canary = None if plan.rollout is None else plan.rollout.canary
    desired = plan.replicas if canary is None else max(plan.replicas, canary.pods + 1)
    dead = view.signals.dead if view.signals else {}
    return desired, len(live), sum(pods.is_ready(p) and p["metadata"]["name"] not in dead for p in live)
