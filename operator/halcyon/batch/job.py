"""Objects of a BatchInference: the Job of its runner, and the NetworkPolicy of the runner's pod. Pure.

The pod complies with the Pod Security Standard "restricted" and has no token of the API server. It has the priority
class that the site sets for runners, so that other pods can preempt it. If a pod ends without success, the Job creates
another one, unless the runner reports a final failure. The new runner keeps the results that are already written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.documents.batch_documents import FAILED, PORT, STOPPED, BatchDocumentError, BatchRecipe
from halcyon.api.policy.downloads import NO_DOWNLOADS, SiteDownloads
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import ANYTHING, SitePolicy
from halcyon.api.spec.model import DEFAULT_SIZE_LIMIT
from halcyon.api.types import BATCH_KIND, GROUP, quantity
from halcyon.batch.bucket_access import BucketAccess, accesses
from halcyon.kube.kinds import JOB, NETWORK_POLICY, Kind, Object
from halcyon.render import names, network_policies
from halcyon.render.metadata import LINUX, RESTRICTED

LABEL: Final = names.BATCH_LABEL
SPEC_ANNOTATION: Final = f"{GROUP}/batch-spec"
"""Annotation of the Job with the digest of all values in the BatchInference and its model that determine the pods."""
SUSPENDED: Final = f"{GROUP}/batch-suspended"
"""Annotation of the Job with the last value of `suspend` that Halcyon has written: `true` or `false`."""
CONTAINER: Final = "runner"
COMPONENT: Final = "bench"
"""Component label of the runners' pods. It is `bench`, because a site's NetworkPolicies already let pods with this
label send requests to models."""
_UID = 65532
_MAX_FAILED_PODS = 100
_INPUT, _OUTPUT, _HOOKS, _KEYS = "/data/input", "/data/output", "/etc/halcyon/hooks", "/etc/halcyon/api-keys"


@dataclass(frozen=True)
class BatchSite:
    """Settings of the site for the runners of batch inference."""

    image: str
    """Container image of the runner; empty if the site has none."""
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    fixed_user_ids: bool = True
    network: SiteNetwork | None = None
    """Peers for NetworkPolicies; None if the site creates no NetworkPolicies."""
    downloads: SiteDownloads = NO_DOWNLOADS
    """Proxy and CA certificates of the site with which runners connect to buckets."""
    policy: SitePolicy = ANYTHING
    own_secret: str = ""
    """NAMESPACE/NAME of the Secret with the operator's private key, which no runner may mount."""
    release: str = ""
    """NAMESPACE/NAME of the Lease of this Halcyon release. It ignores batches of models that another release
    manages."""
    cpu_limit: str = ""
    """CPU limit of runners; empty if they have none. A runner that requests more CPU gets its request as the limit."""


@dataclass(frozen=True)
class ServedModel:
    """Properties of a ModelDeployment that a runner needs."""

    name: str
    model: str
    """Name of the model in inference requests."""
    max_rows: int | None = None
    """Maximum batch size in rows; None if the spec doesn't set it."""
    api_keys: str = ""
    """Name of the Secret with API keys; empty if the model needs none."""
    is_settled: bool = True
    """Whether no rollout is in progress, during which `model` may change and change back."""


_REQUESTS_OF_A_BATCH = 4
"""Minimum number of requests into which the rows of the model's largest batch are divided, unless spec.rowsPerRequest
is set."""


def job_name(name: str) -> str:
    """Return the name of the Job and of the NetworkPolicy of the BatchInference `name`."""
    return f"{name}-batch"


def is_suspended_by_others(job: Object) -> bool:
    """Return whether a Job is suspended, but not by Halcyon. For example, Kueue suspends Jobs while they are queued."""
    annotations = job["metadata"].get("annotations") or {}
    return bool(job["spec"].get("suspend")) and annotations.get(SUSPENDED) == "false"


