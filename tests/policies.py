"""Site policies for tests: for each limit a rejected and an allowed spec, and hypothesis strategies for policies."""

from __future__ import annotations

import copy
from typing import Any, Final

from hypothesis import strategies as st

from halcyon.api.policy.site_policy import SitePolicy
from tests.strategies import Document
from tests.unit.api.spec_cases import CONFIG_MAP, document

DIGEST = "sha256:" + "a" * 64
METRIC = {"name": "conversion", "query": "sum(orders{namespace='{{namespace}}'})", "min": "0.5"}
GATEWAY = {"name": "edge", "namespace": "infra", "http": {"hostnames": ["a.team.example.com"]}}


def policy(limits: Document) -> SitePolicy:
    """Return the policy with these limits, given by their paths."""
    nested: Document = {}
    for path, limit in limits.items():
        section, _, name = path.partition(".")
        nested.setdefault(section, {})[name] = limit
    return SitePolicy.model_validate(nested)


LIMITS: Final[dict[str, tuple[Any, Document, list[str], Document]]] = {
    "images.registries": (
        ["nvcr.io/nvidia"],
        document("runtime.image", "evil.example/triton:26.07"),
        [
            "spec.runtime.image is evil.example/triton:26.07",
            "allowed registries: nvcr.io/nvidia",
            "site's default image",
        ],
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.07-py3"),
    ),
    "images.pinned": (
        "Digest",
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.07-py3"),
        [
            "spec.runtime.image or spec.model.source.image.reference is nvcr.io/nvidia/tritonserver:26.07-py3",
            "by Digest",
            "for example",
        ],
        document("runtime.image", f"nvcr.io/nvidia/tritonserver@{DIGEST}"),
    ),
    "triton.refuseBelow": (
        "26.03",
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.02-py3"),
        ["spec.runtime.image is nvcr.io/nvidia/tritonserver:26.02-py3", "Triton 26.03 or newer", "26.07-py3"],
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.03-py3"),
    ),
    "triton.warnBelow": (
        "26.07",
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.06-py3"),
        ["spec.runtime.image is nvcr.io/nvidia/tritonserver:26.06-py3", "Triton 26.07 or newer"],
        document("runtime.image", "nvcr.io/nvidia/tritonserver:26.07-py3"),
    ),
    "models.sources": (
        ["persistentVolumeClaim"],
        document("model.source", CONFIG_MAP),
        ["spec.model.source is of kind configMap", "allowed: persistentVolumeClaim", "{claimName: models}"],
        document(),
    ),
    "models.urls": (
        ["s3://models/{namespace}", "https://models.example.com"],
        document("model.source", {"uri": "s3://models-of-others/team/a"}),
        [
            "uri is s3://models-of-others/team/a",
            "allowed prefixes: s3://models/{namespace}, https://models.example.com",
        ],
        document("model.source", {"uri": "https://models.example.com/a.tar.gz"}),
    ),
    "models.endpoints": (
        ["https://minio.storage.svc:9000"],
        document("model.source", {"uri": "s3://models/a", "endpoint": "http://minio.storage.svc:9000"}),
        ["endpoint is http://minio.storage.svc:9000", "allowed: https://minio.storage.svc:9000", "AWS"],
        document("model.source", {"uri": "s3://models/a", "endpoint": "https://minio.storage.svc:9000"}),
    ),
    "models.images": (
        ["registry.example.com/models"],
        document("model.source", {"image": {"reference": "registry.example.com/others/a:1"}}),
        ["reference is registry.example.com/others/a:1", "allowed registries: registry.example.com/models"],
        document("model.source", {"image": {"reference": "registry.example.com/models/a@" + DIGEST}}),
    ),
    "models.backends": (
        ["onnxruntime", "tensorrt"],
        document("model.backend", "python"),
        ["spec.model.backend is python", "allowed: onnxruntime, tensorrt", "for example"],
        document("model.backend", "tensorrt"),
    ),
    "models.secrets": (
        ["models-*", "registry"],
        document(
            "runtime.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "halcyon-tls", "key": "tls.key"}}}]
        ),
        ["Secrets halcyon-tls", "allowed: models-*, registry"],
        document("runtime.imagePullSecrets", [{"name": "registry"}, {"name": "models-a"}]),
    ),
    "pods.priorityClasses": (
        ["models"],
        document("runtime.placement.priorityClassName", "system-node-critical"),
        ["priorityClassName is system-node-critical", "allowed: models", "remove it"],
        document("runtime.placement.priorityClassName", "models"),
    ),
    "pods.runtimeClasses": (
        ["nvidia"],
        document("runtime.placement.runtimeClassName", "kata-privileged"),
        ["runtimeClassName is kata-privileged", "allowed: nvidia"],
        document("runtime.placement.runtimeClassName", "nvidia"),
    ),
    "pods.resourceClaimTemplates": (
        ["one-gpu"],
        document("runtime.gpu", {"count": 1, "resourceClaimTemplateName": "eight-gpus"}),
        ["resourceClaimTemplateName is eight-gpus", "allowed: one-gpu"],
        document("runtime.gpu", {"count": 1, "resourceClaimTemplateName": "one-gpu"}),
    ),
    "pods.nodeSelectors": (
        ["pool=models", "zone"],
        document("runtime.placement.nodeSelector", {"pool": "system"}),
        ["has the node labels pool=system in nodeSelector", "allowed: pool=models, zone"],
        document("runtime.placement.nodeSelector", {"pool": "models", "zone": "a"}),
    ),
    "pods.serviceAccounts": (
        ["models"],
        document("runtime.serviceAccountName", "deployer"),
        ["serviceAccountName is deployer", "allowed: models", "remove it"],
        document("runtime.serviceAccountName", "models"),
    ),
    "pods.env": (
        ["MODEL_*", "HOME"],
        document("runtime.env", [{"name": "HTTP_PROXY", "value": "x"}]),
        ["env or envFrom sets HTTP_PROXY", "allowed: MODEL_*, HOME"],
        document("runtime.env", [{"name": "MODEL_MODE", "value": "fast"}, {"name": "HOME", "value": "/tmp"}]),
    ),
    "pods.configMaps": (
        ["models-*"],
        document("runtime.envFrom", [{"configMapRef": {"name": "cluster-info"}}]),
        ["ConfigMaps cluster-info", "allowed: models-*"],
        document("runtime.envFrom", [{"configMapRef": {"name": "models-a"}, "prefix": "MODEL_"}]),
    ),
    "pods.tolerations": (
        ["dedicated=models", "spot"],
        document("runtime.placement.tolerations", [{"key": "dedicated", "operator": "Exists"}]),
        ["tolerations has dedicated", "allowed: dedicated=models, spot"],
        document(
            "runtime.placement.tolerations",
            [{"key": "dedicated", "value": "models"}, {"key": "spot", "operator": "Exists"}],
        ),
    ),
    "limits.replicas": (
        8,
        document("scaling", {"maxReplicas": 9}),
        ["spec.scaling.maxReplicas", "is 9", "allows at most 8", "maxReplicas: 8"],
        document("scaling", {"maxReplicas": 8}),
    ),
    "limits.gpusPerModel": (
        8,
        document("runtime.gpu.count", 4) | {"replicas": 3},
        ["spec.runtime.gpu.count", "is 12 GPUs", "at most 8 for one model", "for example"],
        document("runtime.gpu.count", 4) | {"replicas": 2},
    ),
    "traffic.serviceTypes": (
        ["ClusterIP"],
        document("traffic.service.type", "LoadBalancer"),
        ["spec.traffic.service.type is LoadBalancer", "allowed: ClusterIP"],
        document(),
    ),
    "traffic.gateways": (
        ["infra/edge", "{namespace}/own"],
        document("traffic.gateway", {"name": "edge"}),
        ["/edge", "allowed: infra/edge, {namespace}/own"],
        document("traffic.gateway", GATEWAY),
    ),
    "traffic.hostnames": (
        ["*.models.example.com", "a.team.example.com"],
        document("traffic.gateway", {"name": "edge", "http": {"hostnames": ["other.example.com"]}}),
        ["hostnames other.example.com", "allowed: *.models.example.com, a.team.example.com"],
        document("traffic.gateway", GATEWAY | {"grpc": {"hostnames": ["*.models.example.com"]}}),
    ),
    "canary.queryNamespaces": (
        ["platform"],
        document("rollout", {"canary": {"analysis": {"metrics": [METRIC]}}}),
        ["spec.rollout.canary.analysis.metrics has conversion", "only in the namespaces platform", "remove metrics"],
        document("rollout", {"canary": {"analysis": {"mode": "Enabled"}}}),
    ),
}
"""By path of the limit: its value, a spec that it rejects, words in the rejection, and a spec that it allows."""

