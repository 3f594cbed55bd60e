"""A minimal Deployment controller, scheduler and kubelet, to test the effects of rollout parameters.

The arithmetic is that of Kubernetes (pkg/controller/deployment, rolling.go), one step at a time. Deleted pods are gone
at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from halcyon.api.timestamps import rfc3339
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.objects.pods import project
from halcyon.control.state.scope import CanaryResult, Scope, Signals, SourceState
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from halcyon.render import names, revision
from halcyon.render.revision import Revision
from tests.unit.control.copies import copied
from tests.unit.control.scope_builders import resource, scope_of

START = 1_767_000_000.0


@dataclass
class Server:
    """A pod."""

    name: str
    revision: str
    created: float
    slot: str = "a"
    scheduled: bool = False
    ready: bool = False
    placed: float | None = None
    """Time at which it was scheduled."""
    node: str = ""
    """Node, on a cluster with a volume that only one node can attach."""
    old: bool = False
    """Whether a restart of the Deployment replaces it with another pod of its revision."""


@dataclass(frozen=True)
class Remains:
    """A pod that has ended, or whose deletion never ends because its node is lost."""

    server: Server
    phase: str = "Failed"
    deleted_at: float | None = None
    """Time by which the pod should have ended after its deletion; None if it isn't being deleted."""


