"""Objects to delete: those that the accepted spec no longer needs, and ControllerRevisions beyond the newest ten. Pure.

An older ControllerRevision is kept if a pod runs its revision, or if a rollout may return to its revision.
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.control.desired import network_policies, routing
from halcyon.control.objects import child_names
from halcyon.control.objects.actuator import Actuator
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.state.ownership import is_ours, own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names, revision
from halcyon.render.names import SLOTS


def surplus(view: Scope, spec: Spec, rolled: RolloutPlan, actuator: Actuator) -> list[tuple[Kind, str]]:
    """Return the kind and the name of each object to delete."""
    found: list[tuple[Kind, str]] = []
    hpa = view.children.get((kinds.HPA, view.key.name))
    if actuator is not Actuator.HPA and hpa is not None and is_ours(view, hpa):
        found.append((kinds.HPA, view.key.name))
    found += routing.surplus(view, spec, rolled)
    found += network_policies.surplus(view, spec)
    unused = set(SLOTS) - {placed.slot for placed in rolled.slots}
    found += [
        (kind, name)
        for slot in unused
        for kind, name in child_names.slot_children(view.key.name, slot)
        if own(view, kind, name)
    ]
    asked, needed_back = rolled.asked, {r.key for r in (rolled.target, rolled.way_back) if r is not None}
    used = {pod["metadata"]["labels"].get(names.REVISION_LABEL) for pod in view.pods} | {asked.key} | needed_back
    by_age = sorted((r for r in view.revisions if r.key != asked.key), key=lambda r: r.number, reverse=True)
    old = [r for r in by_age[revision.HISTORY_LIMIT - 1 :] if r.key not in used]
    found += [(kinds.CONTROLLER_REVISION, names.revision(view.key.name, r.key)) for r in old]
    if unread_revisions(view):
        # Delete no ConfigMap: an unreadable revision may need any of them.
        return found
    kept = [asked, *(r for r in view.revisions if r not in old)]
    needed = set().union(*(revision.config_maps(r, view.key.name) for r in kept))
    found += [(kinds.CONFIG_MAP, name) for name in view.config_maps if name not in needed]
    return found


def unread_revisions(view: Scope) -> set[str]:
    """Return the names of this ModelDeployment's ControllerRevisions that other operator versions wrote."""
    return {
        name
        for (kind, name), obj in view.children.items()
        if kind is kinds.CONTROLLER_REVISION and is_ours(view, obj) and revision.read(obj) is None
    }
