"""The plan of a reconcile: from what is to the objects that should be. Pure.

spec valid?  source there?   in force
yes          yes             this spec; the revision of its key, rendered or from its record
yes          no              the accepted spec, with the newest revision
no           -               the accepted spec, with its revision
no, and nothing was ever accepted: nothing but the status
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum

from halcyon.api import defaults
from halcyon.api.conditions import Reason
from halcyon.api.parse import SpecError, parse
from halcyon.api.spec import Spec
from halcyon.control import kinds
from halcyon.control.client import Object
from halcyon.control.kinds import Kind, kind_of
from halcyon.control.view import View
from halcyon.render import balancer, names, revision, scaler, server
from halcyon.render.names import SLOT_A
from halcyon.render.revision import Revision


class Actuator(Enum):
    """What writes the count."""

    NONE = "None"
    HPA = "HPA"
    DIRECT = "Direct"


@dataclass(frozen=True)
class Acceptance:
    """Whether the spec as it stands was accepted, and why not."""

    accepted: bool
    reason: Reason
    message: str


@dataclass(frozen=True)
class Stranger:
    """An object of a name that we need and that isn't ours."""

    kind: str
    name: str
    leaving: bool
    """It belongs to a ModelDeployment of the same name that was deleted: it will go."""


@dataclass(frozen=True)
class Plan:
    """What should be."""

    acceptance: Acceptance
    spec: Spec | None = None
    """The spec in force."""
    target: Revision | None = None
    """Its revision."""
    actuator: Actuator = Actuator.NONE
    actuator_why: str = ""
    first: tuple[Object, ...] = ()
    """Objects that others refer to: applied before them."""
    then: tuple[Object, ...] = ()
    delete: tuple[tuple[Kind, str], ...] = ()
    strangers: tuple[Stranger, ...] = ()

    @property
    def replicas(self) -> int:
        """The count in force."""
        return 0 if self.spec is None else defaults.wanted_replicas(self.spec)


def names_needed(name: str) -> list[tuple[Kind, str]]:
    """Kind and name of every object with a fixed name that a ModelDeployment may need."""
    beside = names.balancer(name)
    return [
        (kinds.SERVICE, name),
        (kinds.HPA, name),
        (kinds.DEPLOYMENT, names.server(name, SLOT_A)),
        (kinds.PDB, names.server(name, SLOT_A)),
        (kinds.SERVICE, names.slot_service(name, SLOT_A)),
        (kinds.DEPLOYMENT, beside),
        (kinds.PDB, beside),
        (kinds.CONFIG_MAP, beside),
        (kinds.SERVICE_ACCOUNT, beside),
        (kinds.ROLE, beside),
        (kinds.ROLE_BINDING, beside),
    ]


def make(view: View) -> Plan:
    """The plan for this view."""
    acceptance, spec = _in_force(view)
    if spec is None:
        return Plan(acceptance)
    target = _target(view, spec, accepted=acceptance.accepted)
    if target is None:
        return Plan(acceptance)
    actuator, why = _actuator(view, spec)
    first = _records(view, target, acceptance)
    # The API server takes a RoleBinding only where its Role exists, and pods only where their ServiceAccount does.
    first += [balancer.service_account(view.subject), balancer.role(view.subject)]
    then = _children(view, spec, target, actuator)
    strangers = _strangers(view, [*first, *then])
    if strangers:
        # Nothing new is made for a ModelDeployment that can't be complete; what is ours already is kept as it should be.
        first, then = _existing(view, first), _existing(view, then)
        acceptance = _conflict(strangers)
    return Plan(
        acceptance=acceptance,
        spec=spec,
        target=target,
        actuator=actuator,
        actuator_why=why,
        first=tuple(first),
        then=tuple(then),
        delete=tuple(_surplus(view, target, actuator)),
        strangers=tuple(strangers),
    )


def _in_force(view: View) -> tuple[Acceptance, Spec | None]:
    try:
        spec = parse(view.key.name, view.resource.get("spec") or {})
    except SpecError as error:
        return Acceptance(accepted=False, reason=Reason.INVALID, message=str(error)), _stored(view)
    if view.source.missing:
        refusal = Acceptance(accepted=False, reason=Reason.SOURCE_NOT_FOUND, message=view.source.missing)
        return refusal, _stored(view)
    return Acceptance(accepted=True, reason=Reason.ACCEPTED, message="the spec is valid"), spec


def _stored(view: View) -> Spec | None:
    """The spec accepted last, with the count as it is now: the count is the actuator's, not part of what was refused."""
    kept = view.children.get((kinds.CONFIG_MAP, names.balancer(view.key.name)))
    if kept is None or not is_ours(view, kept):
        return None
    try:
        spec = parse(view.key.name, json.loads(kept["data"][balancer.ACCEPTED_KEY]))
    except (SpecError, KeyError, ValueError):
        return None
    count = (view.resource.get("spec") or {}).get("replicas")
    valid = isinstance(count, int) and 0 <= count <= 1000  # the field's own bounds
    return spec.model_copy(update={"replicas": count}) if valid else spec


def _target(view: View, spec: Spec, *, accepted: bool) -> Revision | None:
    newest = max(view.revisions, key=lambda r: r.number, default=None)
    if not accepted:
        return newest
    wanted = revision.key(view.subject, spec, view.source.content)
    number = newest.number if newest else 0
    known = next((r for r in view.revisions if r.key == wanted), None)
    if known is None:
        return revision.render(view.subject, spec, view.site, view.source.content, number=number + 1)
    return known if known.number == number else replace(known, number=number + 1)