EVERY: Final = policy({path: limit for path, (limit, *_) in LIMITS.items()} | {"triton.digests": {DIGEST: "26.05"}})
"""A policy with all of these limits."""

_ENTRIES: Final[dict[str, list[str]]] = {
    "images.registries": ["nvcr.io/nvidia", "docker.io", "docker.io/library", "localhost", "a.b", "a:1", "0.0/a"],
    "models.sources": ["configMap", "persistentVolumeClaim", "uri"],
    "models.urls": [
        "s3://models",
        "s3://000",
        "hf://acme",
        "mlflow://m",
        "https://a",
        "https://models.example.com/{namespace}",
        "http://0.0",
    ],
    "models.endpoints": ["https://minio.storage.svc:9000", "http://a", "http://0"],
    "models.backends": ["python", "onnxruntime", "tensorrt"],
    "models.secrets": ["0*", "a*", "s", "registry"],
    "pods.priorityClasses": ["models", "a", "0"],
    "pods.runtimeClasses": ["nvidia", "a", "0"],
    "pods.resourceClaimTemplates": ["one-gpu", "a", "0"],
    "pods.nodeSelectors": ["a", "A=", "0", "pool=models"],
    "pods.tolerations": ["a", "A=", "0", "spot", "dedicated=models"],
    "pods.serviceAccounts": ["models", "a"],
    "pods.env": ["A*", "_*", "MODE", "A"],
    "pods.configMaps": ["0*", "a*", "s", "settings"],
    "traffic.serviceTypes": ["ClusterIP", "NodePort", "LoadBalancer"],
    "traffic.gateways": ["infra/edge", "{namespace}/edge", "default/a", "{namespace}/0"],
    "canary.queryNamespaces": ["default", "team", "0"],
    "traffic.hostnames": ["*.example.com", "{namespace}.example.com", "*.{namespace}.a", "a", "*.0"],
}