def used_by(job: Object | None, model: ServedModel) -> ServedModel:
    """Return the model with the name that the runner of a Job uses. If no rollout is in progress, the name is `model.model`."""
    if job is None or model.is_settled:
        return model
    with contextlib.suppress(BatchDocumentError, LookupError, TypeError):
        arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
        return replace(model, model=BatchRecipe.from_json(arguments[0]).model)
    return model


def labels(name: str) -> dict[str, str]:
    """Return the labels of the objects that belong to a BatchInference."""
    return {LABEL: name, names.COMPONENT_LABEL: COMPONENT, names.MANAGER_LABEL: names.MANAGER}


def recipe(
    batch: Object, spec: BatchInferenceSpec, model: ServedModel, buckets: Mapping[str, BucketAccess]
) -> BatchRecipe:
    """Return the instructions for the runner: model, input, output, hooks and limits."""
    hooks, volumes = spec.hooks, (spec.input.persistent_volume_claim, spec.output.persistent_volume_claim)
    return BatchRecipe(
        owner=batch["metadata"]["uid"],
        name=batch["metadata"]["name"],
        model=model.model,
        url=f"http://{model.name}:{names.HTTP_PORT}",
        input=f"{_INPUT}/{volumes[0].path}" if volumes[0] else _INPUT,
        output=f"{_OUTPUT}/{volumes[1].path}" if volumes[1] else "",
        input_format=spec.input.format or "",
        output_format=spec.output.format or "",
        prepare=f"{_HOOKS}/{hooks.prepare}" if hooks and hooks.prepare else "",
        finish=f"{_HOOKS}/{hooks.finish}" if hooks and hooks.finish else "",
        rows_per_request=spec.rows_per_request,
        max_rows=None if model.max_rows is None else max(model.max_rows // _REQUESTS_OF_A_BATCH, 1),
        max_failures=spec.max_failures,
        gentle=spec.gentle,
        workers=spec.workers,
        api_key_file=_KEYS if model.api_keys else "",
        input_bucket=buckets["input"].recipe() if "input" in buckets else None,
        output_bucket=buckets["output"].recipe() if "output" in buckets else None,
    )


def spec_digest(job: Object) -> str | None:
    """Return the digest of the spec from which a Job was made; None if the Job doesn't have it."""
    digest: str | None = job["metadata"].get("annotations", {}).get(SPEC_ANNOTATION)
    return digest


def job(batch: Object, spec: BatchInferenceSpec, model: ServedModel, site: BatchSite) -> Object:
    """Return the Job with the runner of a BatchInference."""
    buckets = accesses(spec, batch["metadata"]["namespace"], site.downloads, site.policy)
    document = recipe(batch, spec, model, buckets)
    pod = _pod(document, spec, model, site, buckets)
    # Without the image and the site's settings, so that an upgrade of the operator leaves running pods alone.
    account = [] if spec.service_account_name is None else [spec.service_account_name]
    digest = names.digest([document.to_json(), pod["volumes"], spec.cpu, spec.memory, *account])
    runner = {"containerName": CONTAINER, "operator": "In"}
    return _owned(JOB, batch, {SPEC_ANNOTATION: digest, SUSPENDED: str(spec.suspend).lower()}) | {
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": _MAX_FAILED_PODS,
            "suspend": spec.suspend,
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onExitCodes": runner | {"values": [FAILED]}},
                    # A node that is drained or lost, and a preemption.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    # Kubernetes deletes the pod of a suspended Job, and would count it as failed.
                    {"action": "Ignore", "onExitCodes": runner | {"values": [STOPPED]}},
                ]
            },
            "template": {"metadata": {"labels": labels(batch["metadata"]["name"])}, "spec": pod},
        }
    }


