"""The trial pod of a model: the server, rendered as by the operator but with explicit model control, and the client.

Pure.

part                  in the trial pod
fetcher               as in a server's pod
Triton                as a sidecar, which ends with the client and is restarted if it ends before. It listens on
                      localhost only, so its repository and shared-memory APIs are open to the client alone
probes, preStop       none: the kubelet has no access to localhost, and there are no other clients
user, /dev/shm        those of the server for the client too, so that tensors and cgroups can be shared
process namespace     shared, so that the client finds the server's processes and its cgroup
labels                those of a measurement and `runtime.podLabels`; no Service and no NetworkPolicy of a model selects it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.render import names, server_start
from halcyon_cli.bench.place import client_job
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.kube import fields

Json = Mapping[str, Any]

ADDRESS = "127.0.0.1"
NOTE = "a trial pod has no balancer: no queue, no rejection, no API key and no balancer time are part of the result"
_CLOSED = ("--model-control-mode=", "--exit-timeout-secs=", "--http-restricted-api=", "--grpc-")
"""Prefixes of server arguments that are removed, because they fix the loaded models, close APIs, or make the server
drain."""
_PODS_OWN = ("automountServiceAccountToken", "enableServiceLinks", "securityContext")
_PLACEMENT = (
    "affinity", "imagePullSecrets", "nodeSelector", "priorityClassName", "resourceClaims", "runtimeClassName", "serviceAccountName",
    "tolerations",
)  # fmt: skip
_RENDERED = (
    names.OWNER_LABEL, names.COMPONENT_LABEL, names.MANAGER_LABEL, names.SLOT_LABEL, names.REVISION_LABEL
)  # fmt: skip


@dataclass(frozen=True)
class TrialPod:
    """Trial pod, and the other objects that it needs."""

    template: dict[str, Any]
    """Metadata and spec of the pod."""
    config_maps: tuple[dict[str, Any], ...]
    """ConfigMaps with the server's configuration and, if the model is stored in a ConfigMap, the model. Their owner
    isn't set yet."""
    egress: tuple[Json, ...]
    """Egress rules of the NetworkPolicy that allow the download of the model."""

    @property
    def spec(self) -> dict[str, Any]:
        """Spec of the trial pod."""
        spec: dict[str, Any] = self.template["spec"]
        return spec


def trial_pod(objects: Sequence[Json], client: ClientSettings, *, model: str) -> TrialPod:
    """Return the trial pod.

    Args:
        objects: objects that the operator would create for a copy of the model.
        client: settings of the client's container.
        model: name of the model in requests.
    """
    server = next(obj for obj in objects if obj["kind"] == "Deployment" and _component(obj) == names.SERVER)
    rendered = server["spec"]["template"]
    return TrialPod(
        template={"metadata": _metadata(rendered, client), "spec": _spec(rendered["spec"], client, model)},
        config_maps=tuple(_config_maps(objects, rendered["spec"], client)),
        egress=tuple(
            rule
            for obj in objects
            if obj["kind"] == "NetworkPolicy" and _component(obj) == names.SERVER
            for rule in obj["spec"].get("egress", ())
        ),
    )


def owned(obj: Json, job: Json) -> dict[str, Any]:
    """Return an object with the Job as its owner, so that Kubernetes deletes the object with the Job."""
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [client_job.owner(job)]}}


def network_policy(pod: TrialPod, client: ClientSettings, job: Json) -> dict[str, Any]:
    """Return the NetworkPolicy of the trial pod. It allows the download of the model, and no incoming traffic."""
    policy = client_job.network_policy(client, job)
    spec = {key: value for key, value in policy["spec"].items() if key != "egress"}
    # An empty list would be dropped by the API server; without rules, all egress is denied.
    return policy | {"spec": spec | ({"egress": [dict(rule) for rule in pod.egress]} if pod.egress else {})}


def problem(pod: Json) -> str:
    """Return the reason why a trial pod can't measure; empty if it can.

    The reason is an error of the fetcher, or an image that can't be pulled.
    """
    for status in fields.mappings(fields.mapping(pod.get("status")).get("initContainerStatuses")):
        name, state = str(status.get("name")), fields.mapping(status.get("state"))
        ended, waiting = fields.mapping(state.get("terminated")), fields.mapping(state.get("waiting"))
        if name == names.FETCHER and ended.get("exitCode"):
            message = str(ended.get("message") or ended.get("reason") or "no message").strip()
            return f"the model can't be fetched: {message}"
        if waiting.get("reason") in client_job.NO_IMAGE:
            return f"the nodes can't pull {status.get('image')} ({waiting.get('reason')}: {waiting.get('message')})"
    return ""


