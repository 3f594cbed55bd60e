"""The serving revision of a model, whose settings apply to all of its pods during a rollout. Pure.

Out of scope: the revision that a rollout leads to (`RolloutPlan.target`), and the last revision that was rolled out
completely (`status.revision.current`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from halcyon.control.objects import pods
from halcyon.control.objects.deployment_status import deployed_revision
from halcyon.control.state.ownership import own_servers
from halcyon.control.state.scope import Scope
from halcyon.kube.kinds import Object
from halcyon.render.revision import Revision


def serving_revision(deployments: Iterable[Object], server_pods: Iterable[Object]) -> str:
    """Return the key of the revision that most ready pods run; empty for a model without pods and Deployments.

    If no pod is ready, or if several revisions have equally many, it is the revision of the main Deployment.
    """
    ready = Counter(filter(None, (pods.revision(pod) for pod in server_pods if pods.is_ready(pod))))
    leading = [key for key, count in ready.items() if count == max(ready.values())]
    if len(leading) == 1:  # the usual case: no Deployment is read, which costs time in the caches
        return leading[0]
    deployment = main_deployment(deployments)
    main = "" if deployment is None else deployed_revision(deployment)
    return min(leading) if leading and main not in leading else main


def main_deployment(deployments: Iterable[Object]) -> Object | None:
    """Return the server Deployment with most replicas, and of equal ones the older; the younger is a canary's."""
    by_age = sorted(deployments, key=lambda d: d["metadata"].get("creationTimestamp") or "")
    return max(by_age, key=lambda d: int(d["spec"].get("replicas") or 0), default=None)


def stored_serving_revision(scope: Scope) -> Revision | None:
    """Return the serving revision of the model in a scope; None if there is none, or if its record can't be read."""
    key = serving_revision(own_servers(scope).values(), scope.pods)
    return next((revision for revision in scope.revisions if revision.key == key), None)
