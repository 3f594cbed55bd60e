"""Hints for errors about fields of a spec that do not exist.

A hint gives the new name, the right place, or the existing fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from halcyon.api.schema.expected import JsonSchema, at, examples, form_of

RENAMED: Final[Mapping[str, str]] = {
    "spec.model.source.uri.url": "spec.model.source.uri, a string",
    "spec.model.source.uri.secretName": "spec.model.source.credentials.secretName",
    "spec.model.source.uri.endpoint": "spec.model.source.endpoint",
    "spec.model.source.uri.region": "spec.model.source.region",
    "spec.model.source.uri.path": "spec.model.source.path",
    "spec.model.source.uri.sha256": "spec.model.source.digest, with sha256: in front of the digits",
    "spec.model.source.uri.sizeLimit": "spec.model.source.sizeLimit",
    "spec.runtime.env[].secretKeyRef": "valueFrom.secretKeyRef, as in a pod",
    "spec.runtime.gpu.resource": "spec.runtime.gpu.resourceName",
    "spec.runtime.resources.cpu": "spec.runtime.resources.requests.cpu or .limits.cpu",
    "spec.runtime.resources.memory": "spec.runtime.resources.requests.memory or .limits.memory",
    "spec.runtime.resources.requests.nvidia.com/gpu": "spec.runtime.gpu.count",
    "spec.runtime.resources.limits.nvidia.com/gpu": "spec.runtime.gpu.count",
    "spec.runtime.placement.topologySpreadConstraints[].labelSelector": "no selector: Halcyon selects the model's server pods",
    "spec.scaling.idleAfter": "spec.scaling.idleTimeout",
    "spec.traffic.balancer": "spec.traffic.mode; HAProxy is Balancer, and Service is Direct",
    "spec.traffic.requestTimeout": (
        "spec.traffic.queueTimeout for the wait in the balancer, and spec.traffic.responseTimeout for the server's response"
    ),
    "spec.traffic.drain": "spec.traffic.drainTimeout",
    "spec.rollout.surgeWait": "spec.rollout.surgeTimeout",
}
"""Names of fields in earlier versions, or names that users expect, each with the text to write instead. `[]` stands for
any item of a list."""

OBJECTS: Final[Mapping[str, str]] = {
    "spec.rollout.canary.analysis": "analysis: {mode: Enabled}, or {mode: Disabled} for the former Off",
    "spec.rollout.canary.steps[].pause": "pause: {duration: 5m}, or pause: {} to pause until someone resumes the rollout",
}
"""Fields that were plain values in earlier versions and are objects now, each with an example."""

EXAMPLES: Final[Mapping[str, str]] = {
    "spec.scaling.schedules[].start": "a cron expression, for example start: 0 8 * * 1-5",
    "spec.model.source.uri": "for example uri: s3://models/resnet50, gs://models/resnet50 (no / at the end, and a bucket of 3 to 63 characters) or https://host/resnet50.tar.gz (a .tar, .tar.gz or .tgz of the model's folder; no password, query or % in it: set credentials.secretName instead)",
    "spec.model.source.digest": "sha256: and 64 hexadecimal digits, as sha256sum prints them",
}
"""Examples for fields that need more than one value or an explanation."""

VALUES: Final[Mapping[str, str]] = {
    "model": "{source: {uri: s3://models/resnet50}}", "source": "{uri: s3://models/resnet50}", "backend": "onnxruntime",
    "input": "{uri: s3://sets/2026/images.npz}", "output": "{uri: s3://results/night}", "revision": "v2", "all": "true",
    "input.uri": "s3://sets/2026/images.npz", "output.uri": "s3://results/night", "modelDeployment": "resnet50",
    "persistentVolumeClaim": "{claimName: models, path: resnet50}", "credentials": "{secretName: models-s3}",
    "identity": "{aws: {roleARN: arn:aws:iam::123456789012:role/models}}", "secretName": "models-s3", "path": "resnet50",
    "endpoint": "https://minio.example.com:9000", "identity.endpoint": "https://sts.example.com", "region": "eu-central-1",
    "roleARN": "arn:aws:iam::123456789012:role/models", "serviceAccount": "models@acme.iam.gserviceaccount.com",
    "provider": "projects/123/locations/global/workloadIdentityPools/halcyon/providers/cluster",
    "clientID": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "tenantID": "9a5c2f0e-7d41-4c6b-8e02-5b1f3a7d9c10",
    "items[].key": "model.onnx", "items[].path": "1/model.onnx", "reference": "registry.example.com/models/resnet50:1.2",
    "runtime.image": "registry.example.com/tritonserver:25.09", "parameters": "{gpu_ms: '5'}", "inputs[].name": "INPUT__0",
    "resourceName": "nvidia.com/mig-1g.10gb", "env[].name": "MODE", "env": "[{name: MODE, value: fast}]", "prefix": "MODEL_",
    "valueFrom": "{secretKeyRef: {name: tokens, key: hub}}", "envFrom": "[{configMapRef: {name: settings}}]",
    "fieldPath": "metadata.name", "forwardedHeaders": "x-tenant", "topologyKey": "topology.kubernetes.io/zone", "key": "pool",
    "podLabels": "{team: vision}", "matchLabels": "{app: cache}", "nodeSelector": "{pool: gpu}", "value": "gpu", "values": "gpu",
    "podAnnotations": "{team: vision}", "annotations": "{team: vision}", "targets": "{concurrency: 8}",
    "concurrency": "8", "maxConcurrency": "64", "maxReplicas": "8", "scaling": "{maxReplicas: 8}",
    "timeZone": "Europe/Berlin", "query": "queue-depth", "metric.value": "30", "policies[].value": "2", "start": "0 8 * * 1-5", "metrics[].query": "sum(errors_total)", "metrics[].name": "errors",
    "min": "'0.01'", "max": "'0.99'", "header": "x-session", "hostnames": "models.example.com",
    "sourceRanges": "10.0.0.0/8", "hooks": "{configMap: night-hooks, prepare: 'hooks.py:prepare'}", "hooks.configMap": "night-hooks",
    "prepare": "hooks.py:prepare", "finish": "hooks.py:finish", "deadline": "2026-12-01T06:00:00Z", "schedules[].name": "weekdays",
}  # fmt: skip
"""Valid values in YAML, by the last parts of the path of a field. For a list of strings, the value is that of an item."""

URI_SCHEMES: Final[Mapping[str, str]] = {
    "pvc": "use spec.model.source.persistentVolumeClaim, for example persistentVolumeClaim: {claimName: models, path: resnet50}",
    "oci": "use spec.model.source.image, for example image: {reference: registry.example.com/models/resnet50:4}",
}
"""Schemes of KServe's `storageUri` for sources that are not a `uri` here, each with the field to use."""

