"""Lease of a measurement's Job: its extension, and the deletion of the Job, even while the API server is unreachable.

Out of scope: the Job itself, and the length of its lease (`client_job`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from halcyon_cli.bench.place import client_job
from halcyon_cli.bench.place.client_job import JOB
from halcyon_cli.errors import ClusterError, Failure
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]

_RENEW_S = 20.0
OUTAGE_S = 100.0
"""Maximum time for which requests to the API server may fail during a measurement, in seconds. A lease lasts longer."""
_DELETE_ATTEMPTS, _DELETE_PAUSE_S = 3, 1.0


class PlaceError(Failure):
    """A measurement in the cluster has failed, so there is no result."""


class JobLease:
    """Lease of a measurement's Job, from the creation of the Job to its deletion."""

    def __init__(
        self,
        cluster: ObjectWriter,
        job: Json,
        *,
        longest_s: float,
        progress: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin the lease of a Job that was just created.

        `longest_s` is the maximum duration of the measurement, in seconds.
        """
        self._cluster, self._name, self._uid = cluster, str(job["metadata"]["name"]), str(job["metadata"]["uid"])
        self._longest_s, self._progress, self._clock, self._pause = longest_s, progress, clock, pause
        self._created_s = self._renewed_s = clock()
        self._failing_since_s: float | None = None

    def extend(self) -> None:
        """Extend the lease if it is due.

        Raises:
            PlaceError: the Job was deleted.
            ClusterError: requests to the API server have failed for `OUTAGE_S`.
        """
        now = self._clock()
        if now - self._renewed_s < _RENEW_S:
            return
        deadline = client_job.lease_s(now - self._created_s, self._longest_s)
        try:
            job = self._cluster.change(JOB, self._name, {"spec": {"activeDeadlineSeconds": deadline}})
        except ClusterError as error:
            self.record_failure(error)
            return
        self.record_response()
        if job is None:
            raise PlaceError(f"Job {self._name} was deleted, and the copy with it")
        self._renewed_s = now

    def record_response(self) -> None:
        """Record that the API server has answered a request."""
        self._failing_since_s = None

    def record_failure(self, error: ClusterError) -> None:
        """Show a failed request to the API server. The caller retries the request.

        Raises:
            ClusterError: requests have failed for `OUTAGE_S`.
        """
        now = self._clock()
        if self._failing_since_s is None:
            self._failing_since_s = now
        if now - self._failing_since_s > OUTAGE_S:
            raise error
        self._progress(f"{error}; trying again")

    def delete(self) -> None:
        """Delete the Job and all objects that it owns.

        A failure is only printed, because the result must not be lost, and the Job ends with its lease anyway.
        """
        for attempt in range(_DELETE_ATTEMPTS):
            if attempt:
                self._pause(_DELETE_PAUSE_S)
            try:
                self._cluster.delete(JOB, self._name, self._uid)
            except ClusterError as error:
                why = error
            else:
                return
        print(
            f"halcyon: Job {self._name} couldn't be deleted: {why}. Within {client_job.LEASE_S + client_job.TTL_S} s, Kubernetes removes "
            f"it and all that it owns; sooner with kubectl delete job {self._name} -n {self._cluster.namespace}",
            file=sys.stderr,
        )