def restarts(pod: Json) -> str:
    """Return a sentence if the server of a trial pod has restarted; empty if it hasn't."""
    for status in fields.mappings(fields.mapping(pod.get("status")).get("initContainerStatuses")):
        count = fields.count(status.get("restartCount")) or 0
        if status.get("name") == names.TRITON and count:
            last = fields.mapping(fields.mapping(status.get("lastState")).get("terminated"))
            why = str(last.get("reason") or f"exit code {last.get('exitCode')}")
            return f"the server ended {count} {'time' if count == 1 else 'times'} in the trial pod, last with {why}"
    return ""


def _component(obj: Json) -> object:
    return fields.mapping(obj["metadata"].get("labels")).get(names.COMPONENT_LABEL)


def _metadata(rendered: Json, client: ClientSettings) -> dict[str, Any]:
    meta = fields.mapping(rendered.get("metadata"))
    pod_labels = {key: value for key, value in fields.mapping(meta.get("labels")).items() if key not in _RENDERED}
    return {
        "labels": pod_labels | client_job.labels(client.model),
        "annotations": dict(fields.mapping(meta.get("annotations"))),
    }


def _spec(rendered: Json, client: ClientSettings, model: str) -> dict[str, Any]:
    client_pod = client_job.pod(client)
    container = client_pod["containers"][0]
    # The server's volumes have names such as tmp, too.
    volumes = [{**volume, "name": f"client-{volume['name']}"} for volume in client_pod["volumes"]]
    mounts = [{**mount, "name": f"client-{mount['name']}"} for mount in container["volumeMounts"]]
    shared = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108  # the kernel's name for shared memory
    (triton,) = (entry for entry in rendered["containers"] if entry["name"] == names.TRITON)
    secrets = [*rendered.get("imagePullSecrets", ()), *client_pod.get("imagePullSecrets", ())]
    pod_fields = {key: rendered[key] for key in (*_PODS_OWN, *_PLACEMENT) if key in rendered}
    if secrets:
        pod_fields["imagePullSecrets"] = list({secret["name"]: secret for secret in secrets}.values())
    return pod_fields | {
        "restartPolicy": "Never",
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": client_pod["terminationGracePeriodSeconds"],
        "initContainers": [*rendered.get("initContainers", ()), _server(triton, model)],
        "containers": [{**container, "volumeMounts": [*mounts, shared]}],
        "volumes": [*rendered["volumes"], *volumes],
    }


def _server(triton: Json, model: str) -> dict[str, Any]:
    """Return the server's container as a sidecar that listens on localhost, with explicit model control."""
    container = {
        key: triton[key]
        for key in ("name", "image", "imagePullPolicy", "command", "resources", "securityContext", "volumeMounts", "envFrom")
        if key in triton
    }  # fmt: skip
    # With an IPv6 address of the pod, the start script would listen on all addresses.
    env = [
        {"name": server_start.POD_IP, "value": ADDRESS} if variable.get("name") == server_start.POD_IP else variable
        for variable in triton.get("env", ())
    ]
    return container | {
        "restartPolicy": "Always",
        "args": [
            *(argument for argument in triton["args"] if not argument.startswith(_CLOSED)),
            "--model-control-mode=explicit",
            f"--load-model={model}",
            "--exit-timeout-secs=1",
            *(f"--{kind}-address={ADDRESS}" for kind in ("http", "grpc", "metrics")),
        ],
        "env": env,
    }


def _config_maps(objects: Sequence[Json], rendered: Json, client: ClientSettings) -> list[dict[str, Any]]:
    """Return those ConfigMaps of the operator's objects that the pod mounts."""
    mounted = {fields.mapping(volume.get("configMap")).get("name") for volume in rendered["volumes"]}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": client.namespace,
                "name": obj["metadata"]["name"],
                "labels": client_job.labels(client.model),
            },
            **{key: obj[key] for key in ("data", "binaryData", "immutable") if key in obj},
        }
        for obj in objects
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] in mounted
    ]
