"""Valid and invalid values by field, checked with our models and with the real API server."""

from __future__ import annotations

import copy
from typing import Any

PVC = {"persistentVolumeClaim": {"claimName": "models"}}
CONFIG_MAP = {"configMap": {"name": "m", "items": [{"key": "a", "path": "1/model.onnx"}]}}
ITEM = {"key": "a", "path": "1/model.onnx"}


def document(path: str = "", value: Any = None) -> dict[str, Any]:
    """Return the minimal spec, with one field set."""
    spec: dict[str, Any] = {"model": {"source": copy.deepcopy(PVC)}}
    if path:
        *parents, last = path.split(".")
        part = spec
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return spec


def node_terms(expression: dict[str, Any]) -> dict[str, Any]:
    """A node affinity with this one expression, required."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


GOOD: list[tuple[str, Any]] = [
    ("replicas", 0),
    ("replicas", 1000),
    ("model.source", CONFIG_MAP),
    ("model.source", {"persistentVolumeClaim": {"claimName": "a.b", "path": "team/resnet50"}}),
    (
        "model.source",
        {"image": {"reference": "registry.example:5000/models/a@sha256:" + "0" * 64, "path": "team/resnet50"}},
    ),
    ("model.source", {"uri": f"hf://acme/Res_net-50.v1@{'0a' * 20}/triton/resnet50"}),
    ("model.source", {"uri": f"hf://gpt2@{'0a' * 20}", "endpoint": "https://hub.example.com"}),
    ("model.source", {"uri": "mlflow://ResNet50/12/model", "endpoint": "http://mlflow.mlops.svc:5000"}),
    ("model.name", "ResNet_50.v2-x"),
    ("model.revision", ""),
    ("model.versions", {"latest": 100}),
    ("model.versions", {"specific": [3, 1]}),
    ("model.versions", {"all": True}),
    ("model.backend", "onnxruntime"),
    ("model.parameters", {"gpu_ms": "5", "A-b.c": ""}),
    ("model.warmup", {}),
    ("model.warmup", {"batchSizes": [1, 8], "iterations": 100, "data": "Random"}),
    ("model.warmup.inputs", [{"name": "x", "dataType": "FP32", "dims": [3, 224, 224]}]),
    ("model.warmup.inputs", [{"name": "x", "dataType": "STRING", "dims": []}]),
    *(
        ("model.warmup.inputs", [{"name": n, "dataType": "INT8", "dims": []}])
        for n in ("ids:0", "__x", "b/A:0", "a (cm)")
    ),
    ("runtime.image", "registry.example:5000/a/b_c@sha256:" + "0" * 64),
    ("runtime.image", "nvcr.io/nvidia/tritonserver:24.10-py3"),
    ("runtime.imagePullSecrets", [{"name": "a"}, {"name": "b"}]),
    ("runtime.gpu.count", 16),
    ("runtime.resources", {"requests": {"cpu": "500m"}, "limits": {"memory": "8Gi", "ephemeral-storage": "30Gi"}}),
    ("runtime.resources", {"requests": {"cpu": 1, "memory": 2**30}, "limits": {"cpu": 2, "memory": "4Gi"}}),
    ("runtime.resources", {"requests": {"cpu": "1500000u"}, "limits": {"memory": "4e9", "ephemeral-storage": "1.5E9"}}),
    ("runtime.sharedMemory", 2**28),
    ("traffic.maxRequestSize", 2**20),
    ("runtime.gpu", {"resourceName": "nvidia.com/mig-1g.10gb"}),
    (
        "runtime.envFrom",
        [{"configMapRef": {"name": "a"}}, {"prefix": "X_", "secretRef": {"name": "b", "optional": True}}],
    ),
    ("runtime.instancesPerGPU", 64),
    (
        "runtime.env",
        [{"name": "MODE", "value": "fast"}, {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    ),
    ("runtime.env", [{"name": "PATHOS", "value": ""}]),
    ("runtime.placement.nodeSelector", {"example.com/pool": "gpu", "zone": ""}),
    ("runtime.placement.tolerations", [{"key": "a", "operator": "Exists"}, {"key": "a", "value": "b"}]),
    ("runtime.placement.topologySpreadConstraints", []),
    (
        "runtime.placement.topologySpreadConstraints",
        [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor"},
        ],
    ),
    ("runtime.placement.affinity", {}),
    ("runtime.placement.affinity.nodeAffinity", node_terms({"key": "a", "operator": "Gt", "values": ["16"]})),
    ("runtime.placement.affinity.nodeAffinity", node_terms({"key": "a", "operator": "Exists"})),
    ("runtime.podLabels", {"kueue.x-k8s.io/queue-name": "models", "team": ""}),
    ("runtime.podAnnotations", {"karpenter.sh/do-not-disrupt": "true"}),
    ("runtime.serviceAccountName", "models"),
    ("runtime.startupTimeout", "24h"),
    ("batching", {}),
    ("batching", {"maxBatchSize": 8, "preferredBatchSizes": [8, 4]}),
    ("batching.preferredBatchSizes", [65536]),
    ("batching.maxQueueDelay", "1m"),
    ("batching", {"priorityLevels": 16, "defaultPriorityLevel": 1, "preserveOrdering": False}),
    ("batching.queuePolicy", {"timeoutAction": "Delay", "defaultTimeout": "1h", "maxQueueSize": 100000}),
    ("batching.queuePolicy", {"allowTimeoutOverride": True}),
    ("runtime", {"gpu": {"count": 1}, "server": {"cudaMemoryPool": "0", "pinnedMemoryPool": "1Ti"}}),
    ("runtime.server", {"forwardedHeaders": ["x-tenant", "X_user"], "logLevel": "Verbose"}),
    (
        "runtime",
        {"server": {"responseCache": {"size": "767Mi"}}, "resources": {"limits": {"memory": "1Gi"}}},
    ),
    ("scaling", {"minReplicas": 8, "maxReplicas": 8}),
    ("scaling", {"maxReplicas": 8, "targets": {"queueDepth": 4, "latency": "500ms"}}),
    ("scaling", {"maxReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}),
    (
        "traffic",
        {
            "balancerReplicas": 1,
            "queueLimit": 100000,
            "overload": {"mode": "Wait"},
            "sourceShare": 1,
            "queueTimeout": "10ms",
            "responseTimeout": "10ms",
            "drainTimeout": "1h",
        },
    ),
    (
        "traffic.service",
        {"type": "LoadBalancer", "sourceRanges": ["0.0.0.0/0", "255.255.255.255/32", "::/0", "fd00:1::2/128"]},
    ),
    ("traffic.tls", {"secretName": "a.b", "clientCA": "c"}),
    ("traffic", {"maxRequestSize": "1Gi", "accessLog": "All"}),
    ("traffic.maxRequestSize", "1024"),
    ("traffic.service.annotations", {"example.com/a": "", "b": "x" * 4096}),
]


RULES: list[tuple[str, Any, str]] = [
    (
        "rollout.canary",
        {"analysis": {"metrics": [{"name": "a", "query": "up", "min": "0", "max": "1"}]}},
        (
            "an entry of spec.rollout.canary.analysis.metrics needs exactly one of min, max; for example "
            "{name: error-ratio, query: QUERY, max: '0.01'}"
        ),
    ),
    (
        "rollout.canary",
        {"analysis": {"metrics": [{"name": "a", "query": 'up{pod="{{pod}}"}', "max": "1"}]}},
        (
            "an entry of spec.rollout.canary.analysis.metrics, a, has a query with an unknown placeholder; the known ones "
            "are namespace, name, revision, stable, deployment, stableDeployment, each in double braces without spaces; "
            'for example sum(rate(orders_total{namespace="{{namespace}}"}[5m]))'
        ),
    ),
    (
        "model.source",
        {},
        (
            "spec.model.source needs exactly one of configMap, persistentVolumeClaim, image, uri; for example "
            "source: {persistentVolumeClaim: {claimName: models, path: resnet50}}"
        ),
    ),
    (
        "model.source",
        PVC | CONFIG_MAP,
        (
            "spec.model.source needs exactly one of configMap, persistentVolumeClaim, image, uri; for example "
            "source: {persistentVolumeClaim: {claimName: models, path: resnet50}}"
        ),
    ),
    (
        "model.versions",
        {"latest": 1, "all": True},
        "spec.model.versions needs exactly one of latest, specific, all; for example versions: {latest: 1}",
    ),
    (
        "model.source",
        {"uri": "hf://acme/resnet50@main"},
        (
            "spec.model.source.uri is hf://acme/resnet50@main, which names no commit: pods that start later could serve another "
            "model. Append the commit, which git ls-remote prints for the repository's URL, for example "
            "hf://acme/resnet50@0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"
        ),
    ),
    (
        "model.source",
        {"uri": "mlflow://resnet50/3"},
        (
            "spec.model.source.uri is mlflow://resnet50/3 but endpoint is not set; set endpoint to the URL of the storage "
            "account or the registry, for example endpoint: https://ACCOUNT.blob.core.windows.net or https://mlflow.example.com"
        ),
    ),
    (
        "model.versions",
        {},
        "spec.model.versions needs exactly one of latest, specific, all; for example versions: {latest: 1}",
    ),
    (
        "runtime.env",
        [{"name": "A"}],
        "an entry of spec.runtime.env needs exactly one of value, valueFrom; for example {name: MODE, value: fast}",
    ),
    *(
        (
            "runtime.env",
            [{"name": name, "value": "x"}],
            (
                f"spec.runtime.env: {name} is a reserved name; names must not start with LD_, NVIDIA_, CUDA_, "
                "KUBERNETES_, AIP_, PYTHONPATH, PYTHONHOME or PYTHONSTARTUP; for example MODEL_MODE"
            ),
        )
        for name in ("LD_PRELOAD", "NVIDIA_X", "CUDA_X", "KUBERNETES_PORT", "AIP_MODE", "PYTHONPATH")
    ),
    (
        "runtime.envFrom",
        [{"configMapRef": {"name": "a"}, "prefix": "NVIDIA_VISIBLE_"}],
        (
            "spec.runtime.envFrom: NVIDIA_VISIBLE_ begins like a reserved name; prefixes must not start with LD_, NVIDIA_, CUDA_, "
            "KUBERNETES_, AIP_, PYTHONPATH, PYTHONHOME or PYTHONSTARTUP; for example MODEL_"
        ),
    ),
    (
        "runtime.placement.tolerations",
        [{"key": "pool", "operator": "Exists", "value": "x"}],
        (
            "spec.runtime.placement.tolerations: pool has operator Exists and a value; remove the value, "
            "or set operator: Equal"
        ),
    ),
    *(
        (
            "runtime.placement.affinity.nodeAffinity",
            node_terms({"key": "pool", **wrong}),
            (
                f"spec.runtime.placement: the expression for the label pool has operator {wrong['operator']}; Exists and "
                "DoesNotExist take no values, the others need them; for example {key: pool, operator: In, values: [gpu]}"
            ),
        )
        for wrong in ({"operator": "In"}, {"operator": "Exists", "values": ["a"]}, {"operator": "Gt"})
    ),
    *(
        (
            "runtime.placement.affinity.nodeAffinity",
            node_terms({"key": "cores", "operator": "Gt", "values": values}),
            (
                "spec.runtime.placement.affinity.nodeAffinity: the expression for the label cores has operator Gt, "
                "which needs one integer in values; for example {key: cores, operator: Gt, values: ['16']}"
            ),
        )
        for values in (["a"], ["1", "2"])
    ),
    (
        "runtime.placement.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}],
        (
            "spec.runtime.placement.topologySpreadConstraints: zone has minDomains and whenUnsatisfiable: ScheduleAnyway; "
            "minDomains needs whenUnsatisfiable: DoNotSchedule; change that, or remove minDomains"
        ),
    ),
    *(
        (
            f"runtime.{field}",
            {key: "me"},
            (
                f"spec.runtime.{field} has a key that Halcyon itself sets; keys must not start with serving.halcyon.dev/, "
                "app.kubernetes.io/, pod-template-hash; for example team.example.com/cost-center"
            ),
        )
        for field in ("podLabels", "podAnnotations")
        for key in ("serving.halcyon.dev/slot", "app.kubernetes.io/managed-by", "pod-template-hash")
    ),
    (
        "runtime",
        {"sharedMemory": "4Gi", "resources": {"limits": {"memory": "4096Mi"}}},
        (
            "spec.runtime.sharedMemory is 4Gi; it counts towards spec.runtime.resources.limits.memory, which is "
            "4096Mi, and must be smaller; for example resources: {limits: {memory: 4Gi}}, sharedMemory: 1Gi"
        ),
    ),
    (
        "batching",
        {"maxBatchSize": 8, "preferredBatchSizes": [4, 16]},
        (
            "spec.batching.preferredBatchSizes is [4, 16] and has a size above spec.batching.maxBatchSize, which is 8; for "
            "example maxBatchSize: 16, preferredBatchSizes: [8, 16]"
        ),
    ),
    (
        "batching",
        {"defaultPriorityLevel": 2},
        (
            "spec.batching.defaultPriorityLevel is 2 but spec.batching.priorityLevels is not set; for example "
            "priorityLevels: 2, defaultPriorityLevel: 2"
        ),
    ),
    (
        "batching",
        {"priorityLevels": 2, "defaultPriorityLevel": 3},
        (
            "spec.batching.defaultPriorityLevel is 3 and must not be above spec.batching.priorityLevels, which is 2; for "
            "example priorityLevels: 2, defaultPriorityLevel: 2"
        ),
    ),
    (
        "batching",
        {"priorityLevels": 2, "preserveOrdering": True},
        (
            "spec.batching.priorityLevels is 2 and spec.batching.preserveOrdering is true, which Triton rejects: with "
            "priorities, responses are not in the order of arrival; remove one of them"
        ),
    ),
    (
        "runtime.server",
        {"responseCache": {"size": "1Gi"}, "forwardedHeaders": ["x-tenant"]},
        (
            "spec.runtime.server.responseCache and spec.runtime.server.forwardedHeaders exclude each other: Triton's "
            "cache ignores headers, so one client would get the response to another's; remove one of them"
        ),
    ),
    (
        "runtime",
        {"gpu": {"count": 0}, "server": {"cudaMemoryPool": "64Mi"}},
        (
            "spec.runtime.server.cudaMemoryPool is 64Mi but the model has no GPU; set spec.runtime.gpu, for example "
            "gpu: {count: 1}, or remove the pool"
        ),
    ),
    (
        "runtime",
        {"server": {"responseCache": {"size": "768Mi"}}, "resources": {"limits": {"memory": "1Gi"}}},
        (
            "spec.runtime.server.responseCache.size is 768Mi and spec.runtime.sharedMemory is 256Mi; together they must "
            "be less than spec.runtime.resources.limits.memory, which is 1Gi; for example responseCache: {size: 1Gi}, "
            "resources: {limits: {memory: 4Gi}}"
        ),
    ),
    (
        "traffic",
        {"mode": "Direct", "apiKeys": {"secretName": "a"}},
        (
            "spec.traffic.apiKeys is set but spec.traffic.mode is Direct: only balancers "
            "check API keys; set mode: Balancer or remove apiKeys"
        ),
    ),
    (
        "traffic",
        {"mode": "Direct", "tls": {"secretName": "a"}},
        (
            "spec.traffic.tls is set but spec.traffic.mode is Direct: only balancers "
            "terminate TLS; set mode: Balancer or remove tls"
        ),
    ),
    (
        "traffic.service",
        {"type": "NodePort", "sourceRanges": ["10.0.0.0/8"]},
        (
            "spec.traffic.service.sourceRanges is set but spec.traffic.service.type is NodePort: source "
            "ranges apply only to Services of type LoadBalancer; set type: LoadBalancer or remove "
            "sourceRanges"
        ),
    ),
    (
        "scaling",
        {"minReplicas": 5, "maxReplicas": 4},
        (
            "spec.scaling.minReplicas is 5 and must not be above spec.scaling.maxReplicas, which is 4; for example "
            "minReplicas: 1, maxReplicas: 8"
        ),
    ),
]
"""Rules over several fields, for which the API server must report the same message."""

CONCURRENCY: list[tuple[dict[str, Any], str | None]] = [
    (
        {"traffic": {"mode": "Direct"}, "scaling": {"maxReplicas": 2, "targets": {"concurrency": 8}}},
        (
            "spec.scaling.targets.concurrency is 8 but spec.traffic.mode is Direct: only balancers count the requests in "
            "progress; set mode: Balancer, or another target, for example gpuUtilization: 80"
        ),
    ),
    ({"scaling": {"maxReplicas": 2, "targets": {"concurrency": 8, "latency": "1s"}}}, None),
    (
        {"traffic": {"maxConcurrency": 16}, "batching": {"maxBatchSize": 32}},
        (
            "spec.traffic.maxConcurrency is 16 and must be at least spec.batching.maxBatchSize, which is 32, or no batch fills; for "
            "example maxConcurrency: 64, maxBatchSize: 32"
        ),
    ),
    ({"traffic": {"maxConcurrency": 32}, "batching": {"maxBatchSize": 32}}, None),
    (
        {"traffic": {"maxConcurrency": 73}, "batching": {"maxBatchSize": 8, "queuePolicy": {"maxQueueSize": 64}}},
        (
            "spec.traffic.maxConcurrency is 73, but a pod accepts only spec.batching.queuePolicy.maxQueueSize, which is 64, and one "
            "batch in each instance; Triton rejects the others; for example maxConcurrency: 64, maxQueueSize: 100"
        ),
    ),
    ({"traffic": {"maxConcurrency": 72}, "batching": {"maxBatchSize": 8, "queuePolicy": {"maxQueueSize": 64}}}, None),
    ({"traffic": {"maxConcurrency": 96}, "batching": {"queuePolicy": {"maxQueueSize": 64}}}, None),
    (
        {
            "traffic": {"maxConcurrency": 96},
            "batching": {"maxBatchSize": 8, "queuePolicy": {"maxQueueSize": 64}},
            "runtime": {"instancesPerGPU": 2, "gpu": {"count": 2}},
        },
        None,
    ),
]
"""Specs with a number of requests in a pod, and the message of its rule; None if it is allowed."""

FIELDS: list[tuple[str, Any, str]] = [
    ("replicas", -1, "spec.replicas is -1: must be a whole number from 0 to 1000"),
    ("replicas", 1001, "spec.replicas is 1001: must be a whole number from 0 to 1000"),
    ("batching.maxBatchSize", 0, "spec.batching.maxBatchSize is 0: must be a whole number from 1 to 65536"),
    (
        "traffic.maxConcurrency",
        0,
        "spec.traffic.maxConcurrency is 0: must be a whole number from 1 to 1024; write for example maxConcurrency: 64",
    ),
    (
        "traffic.maxConcurrency",
        1025,
        "spec.traffic.maxConcurrency is 1025: must be a whole number from 1 to 1024; write for example maxConcurrency: 64",
    ),
    ("runtime.startupTimeout", "9s", 'spec.runtime.startupTimeout is "9s": must be between 10s and 24h'),
    ("batching.maxQueueDelay", "61s", 'spec.batching.maxQueueDelay is "61s": must be between 0us and 1m'),
    ("batching.priorityLevels", 1, "spec.batching.priorityLevels is 1: must be a whole number from 2 to 16"),
    (
        "runtime.server.responseCache.size",
        "1023Ki",
        'spec.runtime.server.responseCache.size is "1023Ki": must be between 1Mi and 1Ti',
    ),
    ("traffic.queueTimeout", "9ms", 'spec.traffic.queueTimeout is "9ms": must be between 10ms and 1h'),
    ("traffic.drainTimeout", "2h", 'spec.traffic.drainTimeout is "2h": must be between 1s and 1h'),
    (
        "traffic.drainTimeout",
        "10",
        'spec.traffic.drainTimeout is "10": must be a duration between 1s and 1h, for example 30s or 1m30s',
    ),
    (
        "runtime.sharedMemory",
        "1Q",
        'spec.runtime.sharedMemory is "1Q": must be a quantity between 0 and 100Ti, for example 500m, 2 or 4Gi',
    ),
    (
        "runtime.sharedMemory",
        -1,
        'spec.runtime.sharedMemory is "-1": must be a quantity between 0 and 100Ti, for example 500m, 2 or 4Gi',
    ),
    (
        "runtime.resources",
        {"limits": {"cpu": 0.5}},
        (
            "spec.runtime.resources.limits.cpu is 0.5: must be a quantity between 1m and 10k, and in quotes if it isn't a "
            "whole number, for example '0.5'"
        ),
    ),
    ("runtime.resources", {"limits": {"cpu": 0}}, "spec.runtime.resources.limits.cpu is 0: must be between 1m and 10k"),
    (
        "model.versions.specific",
        [1, 2, 1],
        ("spec.model.versions.specific is [1, 2, 1]: item 1 is listed more than once; list each one once"),
    ),
    (
        "runtime.imagePullSecrets",
        [{"name": "a"}, {"name": "a"}],
        (
            'spec.runtime.imagePullSecrets is [{"name": "a"}, {"name": "a"}]: name a is listed more than '
            "once; list each one once"
        ),
    ),
    (
        "runtime.imagePullSecrets",
        [],
        "spec.runtime.imagePullSecrets is []: must have 1 to 8 items; it has 0",
    ),
    (
        "model.parameters",
        {"a/b": "x"},
        (
            'spec.model.parameters.a/b is "a/b": the name must match ^[-._a-zA-Z0-9]+$; write for example parameters: '
            "{gpu_ms: '5'}"
        ),
    ),
    (
        "model.warmup.data",
        "Ones",
        'spec.model.warmup.data is "Ones": must be Zero or Random',
    ),
    ("traffic.maxRequestSize", "1023", 'spec.traffic.maxRequestSize is "1023": must be between 1Ki and 1Gi'),
    ("traffic.maxRequestSize", "1.1Gi", 'spec.traffic.maxRequestSize is "1.1Gi": must be between 1Ki and 1Gi'),
    (
        "traffic.accessLog",
        "Some",
        'spec.traffic.accessLog is "Some": must be None, Errors or All',
    ),
    (
        "traffic.service.type",
        "ExternalName",
        'spec.traffic.service.type is "ExternalName": must be ClusterIP, NodePort or LoadBalancer',
    ),
    (
        "rollout.canary",
        {"analysis": "Off"},
        (
            'spec.rollout.canary.analysis is "Off", but must be an object, for example analysis: {mode: Enabled}, or '
            "{mode: Disabled} for the former Off"
        ),
    ),
    (
        "rollout.canary",
        {"steps": [{"weight": 5, "pause": "2m"}]},
        (
            'spec.rollout.canary.steps[0].pause is "2m", but must be an object, for example pause: {duration: 5m}, or '
            "pause: {} to pause until someone resumes the rollout"
        ),
    ),
    (
        "rollout.canary",
        {"analysis": {"maxFailureIncrease": 51}},
        "spec.rollout.canary.analysis.maxFailureIncrease is 51: must be a whole number from 1 to 50",
    ),
    ("scaling", {"minReplicas": 1}, "spec.scaling.maxReplicas is missing; for example maxReplicas: 8"),
    ("modle", {}, "spec.modle is not a field; did you mean model?"),
    (
        "model.modelFormat",
        {"name": "onnx"},
        "spec.model.modelFormat is not a field; use spec.model.backend, for example backend: onnxruntime",
    ),
    (
        "runtime.gpu.resourceName",
        "mig-1g.10gb",
        (
            'spec.runtime.gpu.resourceName is "mig-1g.10gb": this form is not valid; write for example '
            "resourceName: nvidia.com/mig-1g.10gb"
        ),
    ),
    ("runtime.gpu.cuont", 1, "spec.runtime.gpu.cuont is not a field; did you mean count?"),
]
"""Limits of single fields, for which the API server reports its own message."""
