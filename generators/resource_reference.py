"""Generator of the API reference pages from the models: `python -m generators.resource_reference FOLDER`.

Out of scope: the meaning of a field, which its docstring documents, and the truth tables of the conditions
(`halcyon.control.status.status`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from generators.batch_reference import batch_page
from generators.conditions_reference import conditions_page
from halcyon.api.schema import structural_schema
from halcyon.api.spec import Spec
from halcyon.api.status import Status
from halcyon.api.types import API_VERSION, EXAMPLES, KIND, NAME_PATTERN

JsonSchema = dict[str, Any]

EXAMPLE = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata:
  name: digits
  namespace: team
spec:
  replicas: 3
  model:
    name: Digits.v2
    source:
      configMap:
        name: digits
        items:
          - key: model
            path: 1/model.onnx
          - key: config
            path: config.pbtxt
    revision: "2026-11-21"
    versions:
      specific: [1, 2]
    backend: onnxruntime
    parameters:
      gpu_ms: "5"
    warmup:
      batchSizes: [1, 8]
      iterations: 3
      data: Random
      inputs:
        - name: image
          dataType: FP32
          dims: [8, 8]
  runtime:
    image: registry.example:5000/tritonserver:26.07-py3
    imagePullSecrets:
      - name: registry
    gpu:
      count: 2
      resourceName: nvidia.com/mig-3g.40gb
    resources:
      requests:
        cpu: 1500m
        memory: 8Gi
        ephemeral-storage: 10Gi
      limits:
        cpu: "4"
        memory: 8Gi
        ephemeral-storage: 30Gi
    instancesPerGPU: 2
    env:
      - name: MODE
        value: fast
      - name: TOKEN
        valueFrom:
          secretKeyRef:
            name: tokens
            key: digits
            optional: true
      - name: REGION
        valueFrom:
          configMapKeyRef:
            name: site
            key: region
            optional: true
      - name: POD
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
    envFrom:
      - prefix: MODEL_
        configMapRef:
          name: model-settings
          optional: true
      - secretRef:
          name: model-tokens
          optional: true
    sharedMemory: 1Gi
    server:
      pinnedMemoryPool: 512Mi
      cudaMemoryPool: 128Mi
      forwardedHeaders: [x-tenant]
      logLevel: Warning
    podLabels:
      kueue.x-k8s.io/queue-name: models
    podAnnotations:
      karpenter.sh/do-not-disrupt: "true"
    serviceAccountName: models
    placement:
      nodeSelector:
        example.com/pool: gpu
      tolerations:
        - key: example.com/pool
          operator: Equal
          value: gpu
          effect: NoSchedule
      priorityClassName: serving
      runtimeClassName: nvidia
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - key: topology.kubernetes.io/zone
                    operator: In
                    values: [eu-central-1a, eu-central-1b]
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              preference:
                matchExpressions:
                  - key: example.com/spot
                    operator: NotIn
                    values: ["true"]
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - labelSelector:
                matchLabels:
                  app: cache
                matchExpressions:
                  - key: tier
                    operator: NotIn
                    values: [test]
              topologyKey: topology.kubernetes.io/region
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 50
              podAffinityTerm:
                labelSelector:
                  matchLabels:
                    app: features
                  matchExpressions:
                    - key: tier
                      operator: In
                      values: [production]
                topologyKey: topology.kubernetes.io/zone
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - labelSelector:
                matchLabels:
                  app: training
                matchExpressions:
                  - key: tier
                    operator: NotIn
                    values: [test]
              topologyKey: kubernetes.io/hostname
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 10
              podAffinityTerm:
                labelSelector:
                  matchLabels:
                    app: batch
                  matchExpressions:
                    - key: tier
                      operator: In
                      values: [test]
                topologyKey: kubernetes.io/hostname
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          minDomains: 2
          nodeAffinityPolicy: Honor
          nodeTaintsPolicy: Honor
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
    startupTimeout: 5m
  batching:
    maxBatchSize: 16
    maxQueueDelay: 2ms
    preferredBatchSizes: [8, 16]
    preserveOrdering: true
    queuePolicy:
      timeoutAction: Reject
      defaultTimeout: 500ms
      allowTimeoutOverride: true
      maxQueueSize: 64
  scaling:
    minReplicas: 2
    maxReplicas: 12
    policy: Planner
    actuator: HPA
    mode: Active
    targets:
      latency: 300ms
      concurrency: 48
      metric: {query: pending-jobs, value: 10}
      queueDepth: 32
      gpuUtilization: 70
    schedules:
      - name: office-hours
        start: 30 7 * * 1-5
        duration: 11h
        timeZone: Europe/Berlin
        minReplicas: 4
        maxReplicas: 10
  traffic:
    mode: Balancer
    balancerReplicas: 3
    maxConcurrency: 64
    queueLimit: 500
    overload: {mode: Reject}
    sourceShare: 50
    queueTimeout: 10s
    responseTimeout: 10s
    drainTimeout: 45s
    maxRequestSize: 16Mi
    accessLog: Errors
    stickiness:
      header: x-sequence-id
    gateway:
      name: edge
      namespace: infra
      http:
        sectionName: https
        hostnames:
          - digits.example.com
      grpc:
        sectionName: https
        hostnames:
          - grpc.digits.example.com
    service:
      type: LoadBalancer
      annotations:
        external-dns.alpha.kubernetes.io/hostname: digits.example.com
      sourceRanges:
        - 10.0.0.0/8
        - fd00::/8
    tls:
      secretName: digits-tls
      clientCA: digits-clients
    apiKeys:
      secretName: digits-keys
  rollout:
    strategy: Canary
    surgeTimeout: 2m
    onFailure: Rollback
    canary:
      steps:
        - weight: 10
          pause:
            duration: 5m
        - weight: 50
          pause: {}
      analysis:
        mode: Enabled
        maxFailureIncrease: 2
        maxLatencyIncrease: 30
        maxQueueTimeIncrease: 100
        minRequests: 200
        metrics:
          - name: conversion
            query: >-
              sum(rate(orders_total{namespace="{{namespace}}",pod=~"{{deployment}}-.*"}[5m])) /
              sum(rate(visits_total{namespace="{{namespace}}",pod=~"{{deployment}}-.*"}[5m]))
            min: "0.02"
            interval: 2m
            failureLimit: 2
          - name: timeouts
            query: sum(rate(timeouts_total{pod=~"{{deployment}}-.*"}[5m]))
            max: "0.5"
"""
"""A ModelDeployment that sets all fields that can be set together."""

