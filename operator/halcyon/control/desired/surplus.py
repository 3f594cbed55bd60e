"""Objects to delete: those that the accepted spec no longer needs, and ControllerRevisions beyond the newest ten. Pure.

An older ControllerRevision is kept if a pod or a server Deployment has its revision, or if a rollout may return to it.
An object stays while another that may need it is an orphan. Its adoption may have failed, so this plan doesn't know it.
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.control.desired import network_policies, routing
from halcyon.control.desired.name_conflicts import orphans
from halcyon.control.objects import child_names, pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.rollout_plan import RolloutPlan
from halcyon.control.state.ownership import is_ours, own, own_servers
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names, revision
from halcyon.render.names import SLOTS


def surplus(scope: Scope, spec: Spec, rollout: RolloutPlan, actuator: Actuator) -> list[tuple[Kind, str]]:
    """Return the kind and the name of each object to delete."""
    objects: list[tuple[Kind, str]] = []
    if actuator is not Actuator.HPA and own(scope, kinds.HPA, scope.key.name):
        objects.append((kinds.HPA, scope.key.name))
    objects += routing.surplus(scope, spec, rollout)
    objects += network_policies.surplus(scope, spec)
    orphaned = orphans(scope)
    for slot in set(SLOTS) - {allocation.slot for allocation in rollout.slots}:
        if (kinds.DEPLOYMENT, names.server(scope.key.name, slot)) in orphaned:
            continue  # its pods receive requests through the slot's Service
        objects += [child for child in child_names.slot_children(scope.key.name, slot) if own(scope, *child)]
    requested = rollout.requested
    used = {pods.revision(pod) for pod in scope.pods} | {SlotState.of(d).revision for d in own_servers(scope).values()}
    used |= {r.key for r in (requested, rollout.target, rollout.rollback_revision) if r is not None}
    by_age = sorted((r for r in scope.revisions if r.key != requested.key), key=lambda r: r.number, reverse=True)
    unused_revisions = [r for r in by_age[revision.HISTORY_LIMIT - 1 :] if r.key not in used]
    objects += [(kinds.CONTROLLER_REVISION, names.revision(scope.key.name, r.key)) for r in unused_revisions]
    if unread_revisions(scope) or any(kind is kinds.CONTROLLER_REVISION for kind, _ in orphaned):
        # Delete no ConfigMap: a revision that is unreadable or not adopted yet may need any of them.
        return objects
    kept = [requested, *(r for r in scope.revisions if r not in unused_revisions)]
    needed = set().union(*(revision.config_maps(r, scope.key.name) for r in kept))
    objects += [(kinds.CONFIG_MAP, name) for name in scope.config_maps if name not in needed]
    return objects


def unread_revisions(scope: Scope) -> set[str]:
    """Return the names of this ModelDeployment's ControllerRevisions that other operator versions wrote."""
    return {
        name
        for (kind, name), obj in scope.children.items()
        if kind is kinds.CONTROLLER_REVISION and is_ours(scope, obj) and revision.read(obj) is None
    }
