"""Checks that the cluster would accept a measurement, before anything is created.

The order is: the user's permissions, the API server's schema and policies for the copy (a dry run), the operator's own
rules and names, Pod Security and the namespace's defaults (dry runs of the pods), ResourceQuotas, and free GPUs. A
check of objects that the user may not read is skipped. The cluster then decides later, and the command shows the states
of the pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.control.desired import plan as reconciled
from halcyon.control.objects import resource_quotas
from halcyon.control.objects.resource_quotas import Promised
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.bench.place.client_job import BENCH_LABEL, JOB, ClientSettings, job_name, labels, pod
from halcyon_cli.bench.place.copied_model import CopiedModel, copy_name
from halcyon_cli.bench.place.trial_pod import TrialPod
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields, free_capacity
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.plan.cluster_scope import live_scope

Json = Mapping[str, Any]

NEEDED: tuple[tuple[str, Kind, str], ...] = (
    ("get", JOB, ""),
    ("create", JOB, ""),
    ("patch", JOB, ""),
    ("delete", JOB, ""),
    ("get", kinds.MODEL_DEPLOYMENT, ""),
    ("create", kinds.MODEL_DEPLOYMENT, ""),
    ("list", kinds.POD, ""),
    ("get", kinds.POD, "log"),
)
"""Permissions that a measurement in the cluster needs, as (verb, kind, subresource)."""


@dataclass(frozen=True)
class Purpose:
    """Purpose of planned pods, for messages about missing capacity."""

    subject: str
    """Subject of the message: the task that needs the pods, for example `a canary`."""
    remedy: str
    """End of the message: an alternative for the user."""


MEASUREMENT = Purpose("the measurement", "or measure the served one with --live")


@dataclass(frozen=True)
class PlannedPods:
    """Pods of one kind that a measurement creates."""

    role: str
    """Role of the pods in the measurement: server, balancer, client, or trial."""
    template: Json
    """Spec of one of these pods."""
    labels: Json
    count: int


def check_rights(cluster: ObjectWriter, *, needs_files: bool, copies: bool) -> None:
    """Check that the user may create the objects of a measurement.

    Raises:
        InputError: a permission is missing; the message lists every missing verb and resource.
    """
    needed = [right for right in NEEDED if copies or right[:2] != ("create", kinds.MODEL_DEPLOYMENT)]
    needed += [("create", kinds.CONFIG_MAP, "")] if needs_files else []
    missing = [_right(verb, kind, part) for verb, kind, part in needed if not cluster.may(verb, kind, part)]
    if missing:
        raise InputError(
            f"in namespace {cluster.namespace} you lack: {', '.join(missing)}. A Role with them, for example one like that of "
            f"halcyon bench NAME -o yaml, is needed; --live needs no copy, and --url no cluster"
        )


def _right(verb: str, kind: Kind, part: str) -> str:
    group = kind.api_version.partition("/")[0] if "/" in kind.api_version else ""
    return f"{verb} on {kind.plural}{'.' + group if group else ''}{'/' + part if part else ''}"


def check_free(cluster: ObjectWriter, model: str, *, copies: bool) -> None:
    """Check that no other measurement of the model is running, and that the copy's name is free.

    Raises:
        InputError: the Job or the copy exists, or another Job has its name.
    """
    running = cluster.find(JOB, job_name(model))
    if running is not None and BENCH_LABEL not in fields.mapping(fields.mapping(running.get("metadata")).get("labels")):
        raise InputError(
            f"Job {job_name(model)} exists in namespace {cluster.namespace}, and isn't one of a measurement; a measurement of {model} "
            "needs this name: rename that Job, or delete it if you don't need it"
        )
    if running is not None:
        since = fields.mapping(running.get("metadata")).get("creationTimestamp")
        raise InputError(
            f"{model} is being measured since {since}: Job {job_name(model)} exists. Two at a time would measure each other; wait, "
            f"or end it: kubectl delete job {job_name(model)} -n {cluster.namespace}"
        )
    if copies and cluster.find(kinds.MODEL_DEPLOYMENT, copy_name(model)) is not None:
        raise InputError(
            f"ModelDeployment {copy_name(model)} exists, and a copy of {model} needs this name; if it is left from a measurement, "
            "Kubernetes is deleting it: try again in a minute. Else measure with --live, or rename it"
        )


def rendered(cluster: ObjectWriter, copy: CopiedModel, model: str) -> list[Json]:
    """Return the objects that the operator would create for a copy of a model.

    Raises:
        InputError: the API server or the operator would reject the copy.
    """
    try:
        scope = live_scope(cluster, copy.document).scope
    except ClusterError as error:
        raise InputError(f"a copy of {model} is refused: {error}") from None
    plan = reconciled.make(scope)
    if not plan.acceptance.accepted:
        raise InputError(f"a copy of {model} is refused ({plan.acceptance.reason}): {plan.acceptance.message}")
    return [*plan.first, *plan.then]


def planned(objects: Sequence[Json], copy: CopiedModel, client: ClientSettings) -> list[PlannedPods]:
    """Return the pods that the operator would create for the objects of a copy, and the client's pod. Pure."""
    pods = []
    for obj in objects:
        if obj["kind"] != "Deployment":
            continue
        template, count = obj["spec"]["template"], int(obj["spec"].get("replicas") or 0)
        pod_labels = template["metadata"].get("labels") or {}
        role = "balancer" if pod_labels.get(names.COMPONENT_LABEL) == names.BALANCER else "server"
        if role == "server":
            count = int(copy.document["spec"]["replicas"])
        pods.append(PlannedPods(role, template["spec"], template["metadata"], count))
    return [*pods, client_pods(client)]


