"""State of a slot's Deployment: its revision, its replicas, and the reason why it makes no progress. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.timestamps import epoch_seconds
from halcyon.kube.kinds import Object
from halcyon.render import names


@dataclass(frozen=True)
class SlotState:
    """Current state of the Deployment that runs the server pods of a slot."""

    revision: str
    """Key of the revision that Halcyon last wrote into the pod template of the Deployment."""
    count: int
    max_surge: int
    max_unavailable: int
    name: str
    """Name of the Deployment."""
    is_observed: bool
    """Whether the Deployment controller has observed the Deployment's current generation."""
    is_updated: bool
    """Whether every pod has the pod template that the Deployment controller last observed."""
    timed_out: bool = False
    """Whether the Deployment made no progress within its deadline; False until the Deployment controller has observed
    the current generation."""
    paused: bool = False
    """Whether someone other than Halcyon has paused the Deployment, so that a new pod template is not rolled out."""
    rejection: str = ""
    """Message of the API server if it rejects the creation of the Deployment's pods; otherwise empty."""
    rejected_since: float | None = None
    """Time since which the API server has rejected the creation of pods, in seconds since the epoch; None if it
    doesn't."""

    @property
    def complete(self) -> bool:
        """Whether the Deployment controller has observed the current pod template, and every pod has this template."""
        return self.is_observed and self.is_updated

    @classmethod
    def of(cls, deployment: Object) -> SlotState:
        """Return the state of a Deployment in the cache."""
        spec, status = deployment["spec"], deployment.get("status") or {}
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        is_observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
        failure: Mapping[str, Any] = conditions.get("ReplicaFailure") or {}
        is_failing = failure.get("status") == "True"
        return cls(
            revision=str(_written(deployment) or deployed_revision(deployment)),
            count=int(spec.get("replicas") or 0),
            max_surge=_number(rolling.get("maxSurge"), 1),
            max_unavailable=_number(rolling.get("maxUnavailable"), 0),
            name=str(deployment["metadata"].get("name")),
            paused=spec.get("paused") is True,
            is_observed=is_observed,
            is_updated=status.get("updatedReplicas", 0) == status.get("replicas", 0),
            timed_out=is_observed and (conditions.get("Progressing") or {}).get("reason") == "ProgressDeadlineExceeded",
            rejection=str(failure.get("message") or "") if is_failing else "",
            rejected_since=epoch_seconds(str(failure.get("lastTransitionTime") or "")) if is_failing else None,
        )


def is_replaced(deployment: Object) -> bool:
    """Return whether another writer has replaced the pod template, for example with `kubectl rollout undo`.

    Halcyon also writes the revision's key into the labels of the Deployment, which such a writer doesn't change.
    """
    written = _written(deployment)
    return written is not None and written != deployed_revision(deployment)


def _written(deployment: Object) -> Any:  # a label of an object that users may edit
    return (deployment["metadata"].get("labels") or {}).get(names.REVISION_LABEL)


def deployed_revision(deployment: Object) -> str:
    """Return the key of the revision in the pod template of a Deployment; empty if a user has removed its label."""
    template = deployment["spec"]["template"].get("metadata") or {}
    return str((template.get("labels") or {}).get(names.REVISION_LABEL) or "")


def _number(value: Any, otherwise: int) -> int:  # any JSON value
    """Return a field's number of pods. Return `otherwise` for a percentage, which only a user's edit can contain."""
    return value if isinstance(value, int) else otherwise
