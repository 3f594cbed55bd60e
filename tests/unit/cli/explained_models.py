"""ModelDeployments with a status built by the operator's own code, as input for `explain`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from halcyon.control.desired.plan import make
from halcyon.control.state.scope import PublishedScaling
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.scaling.hpa.recommendation import SignalProposal
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity_source import CapacitySource
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.policy.decision import Change, Decision, PolicyName, Signal, of_hpa
from tests.unit.control.scope_builders import applied_children, pod, resource, scope_of

AT = 1_795_082_400.0
"""2026-11-19T10:00:00Z, a Thursday. This is the time of every decision."""
STAMP = "2026-11-19T10:00:00Z"
OURS = ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io", tolerance=True)
THEIRS = ExternalMetricsApi(ours=False, why="external.metrics.k8s.io is served by keda/keda-operator-metrics-apiserver")
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available"
SCALED = {"minReplicas": 1, "maxReplicas": 8}
SIGNALS = (
    Signal("requestRate", 412.4, proposal=5, at=AT - 1),
    Signal("queueDepth", 121.0, proposal=6, at=AT - 1, shown=121.0),
    Signal("gpuUtilization", 287.0, at=AT - 3, shown=95.7),
)
RATE = PlanPart("rate", 5, "412.4 req/s with 10 % headroom at 96.1 per replica needs 5")
CALM = f"5 replicas: {RATE.why}; no limit applies"


@dataclass(frozen=True)
class Situation:
    """A model at some time. Pods are given as counts; `verdict` is the last decision."""

    scaling: dict[str, Any] | None = None
    replicas: int = 5
    ready: int = 5
    starting: int = 0
    stuck: int = 0
    verdict: Decision | None = None
    changes: tuple[Change, ...] = ()
    rival: str = ""
    external_hpa: str = ""
    deployment_hpas: str = ""
    """An external HPA on the Deployment of model pods. `replicas` is then its value, and spec.replicas is 1."""
    metrics_api: ExternalMetricsApi = OURS
    hpa: Object | None = None
    refused: str = ""

    def resource(self) -> Object:
        """Return the object with its status."""
        spec: dict[str, Any] = {"replicas": self.replicas}
        if self.scaling is not None:
            spec["scaling"] = copy.deepcopy(self.scaling)
        before = scope_of(spec, metrics_api=self.metrics_api, external_hpa=self.external_hpa)
        planned = make(before)
        assert planned.target is not None
        key = planned.target.key
        children = applied_children(before)
        if self.deployment_hpas:
            before.resource["spec"]["replicas"] = 1
            before = replace(before, deployment_hpas={"digits-a": self.deployment_hpas})
        children[kinds.DEPLOYMENT, "digits-balancer"]["status"] = {"availableReplicas": 2}
        if self.hpa is not None:
            children[kinds.HPA, "digits"]["status"] = self.hpa
        pods = (
            *(pod(f"digits-a-{n}", ready=True, revision=key) for n in range(self.ready)),
            *(pod(f"digits-a-s{n}", ready=False, revision=key) for n in range(self.starting)),
            *(pod(f"digits-a-u{n}", ready=False, revision=key, unschedulable=NO_NODE) for n in range(self.stuck)),
        )
        now = replace(
            before,
            children=children,
            revisions=(planned.target,),
            pods=pods,
            rejected_write=self.refused,
            scaling=PublishedScaling(self.verdict, self.changes, self.rival),
        )
        return copy.deepcopy(resource(spec, status=status.make(now, make(now), now=STAMP)))


def decided(
    current: int, desired: int | None, why: str = CALM, policy: PolicyName = "Planner", **more: Any
) -> Decision:
    """Return a decision on typical signals."""
    return Decision(AT, policy, current, desired, why, **{"parts": (RATE,), "signals": SIGNALS, **more})


_BY_BATCHES = CapacitySource(
    "BatchStatistics",
    96.1,
    "8 requests in 0.0832 s on one instance, by Triton's batch statistics",
    replica=Replica(ServiceLine(0.04, 0.0054), 8),
    line=ServiceLine(0.04, 0.0054),
    objectives=Objectives(low=0, high=8, max_batch=8, latency_s=0.3),
)
_BACKLOG = PlanPart("backlog", 6, "121 waiting to drain in 10 s needs 6 (1 new)")
_RISING = "6 replicas: 412.4 req/s with 10 % headroom at 96.1 per replica needs 5; 121 waiting to drain in 10 s needs 6 (1 new); no limit applies"
_BEFORE = Change(AT - 7 * 3600, 2, 3, "3 replicas: rising to 240 req/s in 21 s needs 3; no limit applies")
_SHOP = {
    **SCALED,
    "minReplicas": 0,
    "schedules": [
        {"name": "office-hours", "start": "0 8 * * 1-5", "duration": "10h", "timeZone": "Europe/Berlin", "minReplicas": 4},
        {"name": "night", "start": "0 22 * * *", "duration": "8h", "maxReplicas": 2},
    ],
}  # fmt: skip
_RIVAL = (
    "field manager argocd-controller has changed spec.replicas 3 times within 5 min, most "
    "recently to 2; Halcyon has stopped scaling the model and resumes 10 min after the last such "
    "change. Remove that writer, or set spec.scaling.mode: Paused"
)
_SILENT = (
    "the load of some balancers is unknown (digits-balancer-7c9d8b6f5-x2k4w reported last 14 s ago); the limit is 10 s"
)
_BLIND = f"5 replicas: {_SILENT}; the last valid number of replicas is kept"
_RULED = {"minReplicas": 1, "maxReplicas": 8, "policy": "Rules", "targets": {"queueDepth": 16, "latency": "300ms"}}
_BY_RULES = (
    Signal("queueDepth", 61.5, 16, at=AT - 1, shown=61.5),
    Signal("gpuUtilization", 287.0, 80, at=AT - 3, shown=95.7),
)
_PROPOSALS = (
    SignalProposal("queueDepth", 16, 61.5, 0.961, 4, tolerated=True),
    SignalProposal("gpuUtilization", 80, 287.0, 0.897, 4),
)
_HPA_SAYS = {
    "desiredReplicas": 4,
    "conditions": [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "recommended size matches current size"},
        {"type": "ScalingActive", "status": "True", "message": "the HPA was able to successfully calculate a replica count"},
        {"type": "ScalingLimited", "status": "False", "message": "the desired count is within the acceptable range"},
    ],
}  # fmt: skip

SITUATIONS: dict[str, Callable[[], Situation]] = {
    "rising": lambda: Situation(
        {**SCALED, "targets": {"latency": "300ms"}},
        replicas=6,
        ready=3,
        starting=1,
        stuck=2,
        verdict=decided(6, 6, _RISING, parts=(RATE, _BACKLOG), capacity=_BY_BATCHES),
        changes=(Change(AT - 12, 3, 6, _RISING), _BEFORE),
    ),
    "not-written-yet": lambda: Situation(SCALED, replicas=3, ready=3, verdict=decided(3, 5), metrics_api=THEIRS),
    "schedules": lambda: Situation(
        _SHOP,
        replicas=4,
        ready=4,
        verdict=decided(4, 4, "4 replicas: 0 req/s with 5 % headroom at 96.1 per replica needs 0; minReplicas is 4", limited_by=("min",), signals=(Signal("requestRate", 0.0, proposal=0, at=AT - 1), Signal("queueDepth", 0.0, at=AT - 1, shown=0.0)), parts=(PlanPart("rate", 0, "0 req/s with 5 % headroom at 96.1 per replica needs 0"),)),
    ),
    "rules": lambda: Situation(
        _RULED,
        replicas=4,
        ready=4,
        verdict=of_hpa(4, _PROPOSALS, at=AT, signals=_BY_RULES, has_reports=True),
        hpa=_HPA_SAYS,
        changes=(Change(AT - 31, 3, 4, "4 replicas: queueDepth 60 at 16 per replica needs 4; gpuUtilization 221 at 80 per replica needs 3"),),
    ),
    "rules-at-max": lambda: Situation(
        _RULED,
        replicas=8,
        ready=8,
        verdict=of_hpa(8, (SignalProposal("queueDepth", 16, 310.0, 2.42, 20), _PROPOSALS[1]), at=AT, signals=(replace(_BY_RULES[0], value=310.0), _BY_RULES[1]), has_reports=True),
        hpa={
            "desiredReplicas": 8,
            "conditions": [
                {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "recommended size matches current size"},
                {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas", "message": "the desired replica count is more than the maximum replica count"},
            ],
        },
    ),
    "fixed": lambda: Situation(replicas=3, ready=2, starting=1),
    "paused": lambda: Situation({**SCALED, "mode": "Paused"}, replicas=3, ready=3, verdict=decided(3, 5)),
    "recommend": lambda: Situation({**SCALED, "mode": "Recommend"}, replicas=3, ready=3, verdict=decided(3, 5)),
    "undecided": lambda: Situation(SCALED, replicas=1, ready=0, starting=0),
    "blind": lambda: Situation(
        SCALED,
        verdict=decided(
            5,
            5,
            _BLIND,
            parts=(),
            limited_by=("unknown",),
            unknown=_SILENT,
            signals=(Signal("requestRate", missing=_SILENT), Signal("queueDepth", missing=_SILENT)),
        ),
        refused="PATCH Deployment team/digits-a: exceeded quota: gpus, requested: nvidia.com/gpu=1, used: 5, limited: 5",
    ),
    "other-autoscaler": lambda: Situation(SCALED, external_hpa="HorizontalPodAutoscaler keda-hpa-digits"),
    "autoscaler-on-deployment": lambda: Situation(replicas=3, ready=2, starting=1, deployment_hpas="HorizontalPodAutoscaler digits-a"),
    "other-writer": lambda: Situation(
        {**SCALED, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}},
        replicas=2,
        ready=2,
        verdict=decided(2, 5),
        rival=_RIVAL,
    ),
    "idle": lambda: Situation(
        {**SCALED, "minReplicas": 0},
        replicas=0,
        ready=0,
        verdict=decided(0, 0, "0 replicas: no request for 312 s; idleTimeout is 300 s", limited_by=("idle",), parts=(PlanPart("rate", 0, "0 req/s with 5 % headroom at 96.1 per replica needs 0"),), signals=(Signal("requestRate", 0.0, proposal=0, at=AT - 1), Signal("queueDepth", 0.0, at=AT - 1, shown=0.0))),
        changes=(Change(AT, 1, 0, "0 replicas: no request for 300 s; idleTimeout is 300 s"),),
    ),
}  # fmt: skip
"""Situations by the name of their golden files."""
