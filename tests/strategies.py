"""Hypothesis strategies derived from the resource's models, which cover everything that the models allow.

Documents are JSON as a user writes it. `documents` yields valid ones, and `broken` yields documents with one or two
mistakes. A field that is added to a model is covered without a change here. A rule over several fields needs an entry
in `_REPAIRS`.
"""

from __future__ import annotations

import copy
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import Any, get_args, get_origin

from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel, StringConstraints
from pydantic.fields import FieldInfo

from halcyon.api.credentials import Credentials, Identity
from halcyon.api.spec import Spec
from halcyon.api.spec.batching import Batching
from halcyon.api.spec.exposure import Service
from halcyon.api.spec.gateway import Gateway
from halcyon.api.spec.gpu import Gpu
from halcyon.api.spec.model import Source, Versions
from halcyon.api.spec.parse import parse
from halcyon.api.spec.placement import Affinity, NodeRequirement, PodRequirement, Toleration, TopologySpreadConstraint
from halcyon.api.spec.rollout import Analysis, Canary
from halcyon.api.spec.runtime import RESERVED_ENV, EnvFrom, EnvVar, EnvVarSource, Resources, Runtime
from halcyon.api.spec.scaling import MetricTarget, Scaling, Schedule
from halcyon.api.spec.server_settings import ServerSettings
from halcyon.api.spec.traffic import Traffic
from halcyon.api.types import NAME_PATTERN, ListMap, ListSet, Quantity, Rule, StringRules, quantity

Document = dict[str, Any]
MAX_ITEMS = 3
"""Maximum length of lists and maps. The interesting lengths are none, one and several."""
QUERY = "pending-jobs"
"""Name of a query of the site's Prometheus that the sites of the tests have."""

_QUANTITY = next(mark.pattern for mark in get_args(Quantity) if isinstance(mark, StringConstraints))
_SHA256 = "^sha256:[a-f0-9]{64}$"
_THOROUGH = settings().max_examples >= 1000
_SHORT_URL = r"(s3|gs|az)://[a-z0-9]{3,5}(/[A-Za-z0-9_][A-Za-z0-9_.=+-]?){0,2}|hf://acme/[a-z]@[0-9a-f]{40}(/[a-z])?|mlflow://m/[1-9]|https?://[a-z0-9]{1,3}(\.[a-z]{2})?(:[1-9][0-9]{0,3})?/[a-z]{1,3}\.(tar|tgz)"
_PLAIN_NAMES = st.from_regex(NAME_PATTERN, fullmatch=True)
NAMES = st.one_of(
    st.sampled_from(["digits", "a", "resnet50"]),
    _PLAIN_NAMES,
    _PLAIN_NAMES.map(lambda n: (n + "x" * 52)[:52]),
)
"""Names of ModelDeployments, including the longest possible."""


def documents(model: type[BaseModel] = Spec) -> st.SearchStrategy[Document]:
    """Return a strategy for JSON objects that the model accepts."""
    if model not in _DOCUMENTS:
        # `_source` replaces the identity with one for the URI's scheme.
        special: dict[type[BaseModel], Callable[[], st.SearchStrategy[Document]]] = {
            Affinity: _affinity,
            Identity: lambda: st.just(_IDENTITIES["s3"]),
        }
        _DOCUMENTS[model] = special.get(model, lambda: _build(model))()
    return _DOCUMENTS[model]


def specs() -> st.SearchStrategy[Spec]:
    """Return a strategy for valid specs."""
    return documents(Spec).map(lambda document: parse("digits", document))


_DOCUMENTS: dict[type[BaseModel], st.SearchStrategy[Document]] = {}


def _build(model: type[BaseModel]) -> st.SearchStrategy[Document]:
    hints = typing.get_type_hints(model, include_extras=True)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, info in model.model_fields.items():
        (required if info.is_required() else optional)[info.alias or name] = _values(hints[name])
    objects = st.fixed_dictionaries(required, optional=optional)
    repair = _REPAIRS.get(model)
    return objects if repair is None else st.builds(repair, objects, st.randoms(use_true_random=False))


