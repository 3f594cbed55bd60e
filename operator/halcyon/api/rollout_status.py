"""Schema of `status.revision` and `status.rollout` of a ModelDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halcyon.api.types import Count, Documented, Long, Short, Time


class RevisionStatus(Documented):
    """Revisions, identified by the names of their ControllerRevisions."""

    current: Short | None = None
    """Revision that is serving requests."""
    target: Short | None = None
    """Revision that the accepted spec requires."""


class FailedRevision(Documented):
    """The target revision, if it failed and does not serve."""

    revision: Short
    """Name of its ControllerRevision."""
    reason: Short
    """Reason in one word, as in the conditions."""
    message: Long
    """Cause of the failure; Triton's error message if there is one."""
    finished_at: Time
    """Time at which the rollout was given up."""


class PastRollout(Documented):
    """Result of the most recent rollout of a revision."""

    revision: Short
    """Name of the ControllerRevision."""
    result: Literal["Served", "Failed", "Superseded"]
    """Result of the rollout. Superseded: the spec changed to another revision before this one was reached."""
    finished_at: Time
    """Time at which the rollout ended."""
    message: Long | None = None
    """Reason why the revision did not go into service, if it did not."""


class CanaryStatus(Documented):
    """A canary in progress."""

    step: Count
    """Number of the current step, from 1."""
    weight: Count
    """Share of the requests, in percent, that the canary receives once one of its pods is ready."""
    pods: Count
    """Number of pods of the canary."""
    paused: bool | None = None
    """True while the step waits for a person; absent otherwise. The message says how to go on."""


class RolloutStatus(Documented):
    """State of the rollout to the target revision."""

    phase: Literal["Complete", "Progressing", "Blocked", "Failed", "RollingBack", "RolledBack"]
    """Phase of the rollout. Blocked: there is no capacity for the target revision. Failed: the target revision failed
    and stays in place. RolledBack: the target revision failed, and the previous revision is serving."""
    strategy: Literal["Surge", "Replace", "Canary"]
    """Strategy in use; if spec.rollout.strategy is Auto, the one that it has chosen."""
    strategy_reason: Long | None = None
    """Reason why the strategy in use is Replace."""
    canary: CanaryStatus | None = None
    """State of the canary; present only while one is in progress."""
    message: Long | None = None
    """State, cause, and what to do."""
    started_at: Time | None = None
    """Time at which the rollout to the target revision started."""
    failed: FailedRevision | None = None
    """The target revision, if it failed. It is not tried again until the spec changes."""
    history: Annotated[tuple[PastRollout, ...], Field(max_length=10)] | None = None
    """Results of the last rollouts, newest first."""