def client_pods(client: ClientSettings) -> PlannedPods:
    """Return the client's pod as an entry for the checks."""
    return PlannedPods("client", pod(client), {"labels": labels(client.model)}, 1)


def trial_pods(trial: TrialPod) -> PlannedPods:
    """Return the trial pod as an entry for the checks."""
    return PlannedPods("trial", trial.spec, trial.template["metadata"], 1)


def check_pods(cluster: ObjectWriter, pods: Sequence[PlannedPods]) -> None:
    """Check that the namespace would admit the pods, that its quotas suffice for all of them, and that GPUs are free.

    Raises:
        InputError: a pod would be rejected, a quota is too small, or no node has enough free GPUs.
    """
    for group in pods:
        _check_admitted(cluster, group)
    if problem := lacking_quota(read_quotas(cluster), pods):
        raise InputError(problem)
    try:
        problem = lacking_devices(cluster, pods)
    except ClusterError:
        return
    if problem:
        raise InputError(problem)


def read_quotas(cluster: ObjectWriter) -> list[Json]:
    """Return the ResourceQuotas of the namespace; empty if the user may not read them."""
    try:
        return [resource_quotas.project(dict(quota)) for quota in cluster.items(kinds.RESOURCE_QUOTA) or ()]
    except ClusterError:
        return []


def lacking_devices(cluster: ObjectWriter, pods: Sequence[PlannedPods], purpose: Purpose = MEASUREMENT) -> str:
    """Return a sentence about missing GPUs if no node has enough free ones for the pods; empty if the pods fit.

    Raises:
        ClusterError: the user may not read nodes or pods.
    """
    needed_per_pod, needed_in_all = gpus(pods), all_gpus(pods)
    for capacity in free_capacity.read_free_capacity(cluster, list(needed_per_pod)):
        per_pod, in_all = needed_per_pod[capacity.resource], needed_in_all[capacity.resource]
        if capacity.max_per_node < per_pod:
            request = f"{per_pod} {capacity.resource} on one node"
        elif capacity.free < in_all:
            request = f"{in_all} {capacity.resource} in all"
        else:
            continue
        return f"{purpose.subject} needs {request}: {capacity.describe()}. Wait, scale a model down, {purpose.remedy}"
    return ""


def check_budget(
    cluster: ObjectWriter, copy: CopiedModel, budget: int | None, *, besides: Sequence[CopiedModel] = ()
) -> None:
    """Check that a copy fits into the site's GPU budget.

    The operator enforces the budget only when it scales a model, and a copy is never scaled. `besides` contains the
    other copies that are created at the same time.

    Raises:
        InputError: the budget is too small.
    """
    if budget is None or not gpus_of(copy.document):
        return
    try:
        models = cluster.models(all_namespaces=True)
    except ClusterError:
        return
    if problem := lacking_budget([*models, *(other.document for other in besides)], copy.document, budget):
        raise InputError(problem)


