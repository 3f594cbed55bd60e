"""ModelDeployments with all their objects, as read from the API server, as input for `get NAME` and `diagnose`.

The objects are built by the operator's own plan and status code for a small simulated cluster (`rolling`). Pods get the
status that a kubelet would write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halcyon.api.timestamps import rfc3339
from halcyon.control.desired.plan import make
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import CHILDREN
from halcyon.render import names, revision
from halcyon_cli.kube.inventory import Inventory
from tests.unit.cli.explained_models import OURS, SCALED
from tests.unit.control.rollout.deployment_simulation import START, Cluster, Server, served
from tests.unit.control.scope_builders import resource
from tests.unit.render.rendered import SUBJECT

NOW = START + 400_000
NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: none."
RUNNING: Object = {"running": {"startedAt": rfc3339(START + 5)}}
FETCHED: Object = {"name": "fetch", "state": {"terminated": {"exitCode": 0}}, "restartCount": 0}
WAITS: Object = {"waiting": {"reason": "PodInitializing"}}


def pod(
    name: str,
    *,
    key: str = "",
    slot: str = "a",
    component: str = names.SERVER,
    ready: bool = False,
    containers: list[Any] | None = None,
    init: list[Any] | None = None,
    **more: Any,
) -> Object:
    """Return a pod on node gpu-1. `more` overrides its metadata and status."""
    labels = names.labels("digits", component)
    if component == names.SERVER:
        labels |= {names.SLOT_LABEL: slot, names.REVISION_LABEL: key}
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    meta["creationTimestamp"] = rfc3339(START)
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(START + 1)},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": rfc3339(START + 60 if ready else START + 1)},
    ]
    usual = [{"name": "triton", "state": RUNNING, "started": True, "restartCount": 0}]
    pod_status = {
        "phase": "Running" if ready else "Pending",
        "conditions": conditions,
        "initContainerStatuses": [FETCHED] if init is None else init,
        "containerStatuses": usual if containers is None else containers,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, **more.get("metadata", {})},
        "spec": {"nodeName": "gpu-1"} if more.get("node", True) else {},
        "status": {**pod_status, **more.get("status", {})},
    }


def unschedulable(name: str, key: str, message: str = NO_GPU, **more: Any) -> Object:
    """Return a pod that fits on no node."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    never = {"type": "Ready", "status": "False"}
    return pod(name, key=key, node=False, init=[], containers=[], status={"conditions": [scheduled, never]}, **more)


def dressed(server: Server) -> Object:
    """Return a pod of the small cluster with a full status."""
    more: dict[str, Any] = {"slot": server.slot, "metadata": {"creationTimestamp": rfc3339(server.created)}}
    if not server.scheduled:
        return unschedulable(server.name, server.revision, **more)
    containers = None if server.ready else [{"name": "triton", "state": RUNNING, "started": False, "restartCount": 0}]
    return pod(server.name, key=server.revision, ready=server.ready, containers=containers, **more)


def inventory(
    cluster: Cluster, *more: Object, model: Callable[[Object], None] = lambda _: None, **fields: Any
) -> Inventory:
    """Return the inventory of the small cluster.

    `more` are additional pods; `fields` override the scope of the status.
    """
    from dataclasses import replace  # noqa: PLC0415

    cluster.operate()
    now = replace(cluster.look(), **fields)
    planned = make(now)
    children = [o for (kind, _), o in cluster.children.items() if kind in CHILDREN]
    children += [o for o in planned.then if o["kind"] == "HorizontalPodAutoscaler"]
    balancer = next(o for o in children if o["metadata"]["name"] == "digits-balancer" and o["kind"] == "Deployment")
    balancer["status"] = {"availableReplicas": 2, "readyReplicas": 2}
    now = replace(now, children={**now.children, (kinds.DEPLOYMENT, "digits-balancer"): balancer})
    spec = cluster.spec
    document = resource(spec, status=status.make(now, make(now), now=rfc3339(cluster.now)))
    document["metadata"] |= {"annotations": cluster.annotations, "creationTimestamp": rfc3339(START)}
    for obj in children:
        obj["metadata"].setdefault("creationTimestamp", rfc3339(START))
    records = [revision.record(SUBJECT, r) for r in cluster.records.values()]
    for record in records:
        record["metadata"]["creationTimestamp"] = rfc3339(START)
    beside = [pod(f"digits-balancer-{n}", component=names.BALANCER, ready=True, init=[]) for n in range(2)]
    model(document)
    return Inventory(
        model=document,
        deployments=[o for o in children if o["kind"] == "Deployment"],
        pods=[*map(dressed, cluster.servers), *more, *beside],
        hpas=[o for o in children if o["kind"] == "HorizontalPodAutoscaler"],
        revisions=records,
    )