def _actuator(view: View, spec: Spec) -> tuple[Actuator, str]:
    if spec.scaling is None:
        return Actuator.NONE, "there is no spec.scaling: spec.replicas is the count"
    if view.foreign_autoscaler:
        return Actuator.NONE, f"HorizontalPodAutoscaler {view.foreign_autoscaler} scales this ModelDeployment"
    if spec.scaling.actuator == "Direct":
        return Actuator.DIRECT, "spec.scaling.actuator is Direct"
    if spec.scaling.actuator == "HPA":
        return Actuator.HPA, "spec.scaling.actuator is HPA"
    if view.metrics_api.ours:
        return Actuator.HPA, f"Auto: {view.metrics_api.why}"
    return Actuator.DIRECT, f"Auto: {view.metrics_api.why}"


def _records(view: View, target: Revision, acceptance: Acceptance) -> list[Object]:
    subject = view.subject
    objects = [revision.overlay_map(subject, target)]
    if target.snapshot and acceptance.accepted and view.source.content is not None:
        objects.append(revision.snapshot_map(subject, target.snapshot, view.source.content))
    if names.revision(view.key.name, target.key) not in _unread(view):
        objects.append(revision.record(subject, target))
    return objects


def _unread(view: View) -> set[str]:
    """Names of our records that another version of the operator has written, in a format of its own."""
    return {
        name
        for (kind, name), obj in view.children.items()
        if kind is kinds.CONTROLLER_REVISION and is_ours(view, obj) and revision.read(obj) is None
    }


def _children(view: View, spec: Spec, target: Revision, actuator: Actuator) -> list[Object]:
    subject, site = view.subject, view.site
    accepted_spec = json.dumps(spec.model_copy(update={"replicas": 1}).to_dict(), sort_keys=True, separators=(",", ":"))
    objects = [
        server.deployment(
            subject,
            SLOT_A,
            target.template,
            replicas=defaults.wanted_replicas(spec),
            startup_timeout_s=target.startup_timeout_s,
        ),
        balancer.role_binding(subject),
        balancer.config_map(subject, balancer.plan(subject, spec, site, (SLOT_A,)), accepted_spec),
        balancer.deployment(subject, spec, site),
        balancer.service(subject),
        server.slot_service(subject, SLOT_A),
        server.disruption_budget(subject, SLOT_A),
        balancer.disruption_budget(subject),
    ]
    if actuator is Actuator.HPA:
        objects.append(scaler.hpa(subject, spec))
    return objects


def is_ours(view: View, obj: Object) -> bool:
    """Whether the object's controller is this very ModelDeployment, not an earlier one of its name."""
    return any(
        o.get("controller") and o.get("uid") == view.meta["uid"] for o in obj["metadata"].get("ownerReferences") or ()
    )


def _strangers(view: View, objects: list[Object]) -> list[Stranger]:
    found = []
    for wanted in objects:
        there = view.children.get((kind_of(wanted), wanted["metadata"]["name"]))
        if there is not None and not is_ours(view, there):
            owners = there["metadata"].get("ownerReferences") or ()
            leaving = any(
                o.get("kind") == kinds.MODEL_DEPLOYMENT.kind and o.get("name") == view.key.name for o in owners
            )
            found.append(Stranger(wanted["kind"], wanted["metadata"]["name"], leaving=leaving))
    return found


def _conflict(strangers: list[Stranger]) -> Acceptance:
    said = ", ".join(f"{s.kind} {s.name}" for s in strangers)
    if all(s.leaving for s in strangers):
        message = f"waiting until {said} of the deleted ModelDeployment of this name are gone"
    else:
        message = (
            f"{said} exists and doesn't belong to this ModelDeployment; it is left untouched. Rename or delete it, or "
            "give the ModelDeployment another name"
        )
    return Acceptance(accepted=False, reason=Reason.CONFLICT, message=message)


def _existing(view: View, objects: list[Object]) -> list[Object]:
    kept = []
    for obj in objects:
        there = view.children.get((kind_of(obj), obj["metadata"]["name"]))
        if there is not None and is_ours(view, there):
            kept.append(obj)
    return kept


def _surplus(view: View, target: Revision, actuator: Actuator) -> list[tuple[Kind, str]]:
    surplus: list[tuple[Kind, str]] = []
    hpa = view.children.get((kinds.HPA, view.key.name))
    if actuator is not Actuator.HPA and hpa is not None and is_ours(view, hpa):
        surplus.append((kinds.HPA, view.key.name))
    used = {pod["metadata"]["labels"].get(names.REVISION_LABEL) for pod in view.pods} | {target.key}
    by_age = sorted((r for r in view.revisions if r.key != target.key), key=lambda r: r.number, reverse=True)
    old = [r for r in by_age[revision.KEPT - 1 :] if r.key not in used]
    surplus += [(kinds.CONTROLLER_REVISION, names.revision(view.key.name, r.key)) for r in old]
    if _unread(view):
        # What can't be read may need any of the ConfigMaps.
        return surplus
    kept = [target, *(r for r in view.revisions if r not in old)]
    needed = set().union(*(revision.config_maps(r, view.key.name) for r in kept))
    surplus += [(kinds.CONFIG_MAP, name) for name in view.config_maps if name not in needed]
    return surplus
