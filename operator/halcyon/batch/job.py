"""Objects of a BatchInference: the Job of its runner, and the NetworkPolicy of the runner's pod. Pure.

The pod complies with the Pod Security Standard "restricted" and has no ServiceAccount token. It has the priority class
that the site sets for runners, so that other pods can preempt it. If a pod ends without success, the Job creates
another one, unless the runner reports a final failure. The new runner continues after the parts of the output that are
already written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.documents.batch_documents import FAILED, PORT, BatchRecipe
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.types import GROUP
from halcyon.kube.kinds import BATCH_INFERENCE, JOB, NETWORK_POLICY, Kind, Object
from halcyon.render import names
from halcyon.render.metadata import RESTRICTED

LABEL: Final = f"{GROUP}/batch-inference"
"""Label of all objects that belong to a BatchInference. Its value is the name of the BatchInference."""
SPEC_ANNOTATION: Final = f"{GROUP}/batch-spec"
"""Annotation of the Job with the digest of everything that determines its pods, except the image."""
CONTAINER: Final = "runner"
COMPONENT: Final = "bench"
"""Component label of the pods of runners. It is `bench`, because a site's NetworkPolicies let pods with this label send
requests to models."""
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
    """Peers for the runner's NetworkPolicy; None if the site creates no NetworkPolicies."""


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


_REQUESTS_OF_A_BATCH = 4
"""Minimum number of requests into which the rows of the model's largest batch are divided, unless spec.rowsPerRequest
is set."""


def job_name(name: str) -> str:
    """Return the name of the Job and of the NetworkPolicy of the BatchInference `name`."""
    return f"{name}-batch"


def labels(name: str) -> dict[str, str]:
    """Return the labels of the objects that belong to a BatchInference."""
    return {LABEL: name, names.COMPONENT_LABEL: COMPONENT, names.MANAGER_LABEL: names.MANAGER}


def recipe(batch: Object, spec: BatchInferenceSpec, model: ServedModel) -> BatchRecipe:
    """Return the instructions for the runner: model, input, output, hooks and limits."""
    hooks = spec.hooks
    return BatchRecipe(
        owner=batch["metadata"]["uid"],
        name=batch["metadata"]["name"],
        model=model.model,
        url=f"http://{model.name}:{names.HTTP_PORT}",
        input=f"{_INPUT}/{spec.input.persistent_volume_claim.path}",
        output=f"{_OUTPUT}/{spec.output.persistent_volume_claim.path}",
        input_format=spec.input.format or "",
        output_format=spec.output.format or "",
        prepare=f"{_HOOKS}/{hooks.prepare}" if hooks and hooks.prepare else "",
        finish=f"{_HOOKS}/{hooks.finish}" if hooks and hooks.finish else "",
        rows_per_request=spec.rows_per_request,
        # Servers make full batches of smaller requests, which leave the users' requests a place in each.
        max_rows=None if model.max_rows is None else max(model.max_rows // _REQUESTS_OF_A_BATCH, 1),
        max_failures=spec.max_failures,
        gentle=spec.gentle,
        workers=spec.workers,
        api_key_file=_KEYS if model.api_keys else "",
    )


def job(batch: Object, spec: BatchInferenceSpec, model: ServedModel, site: BatchSite) -> Object:
    """Return the Job that runs the runner of a BatchInference."""
    made = recipe(batch, spec, model)
    pod = _pod(made, spec, model, site)
    # Without the image, so that an upgrade of the operator leaves running pods alone.
    digest = names.digest([made.to_json(), pod["volumes"], spec.cpu, spec.memory])
    return _owned(JOB, batch, {SPEC_ANNOTATION: digest}) | {
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": _MAX_FAILED_PODS,
            "suspend": spec.suspend,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [FAILED]},
                    },
                    # A node that is drained or lost, and a preemption.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": labels(batch["metadata"]["name"])}, "spec": pod},
        },
    }


def _pod(made: BatchRecipe, spec: BatchInferenceSpec, model: ServedModel, site: BatchSite) -> Object:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  # of the container
    # A claim that has both input and output is one volume.
    claims = {spec.input.persistent_volume_claim.claim_name: "input"}
    claims.setdefault(spec.output.persistent_volume_claim.claim_name, "output")
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in claims.items()]
    mounts += [
        {"name": claims[spec.input.persistent_volume_claim.claim_name], "mountPath": _INPUT, "readOnly": True},
        {"name": claims[spec.output.persistent_volume_claim.claim_name], "mountPath": _OUTPUT},
    ]
    for name, path, source in (
        ("hooks", _HOOKS, {"configMap": {"name": spec.hooks.config_map}} if spec.hooks else None),
        ("api-keys", _KEYS, {"secret": {"secretName": model.api_keys}} if model.api_keys else None),
    ):
        if source is not None:
            volumes.append({"name": name} | source)
            mounts.append({"name": name, "mountPath": path, "readOnly": True})
    ids = {"runAsUser": _UID, "runAsGroup": _UID, "fsGroup": _UID, "fsGroupChangePolicy": "OnRootMismatch"}
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            **(ids if site.fixed_user_ids else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": site.image,
                "command": ["python", "-m", "halcyon_batch"],
                "args": [made.to_json()],
                "ports": [{"name": "progress", "containerPort": PORT}],
                "securityContext": RESTRICTED,
                "resources": {
                    "requests": {"cpu": spec.cpu, "memory": spec.memory},
                    "limits": {"memory": spec.memory},
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
    return pod


def network_policy(batch: Object, spec: BatchInferenceSpec, network: SiteNetwork) -> Object:
    """Return the NetworkPolicy of the runner's pod.

    The operator may poll the progress, and the pod may reach DNS and the model's pods.
    """
    model = {"podSelector": {"matchLabels": {names.OWNER_LABEL: spec.model_deployment}}}
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return _owned(NETWORK_POLICY, batch, {}) | {
        "spec": {
            "podSelector": {"matchLabels": labels(batch["metadata"]["name"])},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": list(network.operator), "ports": [{"port": PORT, "protocol": "TCP"}]}],
            "egress": [{"to": [model], "ports": [{"port": names.HTTP_PORT, "protocol": "TCP"}]}, {"ports": dns}],
        }
    }


def _owned(kind: Kind, batch: Object, annotations: dict[str, Any]) -> Object:
    meta = batch["metadata"]
    made: Object = {
        "namespace": meta["namespace"],
        "name": job_name(meta["name"]),
        "labels": labels(meta["name"]),
        "ownerReferences": [
            {
                "apiVersion": BATCH_INFERENCE.api_version,
                "kind": BATCH_INFERENCE.kind,
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ],
    }
    if annotations:
        made["annotations"] = annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": made}