ALTERNATIVES: dict[str, Any] = {
    "spec.runtime.gpu.resourceClaimTemplateName": "two-gpus",
    "spec.model.source.persistentVolumeClaim": {"claimName": "models", "path": "resnet50"},
    "spec.model.source.image": {"reference": "registry.example.com/models/resnet50:3", "path": "resnet50"},
    "spec.model.source.path": "resnet50",
    "spec.model.source.digest": "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "spec.model.source.uri": "s3://models/vision/resnet50",
    "spec.model.source.credentials.identity.azure": {
        "clientID": "0c5cbd4c-55f2-4d0f-9e0f-6a2c6f1d8a11",
        "tenantID": "5a1b1c3e-7a0a-4f0e-8a53-6d3f1a2b3c4d",
    },
    "spec.model.source.credentials.identity.google": {
        "provider": "projects/123456789012/locations/global/workloadIdentityPools/halcyon/providers/cluster",
        "serviceAccount": "models@acme.iam.gserviceaccount.com",
    },
    "spec.model.source.credentials.identity.endpoint": "https://sts.storage.svc:9000",
    "spec.model.source.credentials.identity": {"aws": {"roleARN": "arn:aws:iam::123456789012:role/models"}},
    "spec.model.source.credentials": {"secretName": "models-s3"},
    "spec.model.source.endpoint": "https://minio.storage.svc:9000",
    "spec.model.source.region": "eu-central-1",
    "spec.model.source.sizeLimit": "10Gi",
    "spec.model.versions.latest": 1,
    "spec.model.versions.all": True,
    "spec.runtime.server.responseCache": {"size": "512Mi"},
    "spec.batching.priorityLevels": 2,
    "spec.batching.defaultPriorityLevel": 2,
    "spec.scaling.idleTimeout": "10m",
    "spec.scaling.behavior": {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 120,
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}],
        },
    },
}
"""Values by path for fields that the example can't set, because they exclude fields in it. Deeper paths come first."""

