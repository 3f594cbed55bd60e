"""`halcyon bench NAME -o yaml`: manifest of a Job that runs the command, for a CronJob or a pipeline.

The pod of this Job runs `halcyon bench NAME` with a token that only allows creating copies and their clients. The
client that it creates has no token. The result goes to the log and to the history beside the model.
"""

from __future__ import annotations

from typing import Any

import click
import yaml

from halcyon.render.metadata import RESTRICTED
from halcyon_cli.bench.options.group import arguments
from halcyon_cli.bench.options.inputs import parse_input
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.client_job import VOLUME, labels
from halcyon_cli.bench.place.site import BenchSite
from halcyon_cli.bench.readings import site_prices
from halcyon_cli.errors import InputError
from halcyon_cli.output.plain_yaml import PlainDumper

_READ = ["get", "list"]
RULES: tuple[dict[str, Any], ...] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create", "patch", "delete"]},
    {"apiGroups": ["serving.halcyon.dev"], "resources": ["modeldeployments"], "verbs": [*_READ, "create"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*_READ, "create", "update"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": [*_READ, "create"]},
    {
        "apiGroups": [""],
        "resources": ["serviceaccounts", "persistentvolumeclaims", "resourcequotas"],
        "verbs": _READ,
    },
    {"apiGroups": ["apps"], "resources": ["deployments", "controllerrevisions"], "verbs": _READ},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _READ},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": _READ},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": _READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": [*_READ, "create"]},
    {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes", "grpcroutes"], "verbs": _READ},
)
"""Permissions of the command: creating the objects of a measurement, and reading the objects that the renderer
needs."""


def text(request: BenchRequest, command: click.Command, site: BenchSite, namespace: str) -> str:
    """Return the manifest as YAML. Pure.

    Raises:
        InputError: the options name files, which exist only on the user's machine.
    """
    paths = [path for _, path in map(parse_input, request.inputs.inputs)]
    paths += [request.inputs.prepare, request.inputs.finish, request.inputs.expect, str(request.load.trace or "")]
    local = [path for path in paths if path and not path.startswith(f"{VOLUME}/")]
    if local:
        raise InputError(
            f"{local[0]} is a file here, and the manifest runs without it; put it on a volume: --volume CLAIM --input /data/FILE"
        )
    name = f"{request.name}-bench-run"
    meta = {"name": name, "namespace": namespace, "labels": labels(request.name)}
    ids = {"runAsUser": 65532, "runAsGroup": 65532} if site.fixed_user_ids else {}
    pod: dict[str, Any] = {
        "serviceAccountName": name,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "halcyon",
                "image": site.image,
                "args": [
                    "bench",
                    request.name,
                    *arguments(
                        command,
                        request.server,
                        request.load,
                        request.answer,
                        request.inputs,
                        site_prices.of_site(request.sampling, site.carbon_intensity),
                        request.place,
                    ),
                    *([] if request.place.bench_image else ["--bench-image", site.image]),
                    *(
                        ["--priority-class", site.priority_class]
                        if site.priority_class and not request.place.priority_class
                        else []
                    ),
                ],
                "securityContext": RESTRICTED,
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  # of the container
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if site.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in site.pull_secrets]
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": list(RULES)},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta,
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": 86400,
                "template": {"metadata": {"labels": {"app.kubernetes.io/component": "bench-run"}}, "spec": pod},
            },
        },
    ]
    return "---\n".join(
        yaml.dump(document, Dumper=PlainDumper, sort_keys=False, width=120) for document in documents
    ).rstrip()
