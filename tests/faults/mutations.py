"""Mutations of a spec, generated from the CRD's schema: each leaf unset, changed, at its bounds, invalid and semantically wrong. Pure.

kind        value
unset       the field is removed
changed     another valid value
bound       the smallest or largest value that the schema names
invalid     beyond a bound, of another type, or against the pattern
semantic    valid by the schema, but wrong beside other fields or for lack of what it names (`SEMANTIC`)

A mutation begins from a valid spec that sets the field (`begin`).
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from generators.resource_example import EXAMPLE

Schema = Mapping[str, Any]
Spec = dict[str, Any]
ITEM = "[]"
_BOUNDS = re.compile(r"must be between (\S+) and (\S+)")
_MISSING = "missing"


@dataclass(frozen=True)
class Leaf:
    """A field of the CRD without fields below it."""

    path: str
    """Path below spec; `[]` stands for the first item of a list."""
    schema: Schema

    @property
    def parts(self) -> list[str]:
        """Return the names of the path."""
        return self.path.split(".")


@dataclass(frozen=True)
class Mutation:
    """A change of one field of a valid spec."""

    path: str
    kind: str
    value: Any
    """New value; None: the field is removed."""

    @property
    def id(self) -> str:
        """Return the name of the mutation."""
        return f"{self.path}/{self.kind}/{json.dumps(self.value)[:60]}"


def leaves(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every leaf field of a spec's schema."""
    items = schema.get("items") or {}
    if schema.get("properties"):
        for name, field in schema["properties"].items():
            yield from leaves(field, (*path, name))
    elif items.get("properties"):
        for name, field in items["properties"].items():
            yield from leaves(field, (*path, ITEM, name))
    else:
        yield Leaf(".".join(path), schema)


def get(spec: Any, path: str) -> Any:
    """Return the value of a field; None if it isn't set."""
    for part in path.split("."):
        spec = (spec[0] if spec else None) if part == ITEM else (spec or {}).get(part)
        if spec is None:
            return None
    return spec


def changed(spec: Spec, path: str, value: Any) -> Spec:
    """Return the spec with a field set, or removed if `value` is None. Missing parents are added."""
    result = copy.deepcopy(spec)
    parts = path.split(".")
    last = parts[-1]
    part: Any = result
    for name, following in itertools.pairwise(parts):
        empty: Any = [{}] if following == ITEM else {}
        part = part[0] if name == ITEM else part.setdefault(name, empty)
    if value is None:
        part.pop(last, None)
    else:
        part[last] = value
    return result


# Beginnings

_EXAMPLE: Spec = yaml.safe_load(EXAMPLE)["spec"]
_PLAIN: Spec = {
    "replicas": 0,
    "model": {"source": {"configMap": {"name": "files", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}},
    "runtime": {"gpu": {"count": 1}},
    "traffic": {"balancerReplicas": 1, "drainTimeout": "1s"},
}
_S3 = {
    "uri": "s3://models/vision",
    "endpoint": "https://minio.storage.svc:9000",
    "region": "eu-central-1",
    "sizeLimit": "10Gi",
    "credentials": {"secretName": "models"},
}
_IDENTITIES: dict[str, Spec] = {
    "aws": {"aws": {"roleARN": "arn:aws:iam::123456789012:role/models"}, "endpoint": "https://sts.storage.svc:9000"},
    "azure": {
        "azure": {
            "clientID": "0c5cbd4c-55f2-4d0f-9e0f-6a2c6f1d8a11",
            "tenantID": "5a1b1c3e-7a0a-4f0e-8a53-6d3f1a2b3c4d",
        }
    },
    "google": {
        "google": {
            "provider": "projects/1/locations/global/workloadIdentityPools/a/providers/b",
            "serviceAccount": "models@acme.iam.gserviceaccount.com",
        }
    },
}


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return copy.deepcopy(above)
    return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}


def _source(source: Spec) -> Spec:
    return {"model": {"source": source}}


def _identified(uri: str, which: str, **more: Any) -> Spec:
    return _source({"uri": uri, **more, "credentials": {"identity": _IDENTITIES[which]}})