def steady() -> Inventory:
    """Return a model with two pods that serve, scaled by an HPA."""
    cluster = served(room=2, count=2)
    cluster.spec["scaling"] = dict(SCALED)
    scaled = inventory(cluster, metrics_api=OURS)
    scaled.hpas[0]["status"] = {
        "desiredReplicas": 2,
        "conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}],
    }
    return scaled


def no_room() -> Inventory:
    """Return a model with three desired pods and capacity for two."""
    cluster = served(room=2, count=2)
    cluster.spec["replicas"] = 3
    cluster.settle(rounds=3, step_s=1.0)
    return inventory(cluster)


def surge() -> Inventory:
    """Return a model whose next revision is starting one of its pods."""
    cluster = served(room=3, count=2)
    cluster.key(batching={"maxBatchSize": 4})
    cluster.operate()
    cluster.control()
    cluster.schedule()
    return inventory(cluster)


def canary() -> Inventory:
    """Return a model with a canary that has its pod and its share of the requests."""
    cluster = served(room=5, count=4, strategy="Canary")
    cluster.key(batching={"maxBatchSize": 4})
    cluster.settle(rounds=3, step_s=1.0)
    return inventory(cluster)


def failed() -> Inventory:
    """Return a model that was rolled back from a revision that didn't load."""
    cluster = served(room=3, count=2)
    cluster.bad.add(cluster.key(batching={"maxBatchSize": 4}))
    cluster.settle(rounds=5, step_s=400.0)
    return inventory(cluster)


def stages() -> Inventory:
    """Return a model with a pod in each stage."""
    cluster = served(room=1, count=1)
    key = cluster.servers[0].revision
    start: dict[str, Any] = {"name": "triton", "restartCount": 0}
    fell: dict[str, Any] = {"exitCode": 137, "reason": "OOMKilled"}
    pull: dict[str, Any] = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "triton:nope"'}
    verdict = '{"reason": "ModelSourceNotFound", "message": "claim models holds no folder resnet"}'
    many: list[Object] = [
        pod("p-draining", key=key, ready=True, metadata={"deletionTimestamp": rfc3339(START + 90)}),
        pod("p-evicted", key=key, status={"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
        unschedulable("p-no-room", key),
        pod("p-new", key=key, node=False, status={"conditions": []}, init=[], containers=[]),
        pod("p-pulling", key=key, init=[{"name": "fetch", "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}], containers=[]),
        pod("p-fetching", key=key, init=[{"name": "fetch", "state": RUNNING, "restartCount": 0}], containers=[{**start, "state": WAITS}]),
        pod("p-pulling-too", key=key, containers=[{**start, "state": WAITS}]),
        pod("p-loading", key=key, containers=[{**start, "state": RUNNING, "started": False}]),
        pod("p-warming", key=key, containers=[{**start, "state": RUNNING, "started": True}]),
        pod("p-unready", key=key, status={"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(START + 900), "message": "containers with unready status: [triton]"}]}),
        pod("p-no-image", key=key, containers=[{**start, "image": "triton:nope", "state": {"waiting": pull}}]),
        pod("p-no-model", key=key, init=[{"name": "fetch", "state": {"terminated": {"exitCode": 1, "message": verdict}}, "restartCount": 3}], containers=[]),
        pod("p-fallen", key=key, containers=[{**start, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": fell}}]),
    ]  # fmt: skip
    return inventory(cluster, *many)


def unheard() -> Inventory:
    """Return a model that no operator has processed."""
    fresh = resource({"replicas": 2})
    fresh["metadata"]["creationTimestamp"] = rfc3339(START)
    return Inventory(fresh, unreadable=('pods can\'t be shown: no access: User "bob" cannot list resource "pods"',))


SCENES: dict[str, Callable[[], Inventory]] = {
    "tree-steady": steady,
    "tree-no-room": no_room,
    "tree-surge": surge,
    "tree-canary": canary,
    "tree-failed": failed,
    "tree-stages": stages,
    "tree-unheard": unheard,
}
