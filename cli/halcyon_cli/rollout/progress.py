"""Progress of the rollout of a model's current spec, as a phase and a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon_cli.kube import fields

Phase = Literal["Served", "Waiting", "Failed"]
_FAILED = frozenset({"Failed", "RollingBack", "RolledBack"})


@dataclass(frozen=True)
class Progress:
    """Progress of the rollout of a model's current spec."""

    phase: Phase
    text: str
    """Progress in one sentence, with its reason."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the progress."""
        return asdict(self)


# spec observed   accepted   rollout                stalled   ready   phase
# no              -          -                      -         -       Waiting
# yes             False      -                      -         -       Failed
# yes             True       failed, rolled back    -         -       Failed
# yes             True       other                  yes       -       Failed
# yes             True       not complete           no        -       Waiting
# yes             True       complete               no        False   Waiting
# yes             True       complete               no        True    Served
def progress(model: Mapping[str, Any]) -> Progress:
    """Return the rollout progress of a ModelDeployment. A missing status counts as not observed."""
    meta, status = fields.mapping(model.get("metadata")), fields.mapping(model.get("status"))
    name, generation = str(meta.get("name")), fields.count(meta.get("generation")) or 0
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    rollout = fields.mapping(status.get("rollout"))
    if (fields.count(status.get("observedGeneration")) or 0) < max(generation, 1):
        return Progress("Waiting", f"waiting for the operator to observe the spec of {name}")
    if _is(conditions, "Accepted", "False"):
        return Progress("Failed", f"the spec of {name} is not accepted: {_message(conditions, 'Accepted')}")
    failed = fields.mapping(rollout.get("failed"))
    phase = fields.text(rollout.get("phase")) or ""
    if phase in _FAILED:
        why = fields.text(failed.get("message")) or fields.text(rollout.get("message")) or phase
        return Progress("Failed", f"the rollout of {name} has failed: {why}")
    if _is(conditions, "Stalled", "True"):
        return Progress("Failed", f"{name} is stalled: {_message(conditions, 'Stalled')}")
    if phase != "Complete":
        why = fields.text(rollout.get("message")) or _message(conditions, "Reconciling")
        return Progress("Waiting", f"waiting for the rollout of {name}" + (f": {why}" if why else ""))
    if not _is(conditions, "Ready", "True"):
        return Progress("Waiting", f"waiting for {name} to be ready: {_message(conditions, 'Ready')}")
    return Progress("Served", f"{name} successfully rolled out: {_message(conditions, 'Ready') or 'it is ready'}")


def with_downloads(progress: Progress, downloads: Iterable[DownloadProgress]) -> Progress:
    """Return the progress; if it waits for pods that are fetching the model, include the bytes of their downloads."""
    parts = [download.describe() for download in downloads]
    if progress.phase != "Waiting" or not parts:
        return progress
    return replace(progress, text=f"{progress.text}; downloaded {', '.join(parts)}")


def _is(conditions: Mapping[str, Mapping[str, Any]], name: str, value: str) -> bool:
    return conditions.get(name, {}).get("status") == value


def _message(conditions: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return " ".join((fields.text(conditions.get(name, {}).get("message")) or "").split())
