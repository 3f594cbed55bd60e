"""Waits until an operator and what it works on are at rest.

The operator's page /metrics has the numbers of models that are queued or scheduled for later, so a run without any is at rest as soon as
nothing changes any more. If something stays scheduled, a run is at rest after a longer time without a write.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from halcyon.control.autoscaling.status_updates import SETTLED_S
from halcyon.control.reconcile.status_writer import STATUS_INTERVAL_S
from halcyon.monitoring import operator_metrics
from tests.faults.forks import ForkedOperator
from tests.faults.ledger import Ledger
from tests.faults.oracles import Object
from tests.integration.proxy import Door

REST_S = STATUS_INTERVAL_S + 2.0
"""Time without a write after which a run is at rest although something is scheduled: values in a status may wait."""
IDLE_S = 6.0
"""Time without a write or a change of an object after which a run with empty queues is at rest. On a busy machine a reconcile that is
under way, and so in no queue, or an informer between two attempts may write nothing for some seconds."""
SETTLED_AFTER_S = SETTLED_S + 1.0
"""Time from the start of an operator after which it has published that no reports come."""
_POLL_S = 0.2


def at_rest(
    operator: ForkedOperator,
    door: Door,
    ledger: Ledger,
    namespaces: Collection[str],
    end: float,
    *,
    settled: bool = True,
) -> dict[str, str]:
    """Wait until the operator is at rest, or killed; return the last writes by namespace if this isn't so in time.

    Args:
        operator: the operator behind the door.
        door: the door.
        ledger: the changes of objects.
        namespaces: namespaces of the runs. What is left of others may still be deleted.
        end: monotonic time in seconds at which the wait ends.
        settled: whether to wait until the operator has published that no reports come.
    """
    began = time.monotonic()
    while True:
        if door.closed.is_set():
            return {}
        writes = [
            request
            for request in door.writes()
            if request.namespace in namespaces and not request.target.startswith("events")
        ]
        written = max((request.at for request in writes), default=0.0)
        now = time.monotonic()
        old_enough = not settled or now - operator.began >= SETTLED_AFTER_S
        if old_enough and now - max(written, began) >= REST_S:
            return {}
        if now > end:
            return {r.namespace: f"{r.method} {r.target}" for r in writes if now - r.at < REST_S}
        if (
            old_enough
            and now - max(written, began, ledger.changed_at(namespaces)) >= IDLE_S
            and has_empty_queues(operator)
        ):
            return {}
        time.sleep(_POLL_S)


def unsettled(deployments: Iterable[Object], pods: Iterable[Object]) -> list[str]:
    """Return the names of Deployments and pods that Kubernetes still works on.

    A Deployment has settled if its controller has observed its generation and created its replicas. They must be of the newest template,
    unless some are unavailable: a rollout waits for those. A pod has settled if it is Ready, or if the scheduler has found no node for it; one that
    terminates hasn't.
    """
    names = []
    for deployment in deployments:
        status, replicas = deployment.get("status") or {}, deployment["spec"]["replicas"]
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        updated = status.get("updatedReplicas", 0) >= replicas or status.get("unavailableReplicas", 0) > 0
        if not (seen and updated and status.get("replicas", 0) >= replicas):
            names.append(deployment["metadata"]["name"])
    for pod in pods:
        conditions = {c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or ()}
        done = conditions.get("Ready") == "True" or conditions.get("PodScheduled") == "False"
        if "deletionTimestamp" in pod["metadata"] or not done:
            names.append(pod["metadata"]["name"])
    return names


def has_empty_queues(operator: ForkedOperator) -> bool:
    """Return whether the operator has no model queued, and none scheduled for later."""
    metrics = operator.metrics()
    names = (operator_metrics.QUEUE_READY.name, operator_metrics.QUEUE_WAITING.name)
    return all(metrics.get(name) == 0.0 for name in names)
