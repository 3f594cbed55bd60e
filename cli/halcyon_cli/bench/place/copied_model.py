"""The copy of a served ModelDeployment, which is measured instead of the original. Pure.

field of the spec      in the copy
model, runtime,        those of the serving revision, also during a rollout or a canary; the lowest priority
batching
replicas               as requested; never scaled
traffic                as the original's: mode, limits, overload, API keys. Without TLS, a Gateway's routes and a cloud's
                       load balancer, which would compete with the original's or need its host name
rollout                the default

Out of scope: conflicts of names (`admission`), and the owner of the copy (`client_job`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api import sequence_batching
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.api.types import API_VERSION, GROUP, KIND
from halcyon_cli.bench.place.client_job import owner
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields, merge_patch
from halcyon_cli.rollout.revisions import PastRevision, restoring_patch

Json = Mapping[str, Any]

COPY_LABEL = f"{GROUP}/copy-of"
"""Label of a copy; its value is the name of the original."""
SUFFIX = "-bench"
MAX_NAME = 52 - len(SUFFIX)
"""Maximum length of a model's name, so that the name of its copy is valid."""
_DRAIN = "5s"
"""Drain timeout of the copy. It is short because the copy has no other clients."""


@dataclass(frozen=True)
class CopiedModel:
    """Copy of a ModelDeployment, and its differences from the original."""

    document: dict[str, Any]
    revision: str
    """Name of the original's ControllerRevision that was copied."""
    model: str
    """Name of the model in requests."""
    is_direct: bool
    """Whether clients of the copy connect directly to the servers, without a balancer."""
    api_keys: str
    """Name of the Secret with the API keys of the copy's clients; empty if requests need no key."""
    notes: tuple[str, ...] = ()
    traffic_notes: tuple[str, ...] = ()
    """Notes on parts of the original's traffic settings that the measurement leaves out, such as TLS."""

    @property
    def name(self) -> str:
        """Name of the copy."""
        return str(self.document["metadata"]["name"])

    def owned_by(self, job: Json) -> dict[str, Any]:
        """Return the copy's manifest with the Job as its owner, so that Kubernetes deletes the copy with the Job."""
        return {**self.document, "metadata": {**self.document["metadata"], "ownerReferences": [owner(job)]}}


def copy_name(name: str) -> str:
    """Return the name of the copy of a model.

    Raises:
        InputError: the copy's name would be too long.
    """
    if len(name) > MAX_NAME:
        raise InputError(
            f"{name}: the name has {len(name)} characters, and that of its copy, {name}{SUFFIX}, may have 52 at most; a "
            f"model with a copy has at most {MAX_NAME}. Measure it with --live, or a ModelDeployment with a shorter name"
        )
    return name + SUFFIX


def check_served(model: Json) -> None:
    """Check that a model was accepted and is served, so that it can be measured.

    Raises:
        InputError: the model is itself a copy, or was never accepted or loaded.
    """
    name = str(model["metadata"]["name"])
    if original := fields.mapping(model["metadata"].get("labels")).get(COPY_LABEL):
        raise InputError(f"{name} is a copy for a measurement; measure the original: halcyon bench {original}")
    accepted, loaded = _condition(model, "Accepted"), _condition(model, "ModelLoaded")
    if accepted.get("status") != "True":
        why = str(accepted.get("message") or "the operator hasn't handled it yet")
        raise InputError(f"{name} isn't accepted: {why}; halcyon get {name} shows its state")
    if not fields.mapping(fields.mapping(model.get("status")).get("revision")).get("current"):
        why = str(loaded.get("message") or "no pod was ready")
        raise InputError(f"{name} was never loaded: {why}; halcyon diagnose {name} finds the cause")


def keeps_state(pods: Sequence[Json]) -> bool:
    """Return whether the fetcher of a server pod reported that requests to the model must form sequences."""
    return any(
        sequence_batching.REPORT
        in str(fields.mapping(fields.mapping(status.get("state")).get("terminated")).get("message") or "")
        for pod in pods
        for status in fields.mappings(fields.mapping(pod.get("status")).get("initContainerStatuses"))
    )