@dataclass
class Cluster:
    """A ModelDeployment on a cluster with limited capacity."""

    spec: dict[str, Any]
    room: int
    bad: set[str] = field(default_factory=set)
    """Revisions that fail to load."""
    now: float = START
    annotations: dict[str, str] = field(default_factory=dict)
    annotated_at: dict[str, float] = field(default_factory=dict)
    """Times at which annotations were set; unknown for others."""
    verdict: CanaryResult | None = None
    signals: Signals | None = None
    children: dict[tuple[Kind, str], Object] = field(default_factory=dict)
    records: dict[str, Revision] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    templates: dict[str, list[str]] = field(default_factory=dict)
    """Revisions that the Deployment of each slot has had, in order."""
    created_pods: int = 0
    nodes: tuple[str, ...] = ()
    """Nodes in the order in which pods go to them, in turns. The model's claim is ReadWriteOnce then."""
    gates: tuple[str, ...] = ()
    """Scheduling gates of unscheduled pods."""
    paused: bool = False
    """Whether the Deployments are paused."""
    remains: list[Remains] = field(default_factory=list)
    """Pods that no controller deletes, although they serve no more."""

    @property
    def count(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def ready(self) -> int:
        return sum(s.ready for s in self.servers)

    @property
    def applied(self) -> list[str]:
        """Return the revisions that the Deployment of slot a has had, in order."""
        return self.templates["a"]

    def look(self) -> Scope:
        """Return the scope that the reconciler reads."""
        document = resource(self.spec)
        times = {name: rfc3339(at) for name, at in self.annotated_at.items()}
        document["metadata"] |= {"annotations": dict(self.annotations), "annotatedAt": times}
        return scope_of(
            children=self.children,
            revisions=tuple(self.records.values()),
            pods=(*map(self._pod, self.servers), *map(self._remains, self.remains)),
            now=self.now,
            canary=self.verdict,
            signals=self.signals,
            resource=document,
            **({"source": SourceState(exclusive={"disk": "ReadWriteOnce"})} if self.nodes else {}),
        )

    def operate(self) -> ReconcilePlan:
        """Run one reconcile, without state from earlier ones."""
        planned = make(self.look())
        for obj in (*planned.first, *planned.then):
            kind, name = _KINDS.get(obj["kind"]), obj["metadata"]["name"]
            if obj["kind"] == "ControllerRevision":
                record = revision.read(obj)
                assert record is not None
                self.records[record.key] = record
            elif kind is not None:
                before = self.children.get((kind, name), {"status": {"availableReplicas": 1}})
                self.children[kind, name] = {**copied(obj), "status": before["status"]}
                created = before.get("metadata", {}).get("creationTimestamp", rfc3339(self.now))
                self.children[kind, name]["metadata"]["creationTimestamp"] = created
                if kind is kinds.DEPLOYMENT and self.paused:
                    self.children[kind, name]["spec"]["paused"] = True
                self._raise_generation(self.children[kind, name], before)
        for child in planned.delete:
            self.children.pop(child, None)
        for slot in self.slots():
            now = str(self._deployment(slot)["spec"]["template"]["metadata"]["labels"][names.REVISION_LABEL])
            if self.templates.setdefault(slot, [])[-1:] != [now]:
                self.templates[slot].append(now)
        return planned

    def slots(self) -> list[str]:
        """Return the slots that have a Deployment."""
        return [slot for slot in "ab" if (kinds.DEPLOYMENT, f"digits-{slot}") in self.children]

    def of(self, slot: str) -> list[Server]:
        """Return the pods of a slot."""
        return [s for s in self.servers if s.slot == slot]

    def control(self) -> None:
        """Run one step of the Deployment controller for each slot."""
        for slot in self.slots():
            self._control(slot)
            self._tell(slot)

    def _control(self, slot: str) -> None:
        spec, target = self._deployment(slot)["spec"], self.templates[slot][-1]
        if self.paused:
            return
        new = [s for s in self.of(slot) if s.revision == target and not s.old]
        old = [s for s in self.of(slot) if s not in new]
        rolling, count = spec["strategy"]["rollingUpdate"], spec["replicas"]
        total = len(new) + len(old)
        if len(new) > count:
            self._remove(new, len(new) - count)
        elif len(new) < count and total < count + rolling["maxSurge"]:
            self._create(slot, target, min(count + rolling["maxSurge"] - total, count - len(new)))
        elif old:
            least = count - rolling["maxUnavailable"]
            spare = total - least - sum(not s.ready for s in new)
            broken = [s for s in old if not s.ready][: max(spare, 0)]
            self.servers = [s for s in self.servers if s not in broken]
            if spare > 0:
                ready = sum(s.ready for s in self.of(slot))
                self._remove([s for s in old if s.ready], min(ready - least, spare - len(broken)))

    def schedule(self) -> None:
        """Schedule pods while there is capacity."""
        for server in self.servers:
            if not server.scheduled and sum(s.scheduled for s in self.servers) < self.room:
                server.scheduled, server.placed = True, self.now
                if self.nodes:
                    server.node = self.nodes[self.created_pods % len(self.nodes)]

    def start(self) -> None:
        """Make pods ready whose revision can load."""
        for server in self.servers:
            attached = not self.nodes or all(s.node in {"", server.node} for s in self.servers if s.ready)
            server.ready = server.ready or (server.scheduled and server.revision not in self.bad and attached)
        for slot in self.slots():
            self._tell(slot)

    def settle(self, rounds: int = 40, step_s: float = 15.0) -> ReconcilePlan:
        """Run all components in turn until nothing more happens, and return the last plan."""
        for _ in range(rounds):
            for act in (self.operate, self.control, self.schedule, self.start):
                act()
            self.now += step_s
        return self.operate()

    def key(self, **change: Any) -> str:
        """Change the spec to another revision, and return its key."""
        self.spec |= change
        planned = make(self.look())
        assert planned.rollout is not None
        return planned.rollout.requested.key

    def _deployment(self, slot: str) -> Object:
        return self.children[kinds.DEPLOYMENT, f"digits-{slot}"]

    def _create(self, slot: str, of: str, number: int) -> None:
        for _ in range(number):
            self.created_pods += 1
            self.servers.append(Server(f"p{self.created_pods}", of, self.now, slot))

    def _remove(self, among: list[Server], number: int) -> None:
        removed = sorted(among, key=lambda s: s.ready)[: max(number, 0)]
        self.servers = [s for s in self.servers if s not in removed]

    def _raise_generation(self, after: Object, before: Object) -> None:
        """Increase the generation after a change of the spec, which the controller hasn't observed yet."""
        was = before.get("metadata", {}).get("generation", 0)
        after["metadata"]["generation"] = was + (after.get("spec") != before.get("spec"))

    def _tell(self, slot: str) -> None:
        """Write the Deployment's status, as the Deployment controller does when it has observed the Deployment."""
        deployment, servers = self._deployment(slot), self.of(slot)
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(servers),
            "updatedReplicas": sum(s.revision == self.templates[slot][-1] and not s.old for s in servers),
            "readyReplicas": sum(s.ready for s in servers),
        }

    def _pod(self, server: Server) -> Object:
        conditions = [{"type": "Ready", "status": str(server.ready)}]
        if not server.scheduled:
            text = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: none."
            reason = "SchedulingGated" if self.gates else "Unschedulable"
            condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
            conditions.append(condition | {"lastTransitionTime": rfc3339(server.created)})
        elif server.placed is not None:
            at = rfc3339(server.placed)
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at})
        meta = {"namespace": "team", "name": server.name, "uid": server.name, "resourceVersion": "1"}
        labels = {names.REVISION_LABEL: server.revision, names.SLOT_LABEL: server.slot}
        return project(
            {
                "metadata": {**meta, "labels": labels, "creationTimestamp": rfc3339(server.created)},
                "spec": self._pod_spec(server),
                "status": {
                    "phase": "Running" if server.scheduled else "Pending",
                    "conditions": conditions,
                    **(_containers(started=server.ready) if self.nodes else {}),
                },
            }
        )

    def _remains(self, left: Remains) -> Object:
        pod = self._pod(replace(left.server, ready=False))
        pod["status"]["phase"] = left.phase
        pod["metadata"]["deletionTimestamp"] = None if left.deleted_at is None else rfc3339(left.deleted_at)
        return pod

    def lose(self, server: Server, phase: str = "Failed", deleted_at: float | None = None) -> None:
        """End a pod so that its object stays: the kubelet has evicted it, or its node is lost."""
        self.servers.remove(server)
        self.remains.append(Remains(server, phase, deleted_at))

    def _pod_spec(self, server: Server) -> Object:
        gates = {"schedulingGates": [{"name": name} for name in self.gates]} if not server.scheduled else {}
        volume = {"name": "source", "persistentVolumeClaim": {"claimName": "disk"}}
        return gates | ({"nodeName": server.node, "volumes": [volume]} if server.node else {})


def _containers(*, started: bool) -> Object:
    state = {"running": {"startedAt": rfc3339(START)}} if started else {"waiting": {"reason": "ContainerCreating"}}
    return {"containerStatuses": [{"name": "triton", "state": state, "started": started}]}


_KINDS = {k.kind: k for k in (kinds.DEPLOYMENT, kinds.CONFIG_MAP)}


def served(*, room: int, count: int, **rollout: Any) -> Cluster:
    """Return a cluster on which the first revision serves."""
    cluster = Cluster({**resource()["spec"], "replicas": count, "rollout": rollout}, max(room, count))
    cluster.settle(rounds=count + 3, step_s=1.0)
    assert cluster.ready == count
    cluster.room = room
    return cluster


def without_memory(cluster: Cluster) -> Cluster:
    """Return the cluster as an earlier version left it: with revisions that have no rollout record."""
    cluster.records = {key: replace(r, note="") for key, r in cluster.records.items()}
    return cluster
