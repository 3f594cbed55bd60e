"""The objects of a namespace without values that differ between equivalent runs, so that final states can be compared.

Left out are uids, versions, times, addresses, generated names, field managers, measurements of the HPA controller, and
Events. (Events are emitted once; an operator that was killed before can't emit them again.)
"""

import json
import re
from typing import Any

from halcyon.api.documents.balancer_plan import DRAIN_HEADER
from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN
from tests.integration.operator_space import REPLICA_SET, Object, Space

State = dict[str, Any]
_TIMES = re.compile(r".*(Time|Timestamp)$|startedAt|finishedAt|observedAt")
_OMITTED = {"uid", "resourceVersion", "managedFields", "generateName", "clusterIP", "clusterIPs", "podIP", "podIPs"}
_DIGEST = "serving.halcyon.dev/applied"
_TRAIL = "serving.halcyon.dev/rollout"
"""Annotation of a revision with its rollout record and times."""
_EVERY = (*CHILDREN, kinds.MODEL_DEPLOYMENT, kinds.POD, REPLICA_SET)
_KEY = re.compile(r"(?<=:)halcyon=[0-9a-f]{10}")
"""Key for a model pod's restricted APIs, which each model has its own."""
_DRAIN_KEY = re.compile(rf'(--drain-key=|"name": "{DRAIN_HEADER}", "value": ")[0-9a-f]{{10}}')
"""Key with which the kubelet drains a model's balancers, in the two places of the pod's specification. It depends on the model's uid."""
_OF_THE_NAMESPACE = {"kube-root-ca.crt", "default"}


def state(space: Space) -> State:
    """Return every object, by kind and name."""
    objects = [(k.kind, o) for k in _EVERY for o in space.every(k) if o["metadata"]["name"] not in _OF_THE_NAMESPACE]
    words = {space.namespace: "NAMESPACE", **_replica_sets([o for kind, o in objects if kind == REPLICA_SET.kind])}
    by_key: State = {}
    for kind, obj in objects:
        name = "*" if kind == "Pod" else obj["metadata"]["name"]
        text = _KEY.sub("halcyon=KEY", _replaced(json.dumps(_plain(kind, obj)), words))
        plain = json.loads(_DRAIN_KEY.sub(r"\1KEY", text))
        key = _replaced(f"{kind} {name}", words)
        if kind != "Pod":
            by_key[key] = plain
            continue
        by_key.setdefault(key, []).append(plain)
        by_key[key].sort(key=json.dumps)
    return by_key


def differences(actual: Any, expected: Any, path: str = "") -> list[str]:
    """Return the differences between two states, one line each."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        lines = []
        for key in sorted(actual.keys() | expected.keys()):
            here = f"{path}.{key}" if path else key
            if key not in actual:
                lines.append(f"{here}: is missing")
            elif key not in expected:
                lines.append(f"{here}: should not be; is {json.dumps(actual[key])[:200]}")
            else:
                lines += differences(actual[key], expected[key], here)
        return lines
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        return [
            d for n, (a, b) in enumerate(zip(actual, expected, strict=True)) for d in differences(a, b, f"{path}[{n}]")
        ]
    return [] if actual == expected else [f"{path}: {json.dumps(actual)[:200]}, should be {json.dumps(expected)[:200]}"]


def _replaced(text: str, words: dict[str, str]) -> str:
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text


def _replica_sets(replica_sets: list[Object]) -> dict[str, str]:
    """Return names for the hashes of ReplicaSets, which depend on the namespace: the n-th of its Deployment."""
    words = {}
    for obj in replica_sets:
        meta = obj["metadata"]
        number = meta["annotations"]["deployment.kubernetes.io/revision"]
        words[meta["labels"]["pod-template-hash"]] = f"HASH{number}"
    return words


def _plain(kind: str, obj: Object) -> Any:
    plain = _without(obj)
    meta = plain["metadata"]
    for annotation in (_DIGEST, _TRAIL):
        meta.get("annotations", {}).pop(annotation, None)
    if kind in {"Pod", REPLICA_SET.kind}:
        meta.pop("generation", None)  # steps of the Deployment controller
    if kind == "Pod":
        meta.pop("name")
    if kind == "ConfigMap":
        plain["data"] = {k: json.loads(v) if k.endswith(".json") else v for k, v in plain["data"].items()}
    if kind == "HorizontalPodAutoscaler":
        plain.pop("status", None)
    if kind == kinds.MODEL_DEPLOYMENT.kind:
        status = plain.get("status") or {}
        for measured in ("desired", "why"):
            (status.get("scaling") or {}).pop(measured, None)
        status.pop("coldStart", None)  # of a pod by its name
        # The progress of pods is reported up to 10 s late.
        counts = {"total", "ready", "updated", "unschedulable"}
        status["pods"] = {k: n for k, n in (status.get("pods") or {}).items() if k in counts}
    return plain


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without(v) for k, v in value.items() if k not in _OMITTED and not _TIMES.fullmatch(k)}
    if isinstance(value, list):
        return [_without(v) for v in value]
    return value