def _behavior() -> Spec:
    policy = {"type": "Pods", "value": 4, "periodSeconds": 15}
    side = {"stabilizationWindowSeconds": 30, "selectPolicy": "Max", "policies": [policy]}
    return {"maxReplicas": 8, "actuator": "HPA", "behavior": {"scaleUp": side, "scaleDown": copy.deepcopy(side)}}


_SCALING = {key: value for key, value in _EXAMPLE["scaling"].items() if key != "targets"}
_TARGETS = {key: value for key, value in _EXAMPLE["scaling"]["targets"].items() if key != "metric"}
GATEWAY: Mapping[str, Any] = _EXAMPLE["traffic"]["gateway"]
_TRAFFIC = {key: value for key, value in _EXAMPLE["traffic"].items() if key != "gateway"}
_ANALYSIS = {key: value for key, value in _EXAMPLE["rollout"]["canary"]["analysis"].items() if key != "metrics"}
_CANARY = {**_EXAMPLE["rollout"], "canary": {**_EXAMPLE["rollout"]["canary"], "analysis": _ANALYSIS}}
_MODEL = {key: value for key, value in _EXAMPLE["model"].items() if key != "source"}
_RUNTIME = {
    **_EXAMPLE["runtime"],
    "serviceAccountName": "default",
    "podLabels": {"example.com/team": "vision"},
    "podAnnotations": {"example.com/owner": "vision"},
}
"""With what a site allows by default."""


def _env(source: str, reference: Spec) -> Spec:
    return {"runtime": {"env": [{"name": "A", "valueFrom": {source: reference}}]}}


_KEY = {"name": "settings", "key": "a", "optional": True}
_MAXIMUM = {"name": "timeouts", "query": "up", "max": "0.5"}

BEGINNINGS: Mapping[str, Spec] = {
    "": {},
    "model": {"model": _MODEL, "batching": {"maxBatchSize": 16}},
    "model.source": {},
    "model.source.persistentVolumeClaim": _source({"persistentVolumeClaim": {"claimName": "models", "path": "a"}}),
    "model.source.image": _source({"image": {"reference": "localhost/models:3", "path": "resnet50"}}),
    **{f"model.source.{name}": _source(_S3) for name in ("uri", "endpoint", "region", "sizeLimit", "credentials")},
    "model.source.credentials.identity": _identified("s3://models/vision", "aws"),
    "model.source.credentials.identity.azure": _identified(
        "az://models/vision", "azure", endpoint="https://account.blob.core.windows.net"
    ),
    "model.source.credentials.identity.google": _identified("gs://models/vision", "google"),
    **{
        f"model.source.{name}": _source(
            {"uri": "https://models.example/a.tar", "path": "resnet50", "digest": f"sha256:{'0' * 64}"}
        )
        for name in ("path", "digest")
    },
    "model.versions.latest": {"model": {"versions": {"latest": 1}}},
    "model.versions.all": {"model": {"versions": {"all": True}}},
    "runtime": {"runtime": _RUNTIME},
    **{f"runtime.env.[].valueFrom.{source}": _env(source, _KEY) for source in ("secretKeyRef", "configMapKeyRef")},
    "runtime.env.[].valueFrom.fieldRef": _env("fieldRef", {"fieldPath": "metadata.name"}),
    "runtime.envFrom.[].secretRef": {"runtime": {"envFrom": [{"secretRef": {"name": "a", "optional": True}}]}},
    "runtime.gpu.resourceClaimTemplateName": {
        "runtime": {"gpu": {"count": 1, "resourceClaimTemplateName": "two-gpus"}}
    },
    "runtime.server.responseCache": {
        "runtime": {"server": {"responseCache": {"size": "512Mi"}}, "resources": {"limits": {"memory": "8Gi"}}}
    },
    "batching": {"batching": _EXAMPLE["batching"]},
    **{
        f"batching.{name}": {"batching": {"maxBatchSize": 8, "priorityLevels": 4, "defaultPriorityLevel": 2}}
        for name in ("priorityLevels", "defaultPriorityLevel")
    },
    "scaling": {"scaling": {**_SCALING, "targets": _TARGETS}},
    "scaling.targets.metric": {"scaling": {**_SCALING, "targets": _EXAMPLE["scaling"]["targets"]}},
    "scaling.idleTimeout": {"scaling": {"minReplicas": 0, "maxReplicas": 4, "idleTimeout": "10m"}},
    "scaling.behavior": {"scaling": _behavior()},
    "traffic": {"traffic": {**_TRAFFIC, "balancerReplicas": 1}},
    "traffic.gateway": {"traffic": {"gateway": GATEWAY}},
    "rollout": {"rollout": _CANARY},
    "rollout.canary.analysis.metrics": {"rollout": _EXAMPLE["rollout"]},
    "rollout.canary.analysis.metrics.[].max": {
        "rollout": _merged(_CANARY, {"canary": {"analysis": {"metrics": [_MAXIMUM]}}})
    },
}
"""Fields that are set beside a field, by the longest prefix of its path."""