POD_PLACES: Final[Mapping[str, str]] = {
    "image": "spec.runtime.image", "gpu": "spec.runtime.gpu", "gpus": "spec.runtime.gpu.count",
    "nvidia.com/gpu": "spec.runtime.gpu.count", "storageUri": "spec.model.source.uri",
    "modelUri": "spec.model.source.uri", "modelFormat": "spec.model.backend, for example backend: onnxruntime", "labels": "spec.runtime.podLabels",
    "annotations": "spec.runtime.podAnnotations",
    "metadata": "spec.runtime.podLabels and spec.runtime.podAnnotations",
    "serviceAccount": "spec.runtime.serviceAccountName", "terminationGracePeriodSeconds": "spec.traffic.drainTimeout",
    "maxSurge": "spec.rollout.strategy", "metrics": "spec.scaling.targets",
    "cooldownPeriod": "spec.scaling.idleTimeout", "scaleTarget": "spec.scaling.targets",
    "maxConcurrentRequests": "spec.traffic.maxConcurrency", "containerConcurrency": "spec.traffic.maxConcurrency",
    "containers": "spec.runtime, whose fields describe the one container",
    "template": "spec.runtime, whose fields describe the pod",
    "predictor": "spec.model for the model, and spec.runtime for the pod",
    "volumes": "spec.model.source.persistentVolumeClaim; a pod has no other volumes",
    "volumeMounts": "spec.model.source.persistentVolumeClaim; a pod has no other volumes",
    "args": "spec.runtime.server", "command": "spec.runtime.server",
}  # fmt: skip
"""Field names from Pods, HPAs or KServe, each with the field of a ModelDeployment that has the same purpose. They are
recognised anywhere in the spec."""


