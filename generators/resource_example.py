"""ModelDeployment that the reference pages show: it has a value for every field of the spec."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

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
"""ModelDeployment that sets all fields that can be set together."""

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
"""Values, by path, of fields that the example can't set because they exclude other fields. Deeper paths come first."""


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
        field_values = [v[plain] for v in values if plain in v]
        values = [item for v in field_values for item in v] if name.endswith("[]") else field_values
    if not values:
        raise KeyError(f"the example does not set {path}")
    return values[0]