def begin(path: str) -> Spec:
    """Return a valid spec in which the field can be set."""
    prefixes = [prefix for prefix in BEGINNINGS if prefix in ("", path) or path.startswith(f"{prefix}.")]
    overlay = BEGINNINGS[max(prefixes, key=len)]
    spec: Spec = copy.deepcopy(_PLAIN)
    if source := (overlay.get("model") or {}).get("source"):
        spec["model"]["source"] = copy.deepcopy(source)
    return dict(_merged(spec, overlay))


# Values

SEMANTIC: Mapping[str, tuple[Any, ...]] = {
    "model.source.configMap.name": (_MISSING,),
    "model.source.configMap.items.[].key": (_MISSING,),
    "model.source.persistentVolumeClaim.claimName": (_MISSING,),
    "model.source.image.reference": ("localhost/missing:1",),
    "model.source.uri": ("gs://models/vision", "https://models.example/a.tar"),
    "model.source.credentials.secretName": (_MISSING,),
    "model.source.sizeLimit": ("1Mi",),
    "model.backend": ("unknown_backend",),
    "runtime.image": ("localhost/missing:1",),
    "runtime.imagePullSecrets.[].name": (_MISSING,),
    "runtime.gpu.resourceName": ("example.com/missing",),
    "runtime.gpu.resourceClaimTemplateName": (_MISSING,),
    "runtime.gpu.count": (0,),
    "runtime.resources.requests.cpu": ("10k",),
    "runtime.resources.requests.memory": ("100Ti",),
    "runtime.resources.limits.memory": ("1Mi",),
    "runtime.sharedMemory": ("100Gi",),
    "runtime.env.[].name": ("LD_PRELOAD", "NVIDIA_X"),
    "runtime.serviceAccountName": (_MISSING,),
    "runtime.placement.priorityClassName": (_MISSING,),
    "runtime.placement.runtimeClassName": (_MISSING,),
    "runtime.placement.topologySpreadConstraints.[].whenUnsatisfiable": ("ScheduleAnyway",),
    "runtime.server.cudaMemoryPool": ("1Ti",),
    "batching.maxBatchSize": (4, 65536),
    "batching.preferredBatchSizes": ([32],),
    "batching.priorityLevels": (2,),
    "batching.defaultPriorityLevel": (16,),
    "scaling.minReplicas": (100,),
    "scaling.maxReplicas": (1,),
    "scaling.targets.metric.query": (_MISSING,),
    "scaling.schedules.[].start": ("99 99 * * *", "every morning"),
    "scaling.schedules.[].timeZone": ("Mars/Base",),
    "scaling.schedules.[].minReplicas": (1000,),
    "traffic.mode": ("Direct", "Gateway"),
    "traffic.maxConcurrency": (1, 1024),
    "traffic.service.type": ("ClusterIP",),
    "traffic.gateway.name": (_MISSING,),
    "traffic.gateway.namespace": (_MISSING,),
    "traffic.tls.secretName": (_MISSING,),
    "traffic.tls.clientCA": (_MISSING,),
    "traffic.apiKeys.secretName": (_MISSING,),
    "rollout.canary.analysis.metrics.[].query": ('up{pod="{{pod}}"}', "sum("),
    "rollout.canary.analysis.metrics.[].min": ("5",),
}
"""Values that the schema allows, by path, for what only the whole spec, the site or the cluster can judge."""