def policies() -> st.SearchStrategy[SitePolicy]:
    """Return a strategy for policies with some limits, including limits that affect random specs."""
    limits: dict[str, st.SearchStrategy[Any]] = {
        path: st.lists(st.sampled_from(entries), max_size=4, unique=True) for path, entries in _ENTRIES.items()
    }
    limits |= {
        "images.pinned": st.sampled_from(["Tag", "Digest"]),
        "triton.refuseBelow": st.sampled_from(["26.03", "24.10"]),
        "triton.warnBelow": st.just("26.07"),
        "triton.digests": st.just({DIGEST: "26.05"}),
        "limits.replicas": st.integers(1, 30),
        "limits.gpusPerModel": st.integers(0, 60),
    }
    return st.fixed_dictionaries({}, optional=limits).map(policy)


_IMAGES: Final = [
    "tritonserver",
    "tritonserver:latest",
    "nvcr.io/nvidia/tritonserver:26.07-py3",
    "nvcr.io/nvidia/tritonserver:24.10-py3",
    "nvcr.io/nvidiax/tritonserver:26.02",
    f"nvcr.io/nvidia/tritonserver:26.07@{DIGEST}",
    f"localhost/a@{DIGEST}",
    "localhost/a@sha256:" + "b" * 64,
    "a:1/b:26.03",
    "a:1",
    "docker.io/a",
    "docker.io/library/a:26.10",
    "a.b/c:26.07.1",
    "0.0/a",
]
_HOSTS: Final = [
    "a.example.com",
    "*.example.com",
    "example.com",
    "b.a",
    "default.example.com",
    "x.default.a",
    "a",
    "0.0",
]


def _nodes(key: str, operator: str, *values: str) -> Document:
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    terms = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


@st.composite
def pointed(draw: st.DrawFn, document: st.SearchStrategy[Document]) -> Document:
    """Return a strategy for valid specs with fields that policies limit: images, classes, Secrets, Gateways."""
    spec = copy.deepcopy(draw(document))
    runtime = spec.setdefault("runtime", {})
    placement = runtime.setdefault("placement", {})
    for part, field, choices in (
        (runtime, "image", _IMAGES),
        (runtime, "imagePullSecrets", [[{"name": "registry"}], [{"name": "0a"}, {"name": "s"}]]),
        (placement, "priorityClassName", ["models", "system-node-critical"]),
        (placement, "runtimeClassName", ["nvidia", "0", "kata"]),
        (placement, "nodeSelector", [{"pool": "models"}, {"pool": "other"}, {"A": ""}]),
        (
            placement,
            "affinity",
            [_nodes("pool", "In", "models"), _nodes("pool", "NotIn", "models"), _nodes("a", "Exists")],
        ),
        (runtime, "serviceAccountName", ["default", "models", "b"]),
        (
            placement,
            "tolerations",
            [[{"key": "spot"}], [{"key": "dedicated", "value": "models"}, {"key": "A", "operator": "Exists"}]],
        ),
        (spec["model"], "backend", ["python", "onnxruntime"]),
    ):
        if draw(st.booleans()):
            part[field] = draw(st.sampled_from(choices))
    traffic = spec.setdefault("traffic", {})
    if traffic.get("mode", "Balancer") != "Direct" and draw(st.booleans()):
        names = st.lists(st.sampled_from(_HOSTS), min_size=1, max_size=2, unique=True)
        gateway = {"name": draw(st.sampled_from(["edge", "a", "0"]))}
        gateway |= draw(st.fixed_dictionaries({}, optional={"namespace": st.sampled_from(["infra", "default"])}))
        traffic["gateway"] = gateway | draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "http": st.fixed_dictionaries({}, optional={"hostnames": names}),
                    "grpc": st.fixed_dictionaries({"sectionName": st.just("grpc")}, optional={"hostnames": names}),
                },
            )
        )
    return spec
