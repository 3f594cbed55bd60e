"""Rules of `diagnose` for conditions whose message names the cause. Pure.

Out of scope: conditions with more evidence than their message (`model_rules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halcyon.api.conditions import Reason, Type
from halcyon_cli.diagnose.facts import Cause, ConditionIndex, Facts


@dataclass(frozen=True)
class _Abnormal:
    """Condition that shows a cause, with its weight, summary and next step.

    The next step may contain the placeholders `{name}` and `{namespace}` of the model.
    """

    condition: Type
    status: str
    reasons: tuple[Reason, ...]
    """Reasons that show the cause; empty for all reasons."""
    weight: int
    summary: str
    next_step: str


_ABNORMAL = (
    _Abnormal(Type.RECONCILING, "True", (Reason.WRITES_FAILING,), 82, "the operator can't write an object of the model",
        "repair the webhook or policy that the message names; the operator retries by itself"),
    _Abnormal(Type.ROUTES_ACCEPTED, "False", (), 79, "the Gateway does not route requests to the model",
        "kubectl describe httproute {name} -n {namespace}"),
    _Abnormal(Type.ROUTES_ACCEPTED, "Unknown", (), 59, "the Gateway has not accepted the routes yet",
        "check that the Gateway exists and that its controller runs: kubectl describe httproute {name} -n {namespace}"),
    _Abnormal(Type.SERVERS_READY, "False", (Reason.BACKEND_DEAD,), 78, "the backend of a pod is dead",
        "read the log of the container before its restart: halcyon logs {name} -n {namespace} -c triton --previous"),
    _Abnormal(Type.REQUESTS_FAILING, "True", (), 76, "all requests to a pod fail",
        "compare the clients' requests with the model's inputs; if only one pod fails, delete it: kubectl delete pod POD -n {namespace}"),
    _Abnormal(Type.RECONCILING, "True", (Reason.DEPLOYMENT_PAUSED,), 73, "the Deployment of the servers is paused",
        "kubectl rollout resume deployment/{name}-a -n {namespace} (or {name}-b)"),
    _Abnormal(Type.OPERATOR_CONFLICT, "True", (), 70, "two Halcyon releases watch the namespace",
        "uninstall one of them, or change its chart value watchNamespaces"),
    _Abnormal(Type.BALANCER_READY, "True", (Reason.BALANCER_DEGRADED,), 61, "a balancer can't do everything that the spec requires",
        "correct the Secret that the message names, or read the agents' log: halcyon logs {name} -n {namespace} -c agent"),
    _Abnormal(Type.SCALING_ACTIVE, "False", (Reason.SCALING_DISABLED,), 56, "spec.replicas is 0, which disables scaling",
        "follow the message"),
    _Abnormal(Type.RECONCILING, "True", (Reason.CANARY_PAUSED,), 40, "a canary waits for a user",
        "halcyon promote {name} --step -n {namespace}, or halcyon abort {name} -n {namespace}"),
    _Abnormal(Type.TIMEOUT_MISMATCH, "True", (Reason.QUEUE_DELAY_TOO_LONG,), 20, "requests may wait for their batch beyond their timeout",
        "lower spec.batching.maxQueueDelay"),
    _Abnormal(Type.TIMEOUT_MISMATCH, "True", (Reason.QUEUE_TIMEOUT_TOO_SHORT,), 20, "requests at zero replicas are rejected before a pod is ready",
        "remove spec.traffic.queueTimeout, or raise it as the message says"),
    _Abnormal(Type.CAPACITY_CONTRADICTED, "True", (Reason.SHARED_LIMIT,), 45, "the pods share a limit, so more replicas answer no more requests",
        "find what the pods share, for example a lock, a database or a GPU"),
    _Abnormal(Type.IMAGE_MISMATCH, "True", (), 30, "the Triton image does not fit the model or its GPUs", "follow the message"),
    _Abnormal(Type.FIELD_IGNORED, "True", (), 10, "a field of the spec has no effect", "remove it, or follow the message"),
)  # fmt: skip


def abnormal_conditions(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect conditions whose message names the cause."""
    for entry in _ABNORMAL:
        if (message := index.message_if(entry.condition, entry.status, *entry.reasons)) is not None:
            next_step = entry.next_step.format(name=index.name, namespace=index.namespace)
            yield Cause(entry.weight, entry.summary, (message,), next_step)
