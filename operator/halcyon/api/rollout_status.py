"""Schema of `status.revision` and `status.rollout` of a ModelDeployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from halcyon.api.types import ApiModel, Count, Long, Short, Time


class RevisionStatus(ApiModel):
    """Names of the serving revision and of the revision that the spec requires."""

    current: Short | None = None
    """Name of the serving revision's ControllerRevision."""
    target: Short | None = None
    """Name of the ControllerRevision that corresponds to the accepted spec."""


class FailedRevision(ApiModel):
    """Failure of the target revision, if it failed and does not serve."""

    revision: Short
    """Name of the failed revision's ControllerRevision."""
    reason: Short
    """Reason for the failure in one word, for example `LoadFailed`."""
    message: Long
    """Cause of the failure, for example Triton's error message."""
    finished_at: Time
    """Time at which the operator declared the rollout failed."""


class PastRollout(ApiModel):
    """Result of the last rollout to one revision."""

    revision: Short
    """Name of the revision's ControllerRevision."""
    result: Literal["Served", "Failed", "Superseded"]
    """Result of the rollout. `Superseded`: the spec changed to another revision before the rollout was complete."""
    finished_at: Time
    """Time at which the rollout ended."""
    message: Long | None = None
    """Reason why the rollout did not complete. Absent if it completed."""


class CanaryStatus(ApiModel):
    """State of a canary in progress."""

    step: Count
    """Number of the current step, counted from 1."""
    weight: Count
    """Share of the requests, in percent, that the canary receives once one of its pods is ready."""
    pods: Count
    """Number of pods of the canary."""
    paused: bool | None = None
    """True while the step is paused until someone resumes the rollout; absent otherwise. `status.rollout.message`
    explains how to continue."""


class RolloutStatus(ApiModel):
    """State of the rollout to the target revision."""

    phase: Literal["Complete", "Progressing", "Blocked", "Failed", "RollingBack", "RolledBack"]
    """Phase of the rollout. Blocked: there is no capacity for the target revision. Failed: the target revision failed
    and stays in place. RolledBack: the target revision failed, and the previous revision is serving."""
    strategy: Literal["Surge", "Replace", "Canary"]
    """Strategy of the rollout. If spec.rollout.strategy is Auto, this is the strategy that Auto has chosen: Surge or
    Replace."""
    strategy_reason: Long | None = None
    """Reason why the strategy Replace is used. Absent for other strategies."""
    canary: CanaryStatus | None = None
    """State of the canary. Present only while a canary is in progress."""
    message: Long | None = None
    """State of the rollout, its cause, and what you can do."""
    started_at: Time | None = None
    """Time at which the rollout to the target revision started."""
    failed: FailedRevision | None = None
    """Failure of the target revision, if it failed. Halcyon does not retry the revision until the spec changes."""
    history: Annotated[tuple[PastRollout, ...], Field(max_length=10)] | None = None
    """Results of the last rollouts, one for each revision, newest first."""


def routed_name(resource: Mapping[str, Any]) -> str:
    """Return the name of a model in requests, taken from its status or else its spec; empty if neither has a name.

    They differ during a rollout that changes the name, and after it was rolled back.
    """
    names = (((resource.get(part) or {}).get("model") or {}).get("name") for part in ("status", "spec"))
    return str(next(filter(None, names), ""))
