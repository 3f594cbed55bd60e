"""What the Deployment of a slot says of itself: which revision, how many pods, and what keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.timestamps import epoch_seconds
from halcyon.kube.client import Object
from halcyon.render import names


@dataclass(frozen=True)
class SlotState:
    """A Deployment of servers, as it is."""

    revision: str
    """Key of the revision that its template is of."""
    count: int
    max_surge: int
    max_unavailable: int
    seen: bool
    """Its controller has seen it as it is."""
    whole: bool
    """Every pod is of the template that its controller has seen last."""
    ready: int
    timed_out: bool = False
    """No progress for its deadline, and its controller knows the template as it is."""
    refusal: str = ""
    """Why pods can't be created, in the API server's words."""
    refused_since: float | None = None
    """Seconds since the epoch."""

    @property
    def complete(self) -> bool:
        """Its controller has seen the template, and every pod is of it."""
        return self.seen and self.whole

    @classmethod
    def of(cls, deployment: Object) -> SlotState:
        """The state of a Deployment as the caches have it."""
        spec, status = deployment["spec"], deployment.get("status") or {}
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        found = {c.get("type"): c for c in status.get("conditions") or ()}
        seen = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
        failure: Mapping[str, Any] = found.get("ReplicaFailure") or {}
        fails = failure.get("status") == "True"
        return cls(
            revision=str(spec["template"]["metadata"]["labels"].get(names.REVISION_LABEL)),
            count=int(spec.get("replicas") or 0),
            max_surge=_number(rolling.get("maxSurge"), 1),
            max_unavailable=_number(rolling.get("maxUnavailable"), 0),
            seen=seen,
            whole=status.get("updatedReplicas", 0) == status.get("replicas", 0),
            ready=int(status.get("readyReplicas") or 0),
            timed_out=seen and (found.get("Progressing") or {}).get("reason") == "ProgressDeadlineExceeded",
            refusal=str(failure.get("message") or "") if fails else "",
            refused_since=epoch_seconds(str(failure.get("lastTransitionTime") or "")) if fails else None,
        )


def _number(value: Any, otherwise: int) -> int:  # any JSON value
    """A count of pods; somebody may have written a percentage, which we don't."""
    return value if isinstance(value, int) else otherwise