def _affinity() -> st.SearchStrategy[Document]:
    """Affinities with one term of each kind at most: drawn in full, they would be most of a spec."""
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    terms = documents(NodeRequirement).map(lambda requirement: {"matchExpressions": [requirement]})
    nodes = {
        required: terms.map(lambda term: {"nodeSelectorTerms": [term]}),
        preferred: terms.map(lambda term: [{"weight": 1, "preference": term}]),
    }
    near = documents(PodRequirement).map(
        lambda requirement: {"labelSelector": {"matchExpressions": [requirement]}, "topologyKey": "zone"}
    )
    pods = {
        required: near.map(lambda term: [term]),
        preferred: near.map(lambda term: [{"weight": 100, "podAffinityTerm": term}]),
    }
    of_pods = st.fixed_dictionaries({}, optional=pods)
    kinds = {"podAffinity": of_pods, "podAntiAffinity": of_pods}
    return st.fixed_dictionaries({}, optional={"nodeAffinity": st.fixed_dictionaries({}, optional=nodes), **kinds})


def _values(hint: Any, marks: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    origin = get_origin(hint)
    if origin is typing.Annotated:
        inner, *own = get_args(hint)
        return _values(inner, (*own, *marks))
    if origin in {typing.Union, types.UnionType}:
        (option,) = (arg for arg in get_args(hint) if arg is not types.NoneType)
        return _values(option, marks)
    if origin is typing.Literal:
        return st.sampled_from(get_args(hint))
    bounds = _bounds(marks)
    if origin is tuple:
        return _lists(_values(get_args(hint)[0]), marks, bounds)
    if origin is dict:
        keys, values = map(_values, get_args(hint))
        return st.dictionaries(keys, values, min_size=bounds.get("min_length", 0), max_size=MAX_ITEMS)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return documents(hint)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return _integers(bounds["ge"], bounds["le"])
    if hint is str:
        return _strings(marks, bounds)
    raise TypeError(f"no strategy for {hint!r}")


def _bounds(marks: tuple[Any, ...]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for mark in marks:
        for source in (mark, *(mark.metadata if isinstance(mark, FieldInfo) else ())):
            for name in ("ge", "le", "min_length", "max_length", "pattern"):
                value = getattr(source, name, None)
                if value is not None:
                    bounds[name] = value
    return bounds


def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([low, high]) | st.integers(low, min(high, low + 20)) | st.integers(low, high)


def _lists(items: st.SearchStrategy[Any], marks: tuple[Any, ...], bounds: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = bounds.get("min_length", 0)
    for mark in marks:
        if isinstance(mark, ListSet):
            return st.lists(items, min_size=least, max_size=MAX_ITEMS, unique=True)
        if isinstance(mark, ListMap):
            return st.lists(items, min_size=least, max_size=MAX_ITEMS, unique_by=operator.itemgetter(*mark.keys))
    return st.lists(items, min_size=least, max_size=MAX_ITEMS)


_DURATIONS = st.one_of(
    st.sampled_from(["0us", "10ms", "1s", "30s", "1m", "1h", "24h", "1m30s", "59m59s999ms999us"]),
    st.builds("{}{}".format, st.integers(0, 3600), st.sampled_from(["us", "ms", "s", "m", "h"])),
    st.builds("{}m{}s{}us".format, st.integers(0, 70), st.integers(0, 70), st.integers(0, 2_000_000 // 10)),
)
_SIZES = st.sampled_from(
    ["1Ki", "1.5Ki", "64Mi", "100k", "1G", "1Gi", "1048576", "1e6", "2.E9", ".5Pi", 1, 2**20, 2**30]
)


def _strings(marks: tuple[Any, ...], bounds: dict[str, Any]) -> st.SearchStrategy[Any]:
    rules: list[Rule] = [rule for mark in marks if isinstance(mark, StringRules) for rule in mark.rules]
    if rules:
        drawn = _SIZES if bounds["pattern"] == _QUANTITY else _DURATIONS
        return drawn.filter(lambda value: all(rule.check(str(value)) for rule in rules))
    least, most = bounds.get("min_length", 0), bounds["max_length"]
    if not any(isinstance(mark, StringConstraints) for mark in marks):
        return st.text(min_size=least, max_size=min(most, 20))
    pattern = bounds["pattern"]
    if pattern.startswith("^((s3|") and not _THOROUGH:
        # Drawing a URL from its own pattern takes as long as half a spec.
        return st.from_regex(_SHORT_URL, fullmatch=True)
    if pattern == _SHA256:
        return st.integers(0, 2**256 - 1).map("sha256:{:064x}".format)  # one draw instead of 64
    # Repetitions without an end are as often as not dozens of characters, which took half of the time of a spec.
    short = pattern if _THOROUGH else re.sub(r"(?<=[\])])\*", f"{{0,{MAX_ITEMS}}}", pattern)
    return st.from_regex(short, fullmatch=True).filter(lambda text: least <= len(text) <= most)


def _one_of(*names: str) -> Callable[[Document, Any], Document]:
    def repair(document: Document, chance: Any) -> Document:
        present = [name for name in names if name in document]
        keep = chance.choice(present) if present else None
        return {k: v for k, v in document.items() if k not in names or k == keep}

    return repair


_COMMIT = re.compile(r"hf://[^/@]+(/[^/@]+)?@[0-9a-f]{40}(/|$)")
_DOWNLOAD = ("credentials", "endpoint", "region", "path", "digest", "sizeLimit")


_IDENTITIES: dict[str, Document] = {
    "s3": {"aws": {"roleARN": "arn:aws:iam::123456789012:role/models"}, "endpoint": "https://sts.storage.svc:9000"},
    "gs": {"google": {"provider": "projects/1/locations/global/workloadIdentityPools/a/providers/b"}},
    "az": {
        "azure": {
            "clientID": "0c5cbd4c-55f2-4d0f-9e0f-6a2c6f1d8a11",
            "tenantID": "5a1b1c3e-7a0a-4f0e-8a53-6d3f1a2b3c4d",
        }
    },
}


def _credentials(document: Document, _: Any) -> Document:
    return document or {"secretName": "models"}


def _source(document: Document, chance: Any) -> Document:
    """With one kind of source, and the fields of a download that fit it."""
    kind = _one_of("configMap", "persistentVolumeClaim", "image", "uri")(
        {k: v for k, v in document.items() if k not in _DOWNLOAD}, chance
    ) or {"persistentVolumeClaim": {"claimName": "models"}}
    if "uri" not in kind:
        return kind
    scheme = kind["uri"].partition("://")[0]
    bucket = scheme in {"s3", "gs", "az"}
    store = bucket or scheme in {"hf", "mlflow"}
    if scheme == "hf" and not _COMMIT.match(kind["uri"]):  # a rule requires what the pattern has as optional
        kind["uri"] = f"hf://acme/m@{'0a' * 20}"
    wrong = {"path", "digest"} if store else {"endpoint", "region"}
    wrong |= set() if scheme == "s3" else {"region"}
    if scheme in {"az", "mlflow"}:
        kind |= {"endpoint": document.get("endpoint", "https://account.blob.core.windows.net")}
    kept = kind | {k: v for k, v in document.items() if k in _DOWNLOAD and k not in wrong}
    if "identity" in kept.get("credentials", {}):
        kept["credentials"] = {k: v for k, v in kept["credentials"].items() if k != "identity"}
        kept["credentials"] |= {"identity": _IDENTITIES[scheme]} if bucket else {"secretName": "models"}
    return kept if store or "digest" in kept else {**kept, "digest": "sha256:" + "0" * 64}


def _versions(document: Document, chance: Any) -> Document:
    return _one_of("latest", "specific", "all")(document, chance) or {"latest": 1}


def _env(document: Document, chance: Any) -> Document:
    kept = _one_of("value", "valueFrom")(document, chance)
    if kept["name"].startswith(RESERVED_ENV):
        kept["name"] = "X"
    return kept if len(kept) == 2 else {**kept, "value": "x"}


def _env_source(document: Document, chance: Any) -> Document:
    kept = _one_of("secretKeyRef", "configMapKeyRef", "fieldRef")(document, chance)
    return kept or {"fieldRef": {"fieldPath": "metadata.name"}}


def _env_from(document: Document, chance: Any) -> Document:
    kept = _one_of("secretRef", "configMapRef")(document, chance)
    if kept.get("prefix", "").startswith(RESERVED_ENV):
        kept["prefix"] = "X_"
    return kept if set(kept) - {"prefix"} else {**kept, "configMapRef": {"name": "settings"}}


def _resources(document: Document, _: Any) -> Document:
    requests, limits = document.get("requests", {}), document.get("limits", {})
    for name in requests.keys() & limits.keys():
        if quantity(str(requests[name])) > quantity(str(limits[name])):
            requests[name] = limits[name]
    return document


def _toleration(document: Document, _: Any) -> Document:
    return {k: v for k, v in document.items() if k != "value" or document.get("operator") != "Exists"}


def _requirement(document: Document, _: Any) -> Document:
    if document["operator"] in {"Exists", "DoesNotExist"}:
        return {k: v for k, v in document.items() if k != "values"}
    return {"values": ["16"]} | document if document["operator"] in {"In", "NotIn"} else document | {"values": ["16"]}


def _spread(document: Document, _: Any) -> Document:
    return {k: v for k, v in document.items() if k != "minDomains" or document["whenUnsatisfiable"] == "DoNotSchedule"}


def _batching(document: Document, _: Any) -> Document:
    document = dict(document)
    levels = document.get("priorityLevels")
    if levels is None:
        document.pop("defaultPriorityLevel", None)
    elif "defaultPriorityLevel" in document:
        document["defaultPriorityLevel"] = min(document["defaultPriorityLevel"], levels)
    if levels is not None:
        document.pop("preserveOrdering", None)
    most = document.get("maxBatchSize")
    if most is None or "preferredBatchSizes" not in document:
        return document
    return {**document, "preferredBatchSizes": sorted({min(n, most) for n in document["preferredBatchSizes"]})}


def _scaling(document: Document, _: Any) -> Document:
    least = document.get("minReplicas", 1)
    wrong = "idleTimeout" if least else "policy"
    kept = {k: v for k, v in document.items() if k != wrong or v == "Planner"}
    return {**kept, "maxReplicas": max(document["maxReplicas"], least)}


def _metric(document: Document, _: Any) -> Document:
    """Set a query that the site of the tests has."""
    return {**document, "query": QUERY}


def _schedule(document: Document, chance: Any) -> Document:
    """Set an existing rule and time zone: the schema can't check them, but the operator rejects others."""
    zone = {"timeZone": chance.choice(["UTC", "Europe/Berlin", "Asia/Kathmandu"])} if "timeZone" in document else {}
    real = {**document, **zone, "start": chance.choice(["0 8 * * 1-5", "*/15 * * * *", "30 2 29 2 *"])}
    if "minReplicas" not in real:
        return {**real, "maxReplicas": real.get("maxReplicas", 1)}
    return {**real, "maxReplicas": max(real.get("maxReplicas", 1), real["minReplicas"])}


def _gpu(document: Document, chance: Any) -> Document:
    kept = _one_of("resourceName", "resourceClaimTemplateName")(document, chance)
    if "kubernetes.io/" in kept.get("resourceName", ""):
        kept["resourceName"] = "amd.com/gpu"
    return kept | {"count": 1} if "resourceClaimTemplateName" in kept and not kept.get("count", 1) else kept


def _runtime(document: Document, _: Any) -> Document:
    if server := document.get("server"):
        gpu = document.get("gpu")
        unfit = {"responseCache"} | ({"cudaMemoryPool"} if gpu is None or not gpu.get("count", 1) else set())
        if "memory" not in document.get("resources", {}).get("limits", {}):
            unfit.discard("responseCache")
        document = {**document, "server": {k: v for k, v in server.items() if k not in unfit}}
    for name in {"podLabels", "podAnnotations"} & document.keys():
        document[name] = {f"example.com/a{n}": text for n, text in enumerate(document[name].values())}
    if "serviceAccountName" in document:
        document["serviceAccountName"] = "default"  # the one that a site allows unless it says otherwise
    memory = document.get("resources", {}).get("limits", {}).get("memory")
    if memory is None or quantity(str(document.get("sharedMemory", "256Mi"))) < quantity(str(memory)):
        return document
    limits = {**document["resources"]["limits"], "memory": "2Ti"}
    return {**document, "resources": {**document["resources"], "limits": limits}, "sharedMemory": "1Gi"}


def _spec(document: Document, _: Any) -> Document:
    if document.get("traffic", {}).get("mode", "Balancer") != "Balancer":
        document = copy.deepcopy(document)
        if document["traffic"]["mode"] == "Gateway":
            document["traffic"].setdefault("gateway", {"name": "edge"})
        else:
            document["traffic"].pop("gateway", None)
        if document.get("scaling", {}).get("minReplicas") == 0:
            document["traffic"]["mode"] = "Balancer"
        if document["traffic"]["mode"] == "Direct" and document.get("rollout", {}).get("strategy") == "Canary":
            document["rollout"]["strategy"] = "Surge"
        document["traffic"].pop("stickiness", None)
        document.get("scaling", {}).get("targets", {}).pop("concurrency", None)
    if {"maxBatchSize", "queuePolicy"} & document.get("batching", {}).keys() and "maxConcurrency" in document.get(
        "traffic", {}
    ):
        document = copy.deepcopy(document)
        del document["traffic"]["maxConcurrency"]
    gpu = document.get("runtime", {}).get("gpu")
    if (gpu is not None and gpu.get("count", 1)) or "scaling" not in document:
        return document
    targets = {k: v for k, v in document["scaling"].get("targets", {}).items() if k != "gpuUtilization"}
    return {**document, "scaling": {**document["scaling"], "targets": targets}}


def _service(document: Document, _: Any) -> Document:
    """Use keys that a site allows by default."""
    kept = {k: v for k, v in document.items() if k != "sourceRanges" or document.get("type") == "LoadBalancer"}
    if annotations := kept.get("annotations"):
        kept["annotations"] = {f"service.beta.kubernetes.io/a{n}": text for n, text in enumerate(annotations.values())}
    return kept


def _traffic(document: Document, _: Any) -> Document:
    secured = {"tls", "apiKeys"} if document.get("mode", "Balancer") != "Balancer" else set()
    return {k: v for k, v in document.items() if k not in secured}


def _canary(document: Document, _: Any) -> Document:
    if steps := document.get("steps"):
        document["steps"] = sorted(steps, key=operator.itemgetter("weight"))
    return document


def _analysis(document: Document, _: Any) -> Document:
    """Without queries, which a site doesn't allow unless it says otherwise."""
    return {k: v for k, v in document.items() if k != "metrics"}


def _gateway(document: Document, _: Any) -> Document:
    if document.get("grpc") == {}:
        return {**document, "grpc": {"sectionName": "grpc"}}
    return document


_REPAIRS: dict[type[BaseModel], Callable[[Document, Any], Document]] = {
    Credentials: _credentials,
    Source: _source,
    Versions: _versions,
    EnvVar: _env,
    EnvVarSource: _env_source,
    EnvFrom: _env_from,
    Resources: _resources,
    Toleration: _toleration,
    NodeRequirement: _requirement,
    PodRequirement: _requirement,
    TopologySpreadConstraint: _spread,
    Batching: _batching,
    Scaling: _scaling,
    Schedule: _schedule,
    MetricTarget: _metric,
    Runtime: _runtime,
    Gpu: _gpu,
    ServerSettings: _one_of("responseCache", "forwardedHeaders"),
    Analysis: _analysis,
    Canary: _canary,
    Service: _service,
    Traffic: _traffic,
    Gateway: _gateway,
    Spec: _spec,
}


Schema = dict[str, Any]


@st.composite
def broken(draw: st.DrawFn, schema: Schema) -> Document:
    """Draw documents with one or two changes that may make them invalid. `schema` is the spec's structural schema."""
    document = copy.deepcopy(draw(documents(Spec)))
    for _ in range(draw(st.integers(1, 2))):
        spots = list(_spots(document, schema))
        spots[draw(st.integers(0, len(spots) - 1))](draw)
    return document


def _spots(value: Any, schema: Schema) -> typing.Iterator[Callable[[st.DrawFn], None]]:
    """Yield every change that can be made at some place in this value."""
    if isinstance(value, dict):
        yield lambda draw: value.__setitem__(draw(st.sampled_from(["surplus", "Model", ""])), draw(_ODD))
        if value:
            yield lambda draw: value.pop(draw(st.sampled_from(sorted(value))), None)
        fields = schema.get("properties") or dict.fromkeys(value, schema.get("additionalProperties") or {})
        for name, field in fields.items():
            yield _setting(value, name, field)
            if name in value:
                yield from _spots(value[name], field)
    elif isinstance(value, list):
        yield lambda draw: value.append(draw(st.sampled_from(value) if value else _ODD))
        yield lambda _: value.clear()
        for item in value:
            yield from _spots(item, schema.get("items") or {})


def _setting(value: Document, name: str, field: Schema) -> Callable[[st.DrawFn], None]:
    return lambda draw: value.__setitem__(name, draw(_near(field)))


_ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["", "x", "1", "1.5Gi", "30s", 0, 1, -1, 2**40, 1.5, True, False, [], {}, ["x"], {"x": 1}, [1, 1]]),
    st.text(max_size=5),
)


def _near(schema: Schema) -> st.SearchStrategy[Any]:
    """Yield values at and just beyond the limits of a field, and values of other types."""
    edges: list[Any] = []
    for bound, step in (("minimum", -1), ("maximum", 1)):
        if bound in schema:
            edges += [schema[bound], schema[bound] + step, str(schema[bound])]
    if schema.get("type") == "string" and "enum" not in schema:
        edges += ["x" * (schema["maxLength"] + n) for n in (0, 1)]
        edges += [
            "a.b",
            "a..b",
            "-a",
            "a-",
            "A",
            "a/b",
            "a\n",
            "ä",
            "1h1ms",
            "999999h",
            "1m1h",
            "1.5",
            "1e3",
            "5Ti",
            "5Ei",
        ]
    edges += schema.get("enum", [])
    return st.sampled_from(edges) | _ODD if edges else _ODD
