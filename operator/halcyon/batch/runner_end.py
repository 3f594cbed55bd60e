"""End of a BatchInference's runner, from its Job, its pod and the status of the BatchInference. Pure."""

# end          if
# complete     the Job or the BatchInference is Complete, or the runner has ended with 0 in a pod that others keep
# failed       the Job is Failed, or the runner has ended with `FAILED` in a pod that others keep
# (running)    any other

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.documents.batch_documents import FAILED
from halcyon.api.timestamps import epoch_seconds
from halcyon.batch import runner_pod
from halcyon.batch.running_batch import final_conditions
from halcyon.kube.kinds import Object


@dataclass(frozen=True)
class RunnerEnd:
    """Way in which a runner has ended. Neither `is_complete` nor `has_failed` is true while it may continue."""

    is_complete: bool
    """Whether all rows are processed. A batch stays complete if its Job or its pod is deleted."""
    has_failed: bool
    has_succeeded_in_kept_pod: bool
    """Whether it has ended with success in a pod that still runs, because of containers that others have added."""
    kept_since: float | None
    """Time at which the runner in such a pod has ended, in seconds since the epoch; 0 if unknown, None if there is no
    such pod."""

    @classmethod
    def of(cls, batch: Object, job: Object | None, pod: Object | None) -> RunnerEnd:
        """Return the end of the runner of a BatchInference. `job` and `pod` are None if they don't exist."""
        job_ends, kept = final_conditions(job), runner_pod.held_end(pod, job)
        exit_code = None if kept is None else kept.get("exitCode")
        return cls(
            is_complete="Complete" in job_ends | final_conditions(batch) or exit_code == 0,
            has_failed="Failed" in job_ends or exit_code == FAILED,
            has_succeeded_in_kept_pod=exit_code == 0,
            kept_since=epoch_seconds(kept.get("finishedAt")) or 0.0 if kept else None,
        )

    def kept_s(self, now: float) -> float:
        """Return for how many seconds others have kept the pod of a runner that has ended; 0 if they don't."""
        return 0.0 if self.kept_since is None else now - self.kept_since