ROLLING = (
    "spec.model",
    "spec.runtime",
    "spec.batching",
    "spec.traffic.drainTimeout",
    "spec.traffic.stickiness",
)
"""Fields that start a new revision if they, or fields below them, change. A test compares this with
`halcyon.render.revision`."""


def fields(schema: JsonSchema, where: str = "spec") -> Iterator[tuple[str, JsonSchema, bool]]:
    """Yield (path, schema, required) for every field below; `[]` in a path stands for the items of a list."""
    for name, field in schema.get("properties", {}).items():
        path = f"{where}.{name}"
        yield path, field, name in schema.get("required", ())
        yield from fields(field, path)
        yield from fields(field.get("items", {}), f"{path}[]")


_ROLLOUT = "starts a rollout"


def rolls(path: str) -> bool:
    """Return True if a change to this field starts a rollout."""
    return any(path == part or path.startswith((f"{part}.", f"{part}[")) for part in ROLLING)


def example(path: str) -> Any:  # any JSON value
    """Return the value of the field in the example, from the first list item that sets it.

    Raises:
        KeyError: the example doesn't set the field.
    """
    for base, value in ALTERNATIVES.items():
        if path == base or path.startswith(f"{base}."):
            return _pick([value], path.removeprefix(base).strip(".").split(".") if path != base else [], path)
    return _pick([_example()], path.split("."), path)


@cache
def _example() -> dict[str, Any]:
    return dict(yaml.safe_load(EXAMPLE))


def _pick(values: list[Any], names: list[str], path: str) -> Any:  # any JSON value
    for name in names:
        plain = name.removesuffix("[]")
        found = [v[plain] for v in values if plain in v]
        values = [item for v in found for item in v] if name.endswith("[]") else found
    if not values:
        raise KeyError(f"the example does not set {path}")
    return values[0]


def resource_page() -> str:
    """Return the text of docs/reference/modeldeployment.md."""
    spec, status = structural_schema.schema(Spec), structural_schema.schema(Status)
    documented = list(fields(spec))
    parts = [
        "# ModelDeployment",
        (
            f"`apiVersion: {API_VERSION}`, `kind: {KIND}`, short name `mdep`. Generated by `make docs` from the models in "
            "`operator/halcyon/api`; do not edit it."
        ),
        (
            "Names have at most 52 characters, so that the names of the objects that Halcyon creates fit. They match "
            f"`{NAME_PATTERN}`."
        ),
        (
            "A required field must be set if the object that it belongs to is set. If an optional field has no default, its description says what applies "
            "without it. Durations are written as `2ms`, `30s` or `1m30s`, quantities as `500m` or `4Gi`. Unknown fields are "
            "rejected under strict validation (`kubectl`'s default), and dropped otherwise."
        ),
        "## Contents",
        _contents(spec),
        "## Example with every field",
        f"```yaml\n{EXAMPLE}```",
        "## Defaults",
        _defaults(documented),
        "## Fields of spec",
        *_rules("spec", spec),
        *(_field(path, schema, required=required) for path, schema, required in documented),
        "## Fields of status",
        "The operator writes the status; changes by users are overwritten. A field is absent if it does not apply.",
        _status_table(status),
    ]
    return "\n\n".join(parts) + "\n"


def _link(path: str, text: str = "") -> str:
    anchor = "".join(c for c in path.lower() if c.isalnum() or c in "-_")
    return f"[`{text or path}`](#{anchor})"