def gpus_of(model: Json) -> int:
    """Return the number of GPUs that all replicas of a model hold. Pure."""
    gpu = fields.mapping(fields.mapping(model.get("spec")).get("runtime")).get("gpu")
    per_replica = fields.count(fields.mapping(gpu).get("count", 1)) if gpu is not None else 0
    return (per_replica or 0) * replicas_in_force(model)


def lacking_budget(models: Sequence[Json], copy: Json, budget: int) -> str:
    """Return a sentence if the copy and these models together exceed the GPU budget; empty if they don't. Pure."""
    gpus_by_model = {
        f"{model['metadata'].get('namespace')}/{model['metadata'].get('name')}": gpus_of(model) for model in models
    }
    used, needed = sum(gpus_by_model.values()), gpus_of(copy)
    if used + needed <= budget:
        return ""
    largest = sorted((item for item in gpus_by_model.items() if item[1]), key=lambda item: (-item[1], item[0]))[:3]
    holders = ", ".join(f"{name} {count}" for name, count in largest)
    return (
        f"a copy needs {needed} GPUs, and the site's GPU budget (chart value gpuBudget) is {budget}, of which models hold {used}: "
        f"{holders}. Wait, scale a model down, or measure the served one with --live"
    )


def _check_admitted(cluster: ObjectWriter, group: PlannedPods) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": cluster.namespace, "generateName": f"bench-{group.role}-", "labels": group.labels.get("labels") or {}},
        "spec": {key: value for key, value in group.template.items() if key != "serviceAccountName"} | {"restartPolicy": group.template.get("restartPolicy", "Always")},
    }  # fmt: skip
    try:
        cluster.dry_run("POST", kinds.POD, "", body)
    except ClusterError as error:
        raise InputError(
            f"the {group.role} pod of the measurement would be refused in namespace {cluster.namespace}: {error}"
        ) from None


def lacking_quota(quotas: Sequence[Json], pods: Sequence[PlannedPods], purpose: Purpose = MEASUREMENT) -> str:
    """Return a sentence about the first pods that the quotas don't admit; empty if all pods fit. Pure.

    The pods before them in the sequence count as admitted.
    """
    promised: list[Promised] = []
    for group in pods:
        room = resource_quotas.tightest_limit(list(map(dict, quotas)), group.template, present=0, promised=promised)
        if room is not None and room.pods < group.count:
            return (
                f"{purpose.subject} needs {group.count} {group.role} {'pod' if group.count == 1 else 'pods'} more, but {room.describe()}; raise the "
                f"quota, scale a model down, {purpose.remedy}"
            )
        promised.append(Promised(group.template, group.count))
    return ""


def gpus(pods: Sequence[PlannedPods]) -> dict[str, int]:
    """Return the largest amount of each extended resource that any one of these pods needs, by name. Pure."""
    amounts: dict[str, int] = {}
    for group in pods:
        for name, amount in _extended_resources(group.template):
            amounts[name] = max(amounts.get(name, 0), amount)
    return amounts


def all_gpus(pods: Sequence[PlannedPods]) -> dict[str, int]:
    """Return the total amount of each extended resource that these pods need together, by name. Pure."""
    amounts: dict[str, int] = {}
    for group in pods:
        for name, amount in _extended_resources(group.template):
            amounts[name] = amounts.get(name, 0) + group.count * amount
    return amounts


def _extended_resources(template: Json) -> Iterator[tuple[str, int]]:
    """Yield the name and the amount of each extended resource of a pod's containers.

    Init containers are included, because the server of a trial pod is an init container.
    """
    containers = (*fields.mappings(template.get("containers")), *fields.mappings(template.get("initContainers")))
    for container in containers:
        for name, amount in fields.mapping(fields.mapping(container.get("resources")).get("limits")).items():
            if "/" in str(name):
                yield str(name), int(str(amount))
