"""Client of a measurement in the cluster: its Job, the files that it reads, and its NetworkPolicy. Pure.

The Job is created first and owns everything else, so Kubernetes removes all of it when the Job is deleted. Its deadline
is a lease, which the command extends while it runs (`lease_s`). If the command is killed, all objects are removed after
some minutes. The client's pod is created only when the copy's pods are assigned to nodes (`parallelism`), so that it
can be placed near them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from halcyon.api.types import GROUP
from halcyon.kube.kinds import Kind
from halcyon.render import names, network_policies
from halcyon.render.metadata import LINUX, RESTRICTED
from halcyon_cli.bench.options.inputs import InputOptions, parse_input
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.errors import InputError

Json = Mapping[str, Any]

JOB = Kind("batch/v1", "Job", "jobs")
BENCH_LABEL = f"{GROUP}/bench"
"""Label of the objects of a measurement; its value is the name of the model."""
COMPONENT = "bench"
CONTAINER = "client"
LEASE_S = 150
"""Length of the Job's lease: the time after its last extension at which Kubernetes ends the Job, in seconds."""
TTL_S = 30
"""Time after which Kubernetes removes an ended Job and all objects that it owns, in seconds."""
MAX_FILES_BYTES = 700 * 2**10
"""Maximum total size of all files. A ConfigMap holds 1 MiB, and base64 adds a third."""
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Waiting reasons of a container whose image can't be pulled."""
_UID = 65532
_FILES, _KEYS = "/etc/halcyon/files", "/etc/halcyon/api-keys"
VOLUME = "/data"
"""Mount path of the volume with inputs in the client's container."""
_TOPOLOGY = {"node": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Settings of the client's pod."""

    model: str
    """Name of the original ModelDeployment, even if a copy is measured."""
    namespace: str
    image: str
    arguments: tuple[str, ...]
    """Command line arguments of `halcyon` in the pod."""
    measured: str
    """Name of the ModelDeployment that receives the load."""
    near: str = "zone"
    """Placement of the client's pod relative to the servers: on the same node, in the same zone, or anywhere."""
    cpu: str = "1"
    memory: str = "1Gi"
    api_keys: str = ""
    """Name of the Secret with API keys; empty if there is none."""
    pull_secrets: tuple[str, ...] = ()
    fixed_user_ids: bool = True
    priority_class: str = ""
    tolerations: Sequence[Json] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content of the files in the ConfigMap, by key."""
    claim: str = ""
    """Name of the PersistentVolumeClaim with inputs, mounted at /data; empty if there is none."""
    others: tuple[str, ...] = ()
    """Names of further ModelDeployments that receive the load in turns with `measured`."""
    metrics: tuple[tuple[str, str], ...] = ()
    """Components whose metrics the client reads, as pairs of ModelDeployment and component (`metrics_access`)."""
    prometheus_port: int | None = None
    """Port of the Prometheus from which the client reads; None if it reads from none."""

    @property
    def all_measured(self) -> tuple[str, ...]:
        """Names of all ModelDeployments that receive the load."""
        return (self.measured, *self.others)


def job_name(model: str) -> str:
    """Return the name of the Job.

    It depends only on the model, so two measurements of a model can't run at the same time.
    """
    return f"{model}-bench"


def labels(model: str) -> dict[str, str]:
    """Return the labels of all objects of a measurement."""
    return {BENCH_LABEL: model, names.COMPONENT_LABEL: COMPONENT, names.MANAGER_LABEL: names.MANAGER}


def job(
    settings: ClientSettings, *, template: Json | None = None, parallelism: int = 0, deadline_s: int = LEASE_S
) -> dict[str, Any]:
    """Return the Job, which complies with the Pod Security Standard "restricted" and has no token.

    `template` replaces the default pod, which has only the client's container.
    """
    job_labels = labels(settings.model)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": settings.namespace, "name": job_name(settings.model), "labels": job_labels},
        "spec": {
            "parallelism": parallelism,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline_s,
            "ttlSecondsAfterFinished": TTL_S,
            "template": template or {"metadata": {"labels": job_labels}, "spec": pod(settings)},
        },
    }


def pod(settings: ClientSettings) -> dict[str, Any]:
    """Return the spec of the client's pod."""
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  # of the container
    for name, path, source in (
        ("files", _FILES, {"configMap": {"name": job_name(settings.model)}} if settings.files else None),
        ("api-keys", _KEYS, {"secret": {"secretName": settings.api_keys}} if settings.api_keys else None),
        (
            "data",
            VOLUME,
            {"persistentVolumeClaim": {"claimName": settings.claim, "readOnly": True}} if settings.claim else None,
        ),
    ):
        if source is not None:
            volumes.append({"name": name} | source)
            mounts.append({"name": name, "mountPath": path, "readOnly": True})
    ids = {"runAsUser": _UID, "runAsGroup": _UID} if settings.fixed_user_ids else {}
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 15,  # a client that is stopped prints the result so far
        "nodeSelector": LINUX,
        "securityContext": {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                "args": list(settings.arguments),
                "securityContext": RESTRICTED,
                "resources": {
                    "requests": {"cpu": settings.cpu, "memory": settings.memory},
                    "limits": {"cpu": settings.cpu, "memory": settings.memory},
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in settings.tolerations]
    if settings.near in _TOPOLOGY:
        spec["affinity"] = {"podAffinity": _near(settings)}
    return spec


def _near(settings: ClientSettings) -> dict[str, Any]:
    """Return an affinity that prefers nodes near the measured servers.

    It is only a preference, so that the client doesn't stay pending if these nodes are full.
    """
    terms = [
        {
            "labelSelector": {"matchLabels": names.selector(measured, names.SERVER)},
            "topologyKey": _TOPOLOGY[settings.near],
        }
        for measured in settings.all_measured
    ]
    preferred = [{"weight": 100, "podAffinityTerm": term} for term in terms]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}


def config_map(settings: ClientSettings, job: Json) -> dict[str, Any]:
    """Return the ConfigMap with the files that the client reads."""
    return owned("v1", "ConfigMap", settings, job) | {
        "binaryData": {key: base64.b64encode(content).decode() for key, content in settings.files.items()}
    }


def network_policy(settings: ClientSettings, job: Json) -> dict[str, Any]:
    """Return the NetworkPolicy of the client's pod.

    It allows connections to DNS, to the pods of the measured models, and to the port of a Prometheus.
    """
    open_ports = [
        names.HTTP_PORT,
        names.GRPC_PORT,
        *([names.METRICS_PORT, names.AGENT_PORT] if settings.metrics else []),
    ]
    ports = [{"port": port, "protocol": "TCP"} for port in open_ports]
    prometheus = [{"ports": [{"port": port, "protocol": "TCP"}]} for port in [settings.prometheus_port] if port]
    peers = [{"podSelector": {"matchLabels": {names.OWNER_LABEL: name}}} for name in settings.all_measured]
    return owned("networking.k8s.io/v1", "NetworkPolicy", settings, job) | {
        "spec": {
            "podSelector": {"matchLabels": labels(settings.model)},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": peers, "ports": ports}, network_policies.DNS, *prometheus],
        }
    }


def owned(api_version: str, kind: str, settings: ClientSettings, job: Json, *, name: str = "") -> dict[str, Any]:
    """Return an object without content that the Job owns.

    The object has the name of the Job, unless `name` is given.
    """
    meta = {
        "namespace": settings.namespace,
        "name": name or job_name(settings.model),
        "labels": labels(settings.model),
        "ownerReferences": [owner(job)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def owner(job: Json) -> dict[str, Any]:
    """Return an owner reference to the Job, so that Kubernetes deletes an object together with the Job."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def pod_selector(job: Json) -> str:
    """Return the label selector of a Job's pods.

    It excludes pods of an earlier Job with the same name, which may still be ending.
    """
    return f"{BENCH_LABEL},batch.kubernetes.io/controller-uid={job['metadata']['uid']}"


def lease_s(since_created_s: float, longest_s: float) -> int:
    """Return the value of the Job's `activeDeadlineSeconds` that extends its lease from now on.

    Args:
        since_created_s: seconds since the Job was created, by the command's clock.
        longest_s: maximum duration of the measurement in seconds, which limits the result.
    """
    return max(min(int(since_created_s) + LEASE_S, int(longest_s)), 1)


# Files.


def packed(load: LoadOptions, inputs: InputOptions) -> tuple[LoadOptions, InputOptions, dict[str, bytes]]:
    """Return the options with the paths in the client's pod, and the contents of the files at these paths, by key.

    Paths below /data are on a volume, and stay unchanged.

    Raises:
        InputError: a file can't be read, or all files together are too large for a ConfigMap.
    """
    files: dict[str, bytes] = {}

    def put(path: str) -> str:
        if path.startswith(f"{VOLUME}/"):
            return path
        key = f"{len(files):03d}-{_key(Path(path).name)}"
        try:
            files[key] = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: can't read it: {error.strerror}") from None
        total = sum(map(len, files.values()))
        if total > MAX_FILES_BYTES:
            raise InputError(
                f"{path}: the files of the measurement have {total // 1024} KiB together; {MAX_FILES_BYTES // 1024} KiB fit "
                "into the ConfigMap that brings them to the client. Put them on a volume: --volume CLAIM --input /data/FILE"
            )
        return f"{_FILES}/{key}"

    def put_function(text: str) -> str:
        path, sign, function = text.rpartition(":")
        return f"{put(path)}:{function}" if sign else text

    paths = [
        f"{name}={put(path)}" if name else put(path)
        for argument in inputs.inputs
        for name, folder in [parse_input(argument)]
        for path in _members(folder)
    ]
    if len(paths) > len(inputs.inputs) and len(inputs.inputs) == 1:
        # A folder: its files are the samples. The ConfigMap is a folder too, but may have other files.
        name = parse_input(inputs.inputs[0])[0]
        paths = [f"{name}={_FILES}" if name else _FILES]
        if inputs.expect or inputs.prepare or inputs.finish or load.trace is not None:
            raise InputError(
                "a folder can't be sent to the cluster together with --trace, --expect, --prepare or --finish; put it on a "
                "volume: --volume CLAIM --input /data/FOLDER"
            )
    return (
        replace(load, trace=None if load.trace is None else Path(put(str(load.trace)))),
        replace(
            inputs,
            inputs=tuple(paths),
            prepare=put_function(inputs.prepare),
            finish=put_function(inputs.finish),
            expect=put(inputs.expect) if inputs.expect else "",
        ),
        files,
    )


def _members(path: str) -> list[str]:
    """Return the path itself, or the paths of the visible files if it is a folder.

    A folder on the volume counts as one path.

    Raises:
        InputError: the folder has no visible file.
    """
    if not Path(path).is_dir() or path.startswith(f"{VOLUME}/"):
        return [path]
    files = [entry for entry in os.scandir(path) if entry.is_file() and not entry.name.startswith(".")]
    if not files:
        raise InputError(f"{path}: an empty folder; it needs files such as x.npy or x.jpg")
    return sorted(entry.path for entry in files)


def _key(name: str) -> str:
    """Convert a file name to a valid key of a ConfigMap."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)[-200:]


def key_arguments(api_keys: str) -> tuple[str, ...]:
    """Return the arguments with which the client sends an API key from the Secret."""
    return ("--api-key-file", _KEYS) if api_keys else ()