_OTHER_TYPES: Mapping[str, tuple[Any, ...]] = {
    "integer": ("1", 1.5, True, {}),
    "string": (1, True, {}, []),
    "int-or-string": (1.5, True, {}, []),
    "boolean": ("true", 1, {}),
    "array": ("x", {}, [{}]),
    "object": ("x", 1, []),
}
_ODD_TEXTS = ("", "-", "a b", "ä", "../x", "x\n", "%00")
_ENDINGS = ("x", "2", "0", "1", "a", "b", "/x", ".x")


def mutations(leaf: Leaf) -> list[Mutation]:
    """Return the mutations of a field, each value once."""
    old = get(begin(leaf.path), leaf.path)
    by_value: dict[str, Mutation] = {}
    for kind, value in _values(leaf, old):
        if value == old and type(value) is type(old):
            continue
        mutation = Mutation(leaf.path, kind, value)
        by_value.setdefault(json.dumps(value), mutation)
    return list(by_value.values())


def _values(leaf: Leaf, old: Any) -> Iterator[tuple[str, Any]]:
    schema = leaf.schema
    yield from ((("unset", None),) if old is not None else ())
    for value in SEMANTIC.get(leaf.path, ()):
        yield "semantic", value
    for value in _others(schema, old):
        yield "changed", value
    low, high = _bounds(schema)
    for value in (low, high):
        if value is not None:
            yield "bound", value
    yield from (("invalid", value) for value in _beyond(schema))
    kind = schema.get("type", "int-or-string")
    yield from (("invalid", value) for value in _OTHER_TYPES[kind])


def _bounds(schema: Schema) -> tuple[Any, Any]:
    if schema.get("type") == "integer":
        return schema.get("minimum"), schema.get("maximum")
    if schema.get("type") == "array" and schema["items"]["type"] == "integer":
        return [schema["items"]["minimum"]], [schema["items"]["maximum"]]
    for rule in schema.get("x-kubernetes-validations") or ():
        if match := _BOUNDS.fullmatch(rule["message"]):
            return match[1], match[2]
    return None, None


def _beyond(schema: Schema) -> Iterator[Any]:
    match schema.get("type", "string"):
        case "integer":
            yield from (schema[name] + step for name, step in (("minimum", -1), ("maximum", 1)) if name in schema)
        case "array":
            yield [None]
            if "maxItems" in schema:
                item = next(iter(_others(schema["items"], None)), "x")
                yield [item] * (schema["maxItems"] + 1)
        case "string":
            if "enum" in schema:
                yield from ("", schema["enum"][0].lower(), "Other")
                return
            yield from ("x" * (schema["maxLength"] + 1),)
            if "pattern" in schema:
                yield from (text for text in _ODD_TEXTS if not re.fullmatch(schema["pattern"], text))
            if _bounds(schema) != (None, None):
                yield from ("0", "999999h", "100000Ti")
        case "object":
            yield {"": "x"}
            yield {"a b": "x"}


def _others(schema: Schema, old: Any) -> Iterator[Any]:
    """Yield valid values other than the old one."""
    match schema.get("type", "string"):
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**31)
            base = old if isinstance(old, int) else low
            yield base + 1 if base < high else base - 1
        case "boolean":
            yield not old if len(schema.get("enum", (True, False))) > 1 else True
        case "array":
            yield from ([value] for value in _others(schema["items"], (old or [None])[0]))
        case "object":
            rules = json.dumps(schema.get("x-kubernetes-validations", ()))
            yield {"example.com/other" if "/" in rules else "other": "x"}
        case _:
            yield from (value for value in schema.get("enum", ()) if value != old)
            if "enum" not in schema:
                yield from _other_texts(schema, old)


def _other_texts(schema: Schema, old: Any) -> Iterator[str]:
    if _bounds(schema) != (None, None):
        fitting = ["45s", "90s", "2Gi", "3Gi"]
    else:
        base = old if isinstance(old, str) else "other"
        fitting = [base + ending for ending in _ENDINGS] + [base[:-1] + digit for digit in "01ab"]
        fitting += [f"x{base}", "2Gi", "metadata.namespace"]
    pattern = schema.get("pattern", ".*")
    yield from [text for text in fitting if re.fullmatch(pattern, text) and text != old][:1]