def _pod(
    document: BatchRecipe,
    spec: BatchInferenceSpec,
    model: ServedModel,
    site: BatchSite,
    buckets: Mapping[str, BucketAccess],
) -> Object:
    volumes, mounts = _data_volumes(spec)
    for name, path, source in (
        ("hooks", _HOOKS, {"configMap": {"name": spec.hooks.config_map}} if spec.hooks else None),
        ("api-keys", _KEYS, {"secret": {"secretName": model.api_keys}} if model.api_keys else None),
    ):
        if source is not None:
            volumes.append({"name": name} | source)
            mounts.append({"name": name, "mountPath": path, "readOnly": True})
    for access in buckets.values():
        for path, volume in access.volumes().items():
            volumes.append(volume)
            mounts.append({"name": volume["name"], "mountPath": path, "readOnly": True})
    fixed: Object = {"runAsUser": _UID, "runAsGroup": _UID, "fsGroup": _UID, "fsGroupChangePolicy": "OnRootMismatch"}
    ids = fixed if site.fixed_user_ids else {}
    cpu_limit = {"cpu": max(site.cpu_limit, str(spec.cpu), key=quantity)} if site.cpu_limit else {}
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 15,
        "nodeSelector": LINUX,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} | ids,
        "containers": [
            {
                "name": CONTAINER,
                "image": site.image,
                "command": ["python", "-m", "halcyon_batch"],
                "args": [document.to_json()],
                "ports": [{"name": "progress", "containerPort": PORT}],
                "securityContext": RESTRICTED,
                "resources": {
                    "requests": {"cpu": spec.cpu, "memory": spec.memory},
                    "limits": {**cpu_limit, "memory": spec.memory},
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if site.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in site.pull_secrets]
    if site.priority_class:
        pod["priorityClassName"] = site.priority_class
    if spec.service_account_name is not None:
        pod["serviceAccountName"] = spec.service_account_name
    return pod


def _data_volumes(spec: BatchInferenceSpec) -> tuple[list[Object], list[Object]]:
    """Return the volumes for the input, the output and temporary files of a runner's pod, and their mounts."""
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  # of the container
    source, target = spec.input.persistent_volume_claim, spec.output.persistent_volume_claim
    # A claim that has both input and output is one volume.
    claims = {source.claim_name: "input"} if source else {}
    if target:
        claims.setdefault(target.claim_name, "output")
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in claims.items()]
    if source:
        mounts.append({"name": claims[source.claim_name], "mountPath": _INPUT, "readOnly": True})
    else:
        volumes.append({"name": "copy", "emptyDir": {"sizeLimit": spec.input.size_limit or DEFAULT_SIZE_LIMIT}})
        mounts.append({"name": "copy", "mountPath": _INPUT})
    if target:
        mounts.append({"name": claims[target.claim_name], "mountPath": _OUTPUT})
    return volumes, mounts


def network_policy(batch: Object, spec: BatchInferenceSpec, site: BatchSite, peers: SiteNetwork) -> Object:
    """Return the NetworkPolicy of a batch runner's pod.

    The operator may connect to the pod to read the progress. The pod may connect to DNS, the model's pods, and the
    servers of its buckets.
    """
    model = {"podSelector": {"matchLabels": {names.OWNER_LABEL: spec.model_deployment}}}
    buckets = accesses(spec, batch["metadata"]["namespace"], site.downloads, site.policy)
    ports = {port for access in buckets.values() for port in access.ports()}
    return _owned(NETWORK_POLICY, batch, {}) | {
        "spec": {
            "podSelector": {"matchLabels": labels(batch["metadata"]["name"])},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": list(peers.operator), "ports": [{"port": PORT, "protocol": "TCP"}]}],
            "egress": [
                {"to": [model], "ports": [{"port": names.HTTP_PORT, "protocol": "TCP"}]},
                network_policies.DNS,
                *network_policies.downloads(peers, ports),
            ],
        }
    }


def _owned(kind: Kind, batch: Object, annotations: dict[str, Any]) -> Object:
    meta = batch["metadata"]
    metadata: Object = {
        "namespace": meta["namespace"],
        "name": job_name(meta["name"]),
        "labels": labels(meta["name"]),
        "ownerReferences": [names.owner(meta["name"], meta["uid"], BATCH_KIND)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