def _contents(spec: JsonSchema) -> str:
    """Return a list of links to the sections, and to the fields of spec and their direct children."""
    lines = ["- [Example with every field](#example-with-every-field)", "- [Defaults](#defaults)"]
    lines += ["- [Fields of spec](#fields-of-spec)"]
    for name, field in spec["properties"].items():
        below = (_link(f"spec.{name}.{child}", child) for child in field.get("properties", {}))
        lines.append(f"    - {_link(f'spec.{name}')}: {', '.join(below)}".removesuffix(": "))
    return "\n".join([*lines, "- [Fields of status](#fields-of-status)"])


def _defaults(documented: Iterable[tuple[str, JsonSchema, bool]]) -> str:
    rows = [
        f"| {_link(path)} | `{json.dumps(schema['default']) if schema['type'] == 'boolean' else schema['default']}` |"
        for path, schema, _ in documented
        if "default" in schema and not isinstance(schema["default"], dict)
    ]
    return "\n".join(["| field | default |", "| --- | --- |", *rows])


def _status_table(status: JsonSchema) -> str:
    rows = [f"| `{path}` | {_kind(field)} | {field['description']} |" for path, field, _ in fields(status, "status")]
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows])


def _field(path: str, schema: JsonSchema, *, required: bool) -> str:
    facts = [_kind(schema), "required" if required else _default(schema), *_bounds(schema)]
    lines = [f"### `{path}`", "; ".join(facts) + ".", schema["description"]]
    if "pattern" in schema and schema["pattern"] not in EXAMPLES:
        lines.append(f"It must match `{schema['pattern']}`.")
    lines += _rules(path, schema) + _rules(path, schema.get("items", {}))
    if schema["type"] != "object" or "additionalProperties" in schema:
        if _ROLLOUT not in schema["description"]:  # the description may state the effect, with a condition
            lines += ["A change restarts the server pods." if rolls(path) else "A change does not restart server pods."]
        name = path.rpartition(".")[2]
        text = yaml.safe_dump({name: example(path)}, sort_keys=False, default_flow_style=False).rstrip()
        lines.append(f"```yaml\n{text}\n```")
    return "\n\n".join(lines)


def _kind(schema: JsonSchema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(f"`{str(v).lower() if isinstance(v, bool) else v}`" for v in schema["enum"])
    if schema["type"] == "array":
        kinds = {"set": "set", "map": "list by " + ", ".join(schema.get("x-kubernetes-list-map-keys", ()))}
        return f"{kinds.get(schema.get('x-kubernetes-list-type', ''), 'list')} of {schema['items']['type']}"
    if "additionalProperties" in schema:
        return f"map of {schema['additionalProperties']['type']}"
    return str(schema["type"])


def _default(schema: JsonSchema) -> str:
    if "default" not in schema:
        return "optional"
    return (
        "default: the defaults of its fields"
        if isinstance(schema["default"], dict)
        else f"default `{schema['default']}`"
    )


def _bounds(schema: JsonSchema) -> Iterator[str]:
    if "minimum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
    for unit, least, most in (("items", "minItems", "maxItems"), ("entries", "minProperties", "maxProperties")):
        if most in schema:
            yield f"{schema.get(least, 0)} to {schema[most]} {unit}"
    if "maxLength" in schema and schema.get("pattern") not in EXAMPLES:
        yield f"at most {schema['maxLength']} characters"
    if schema.get("pattern") in EXAMPLES:
        yield EXAMPLES[schema["pattern"]]


def _rules(path: str, schema: JsonSchema) -> list[str]:
    said = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    said += [rule["message"] for rule in schema.get("additionalProperties", {}).get("x-kubernetes-validations", ())]
    full = (m if m.startswith(("spec.", "an entry of spec.")) else f"{path}: {m}" for m in said)
    return [f"Rejected with: `{message}`" for message in full]


PAGES = {"modeldeployment.md": resource_page, "batchinference.md": batch_page, "conditions.md": conditions_page}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