def copied(model: Json, past: Sequence[PastRevision], *, replicas: int = 1, priority_class: str = "") -> CopiedModel:
    """Return the copy of a served model, made from its serving revision.

    Raises:
        InputError: the model can't be copied.
    """
    check_served(model)
    meta, name = model["metadata"], str(model["metadata"]["name"])
    spec: dict[str, Any] = json.loads(json.dumps(model["spec"]))
    notes: list[str] = []
    serving = next((past_revision for past_revision in past if past_revision.state == "serving"), None)
    revision = str(fields.mapping(fields.mapping(model.get("status")).get("revision")).get("current"))
    if serving is not None and serving.spec is not None and (patch := restoring_patch(name, spec, serving.spec)):
        spec = merge_patch.applied(spec, patch)
        notes.append(f"the spec of {name} has changed since; the copy is of revision {serving.number}, which serves")
    served = fields.text(fields.mapping(fields.mapping(model.get("status")).get("model")).get("name"))
    spec["model"]["name"] = served or spec["model"].get("name") or name
    spec["replicas"] = replicas
    if replicas_in_force(model) == 0:
        notes.append(f"{name} is at zero replicas and stays there; only its copy is started")
    spec.pop("rollout", None)
    _fix_replicas(spec, replicas)
    traffic_notes: list[str] = []
    api_keys = _reduce_traffic(spec, traffic_notes)
    if priority_class:
        spec.setdefault("runtime", {}).setdefault("placement", {})["priorityClassName"] = priority_class
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "namespace": meta.get("namespace"),
            "name": copy_name(name),
            "labels": {COPY_LABEL: name, "app.kubernetes.io/component": "bench"},
        },
        "spec": spec,
    }
    try:
        parsed = parse(copy_name(name), spec)
    except SpecError as error:
        raise InputError(f"{name}: its copy would be invalid: {'; '.join(error.sentences)}") from None
    if parsed.traffic.mode != "Balancer":
        traffic_notes.append(
            f"{name} has no balancer: no queue, no rejection and no balancer time are part of the result"
        )
    if parsed.traffic.stickiness is not None:
        traffic_notes.append(
            f"{name} routes by {parsed.traffic.stickiness.header}: requests without it go to any pod; to send it, use --header"
        )
    return CopiedModel(
        document=document,
        revision=revision,
        model=spec["model"]["name"],
        is_direct=parsed.traffic.mode != "Balancer",
        api_keys=api_keys,
        notes=tuple(notes),
        traffic_notes=tuple(traffic_notes),
    )


def _condition(model: Json, kind: str) -> Json:
    conditions = fields.mappings(fields.mapping(model.get("status")).get("conditions"))
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _fix_replicas(spec: dict[str, Any], replicas: int) -> None:
    """Remove the scaling from a spec.

    The latency target stays, because balancers derive the maximum waiting time from it.
    """
    scaling = fields.mapping(spec.pop("scaling", None))
    latency = fields.mapping(scaling.get("targets")).get("latency")
    if latency and scaling.get("policy") != "Rules":
        spec["scaling"] = {
            "minReplicas": replicas, "maxReplicas": replicas, "mode": "Paused", "actuator": "Direct", "targets": {"latency": latency}
        }  # fmt: skip


def _reduce_traffic(spec: dict[str, Any], notes: list[str]) -> str:
    """Remove the traffic settings that the copy can't share; return the name of the Secret with the API keys."""
    traffic = spec.setdefault("traffic", {})
    for part in ("service", "gateway", "accessLog"):
        traffic.pop(part, None)
    if traffic.pop("tls", None):
        notes.append(
            "the copy has no TLS, because its host name isn't in the certificate; TLS costs more CPU per request"
        )
    if traffic.get("mode") == "Gateway":
        traffic["mode"] = "Direct"
        traffic.pop("responseTimeout", None)
        notes.append("the copy has no route of the Gateway; requests go to its Service")
    traffic["drainTimeout"] = _DRAIN
    return str(fields.mapping(traffic.get("apiKeys")).get("secretName") or "")
