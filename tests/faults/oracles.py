"""Oracles: the properties that a disturbed run must have in common with an undisturbed one. Pure.

compared                         how
end state                        every object with every field; values that name one run become what they stand for (`canonical`)
creates and deletes              of every object, by kind and name; pods by their Deployment
objects of others                same uid and version as before
writes at rest                   none

`MASKED` lists the fields that aren't compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.api.documents.balancer_plan import DRAIN_HEADER

Object = dict[str, Any]
ObjectName = tuple[str, str]
"""Kind and name; pods and ReplicaSets by the name of their Deployment."""

MASKED: Mapping[str, str] = {
    "HorizontalPodAutoscaler.status": "the HPA controller writes it at its own times",
    "ModelDeployment.status.coldStart": "it has measured durations of one pod, by the pod's random name",
    "ModelDeployment.status.scaling": "apart from mode, policy and actuator, it has measurements of the moment",
    "ReplicaSet.metadata.generation": "the Deployment controller scales in steps whose number depends on the speed of pods",
    "Event": "an Event is sent once; an operator that was killed before can't send it",
}
"""Fields that aren't compared, with the reason. At most five."""
_SCALING = ("mode", "policy", "actuator")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?")
_AGE = re.compile(r"\b\d+ s ago\b")
_ADDRESS = re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
_ADDRESSED = {
    "clusterIP",
    "clusterIPs",
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "ip",
    "nodePort",
    "healthCheckNodePort",
}
_KEYS = (
    (re.compile(r"(-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----(\\+n)?)+"), "CERTIFICATE"),
    (re.compile(r"(?<=:)halcyon=[0-9a-f]{10}"), "halcyon=KEY"),
    (re.compile(rf'(--drain-key=|"name": "{DRAIN_HEADER}", "value": ")[0-9a-f]{{10}}'), r"\1KEY"),
)
"""Certificates of an installation, and keys that each model has its own, by its uid."""
_NAMES_A_RUN = {"resourceVersion": "VERSION", "serving.halcyon.dev/applied": "DIGEST", "nodeName": "NODE"}
"""Fields whose value identifies one write or the scheduler's choice among equal nodes, and what is compared instead."""


def named(kind: str, obj: Object) -> ObjectName:
    """Return the name under which an object is compared and counted."""
    meta = obj["metadata"]
    name = str(meta["name"])
    revision = (meta.get("labels") or {}).get("pod-template-hash")
    if revision and kind in {"Pod", "ReplicaSet"}:
        name = name.partition(f"-{revision}")[0]
    return kind, name


def canonical(
    objects: Iterable[tuple[str, Object]], namespace: str, installation: Mapping[str, str] | None = None
) -> dict[str, list[Any]]:
    """Return the objects by kind and name, without values that name one run. Those of one name are sorted.

    `installation` has words that name one installation, and what stands for them.
    """
    pairs = list(objects)
    words = {**(installation or {}), namespace: "NAMESPACE"}
    for kind, obj in pairs:
        words[obj["metadata"]["uid"]] = f"uid of {' '.join(named(kind, obj))}"
        if kind == "Pod":
            words[obj["metadata"]["name"]] = f"POD of {named(kind, obj)[1]}"
    hashes = [obj["metadata"] for kind, obj in pairs if kind == "ReplicaSet"]
    for meta in hashes:
        number = (meta.get("annotations") or {}).get("deployment.kubernetes.io/revision", "")
        words[meta["labels"]["pod-template-hash"]] = f"HASH{number}"
    by_name: dict[str, list[Any]] = {}
    for kind, obj in pairs:
        by_name.setdefault(" ".join(named(kind, obj)), []).append(_plain(kind, obj, words))
    return {key: sorted(plain, key=json.dumps) for key, plain in sorted(by_name.items())}


def _plain(kind: str, obj: Object, words: Mapping[str, str]) -> Any:
    masked = json.loads(json.dumps(obj))
    meta = masked["metadata"]
    ours = [entry for entry in meta.pop("managedFields", ()) if entry["manager"].startswith("halcyon")]
    meta["managedFields"] = sorted(f"{e['manager']} {e['operation']} {e.get('subresource', '')}" for e in ours)
    if kind == "HorizontalPodAutoscaler":
        masked.pop("status", None)
    if kind == "ReplicaSet":
        meta.pop("generation", None)
        masked.get("status", {}).pop("observedGeneration", None)
    if kind == "ModelDeployment":
        status = masked.get("status") or {}
        status.pop("coldStart", None)
        scaling = status.get("scaling") or {}
        status["scaling"] = {name: scaling[name] for name in _SCALING if name in scaling}
    text = json.dumps(masked)
    # The names of pods contain hashes.
    for word, replacement in sorted(words.items(), key=lambda item: -len(item[0])):
        text = text.replace(word, replacement)
    for pattern, replacement in _KEYS:
        text = pattern.sub(replacement, text)
    return _values(json.loads(_AGE.sub("AGE", _TIME.sub("TIME", text))))


def _values(value: Any, name: str = "") -> Any:
    if name in _NAMES_A_RUN:
        return _NAMES_A_RUN[name]
    if isinstance(value, dict):
        return {key: _values(entry, key) for key, entry in value.items()}
    if isinstance(value, list):
        return [_values(entry, name) for entry in value]
    if name in _ADDRESSED:
        return _ADDRESS.sub("ADDRESS", str(value)) if isinstance(value, str) else "PORT"
    if isinstance(value, str) and value.startswith(("{", "[")):
        return _nested(value)
    return value


def _nested(text: str) -> Any:
    try:
        return _values(json.loads(text))
    except ValueError:
        return text


def differences(actual: Any, expected: Any, path: str = "") -> list[str]:
    """Return the differences between two values, one line each."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        lines = []
        for key in sorted(actual.keys() | expected.keys()):
            field_path = f"{path}.{key}" if path else str(key)
            if key not in actual:
                lines.append(f"{field_path}: is missing")
            elif key not in expected:
                lines.append(f"{field_path}: should not be; is {json.dumps(actual[key])[:200]}")
            else:
                lines += differences(actual[key], expected[key], field_path)
        return lines
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        pairs = enumerate(zip(actual, expected, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{path}[{n}]")]
    return [] if actual == expected else [f"{path}: {json.dumps(actual)[:200]}, should be {json.dumps(expected)[:200]}"]


@dataclass
class Counts:
    """Numbers of objects that were created and deleted."""

    created: Counter[ObjectName] = field(default_factory=Counter)
    deleted: Counter[ObjectName] = field(default_factory=Counter)


def count_differences(actual: Counts, reference: Counts) -> list[str]:
    """Return a line for each object that was created or deleted another number of times."""
    return [
        f"{' '.join(name)}: {done} {seen[name]} times, should be {expected[name]}"
        for done, seen, expected in (
            ("created", actual.created, reference.created),
            ("deleted", actual.deleted, reference.deleted),
        )
        for name in sorted(seen.keys() | expected.keys())
        if seen[name] != expected[name]
    ]


@dataclass(frozen=True)
class Outcome:
    """Objects of a run at rest, and the numbers of creates and deletes."""

    state: dict[str, list[Any]]
    counts: Counts


def divergences(actual: Outcome, reference: Outcome) -> list[str]:
    """Return the differences from an undisturbed run: in the end state, or in the numbers of creates and deletes."""
    return differences(actual.state, reference.state) + count_differences(actual.counts, reference.counts)