def hint(path: Sequence[int | str], root: JsonSchema, *, of_model: bool) -> str:
    """Return what to write instead of the unknown field at `path`, for example `did you mean spec.traffic.tls?`.

    `root` is the schema of the spec, which is that of a ModelDeployment if `of_model`.
    """
    name, siblings, places = str(path[-1]), [*at(root, path[:-1]).get("properties", {})], _places(root)
    if of_model and (now := RENAMED.get(_plain(path))) is not None:
        return f"use {now}"
    near, close = _nearest(name, siblings, 0.6), _nearest(name, places, 0.85)
    if near and _likeness(name, close) < _likeness(name, near) + 0.1:
        return f"did you mean {near}?"
    if of_model and (elsewhere := POD_PLACES.get(name)):
        return f"use {elsewhere}"
    if close:
        return f"did you mean {' or '.join(places[close][:3])}?"
    return f"the fields are {', '.join(siblings)}" if siblings else ""


def _plain(path: Iterable[int | str]) -> str:
    return "spec" + "".join("[]" if isinstance(step, int) else f".{step}" for step in path)


def _nearest(name: str, names: Iterable[str], cutoff: float) -> str:
    return next(iter(get_close_matches(name, names, 1, cutoff)), "")


def _likeness(name: str, other: str) -> float:
    return SequenceMatcher(None, other, name).ratio() if other else 0.0


def _places(root: JsonSchema) -> Mapping[str, list[str]]:
    """Return the paths of all fields of a spec, grouped by the last part of the path."""
    places: dict[str, list[str]] = {}
    schemas = [("spec", root)]
    for path, schema in schemas:
        below = [(f"{path}.{name}", field.get("items", field)) for name, field in schema.get("properties", {}).items()]
        schemas += below
        for name, (place, _) in zip(schema.get("properties", {}), below, strict=True):
            places.setdefault(name, []).append(place)
    return places


def example_of_object(path: Iterable[int | str]) -> str:
    """Return an example of the object at `path`; empty if the field was never a plain value in an earlier version."""
    return OBJECTS.get(_plain(path), "")


def example(path: Sequence[int | str], root: JsonSchema) -> str:
    """Return an example of the field at `path`, for example `for example maxReplicas: 8`.

    For an item of a list or a map, it is an example of the whole list or map.
    """
    if isinstance(path[-1], int) or "additionalProperties" in at(root, path[:-1]):
        path = path[:-1]
    field = _plain(path)
    return EXAMPLES.get(field) or f"for example {path[-1]}: {_value(field, at(root, path))}"


def listed_value(path: Iterable[int | str]) -> str:
    """Return the value in `VALUES` of the field at `path`; empty if there is none."""
    return _listed_value(_plain(path))


def _listed_value(field: str) -> str:
    parts = field.split(".")
    return next((VALUES[end] for n in range(len(parts)) if (end := ".".join(parts[n:])) in VALUES), "")


def _value(field: str, schema: JsonSchema) -> str:
    """Return a valid value, in YAML, of a field."""
    kind = schema["type"]
    if text := _listed_value(field):
        return f"[{text}]" if kind == "array" and not text.startswith("[") else text
    if kind == "array":
        return f"[{_value(f'{field}[]', schema['items'])}]"
    if kind == "object":
        below = schema["properties"]
        values = {name: _value(f"{field}.{name}", below[name]) for name in schema.get("required") or [*below][:1]}
        return f"{{{', '.join(f'{name}: {value}' for name, value in values.items())}}}"
    if form := form_of(schema):
        return examples(schema, form)[-1]
    kinds = {"integer": max(1, schema.get("minimum", 1)), "boolean": "true"}
    return str(schema["enum"][0] if "enum" in schema else kinds.get(kind, "models"))
