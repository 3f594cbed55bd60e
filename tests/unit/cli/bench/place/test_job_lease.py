"""The lease of a measurement's Job: extended in time, also after an outage, and given up after a long one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from halcyon.kube.kinds import Kind
from halcyon_cli.bench.place.client_job import LEASE_S
from halcyon_cli.bench.place.job_lease import OUTAGE_S, JobLease, PlaceError
from halcyon_cli.errors import ClusterError


class Jobs:
    """A cluster with one Job, whose API server is away while `is_away` is true."""

    namespace = "team"

    def __init__(self) -> None:
        self.now, self.is_away, self.exists, self.deadline, self.deletions = 0.0, False, True, 0, 0

    def change(self, _kind: Kind, _name: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.is_away:
            raise ClusterError("it can't be reached")
        self.deadline = body["spec"]["activeDeadlineSeconds"]
        return body if self.exists else None

    def delete(self, _kind: Kind, _name: str, uid: str) -> None:
        assert uid == "j-1"
        self.deletions += 1
        if self.is_away:
            raise ClusterError("it can't be reached")

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def lease(self) -> JobLease:
        job = {"metadata": {"name": "m-bench", "uid": "j-1"}}
        return JobLease(
            self,  # type: ignore[arg-type]
            job,
            longest_s=3600,
            progress=lambda _: None,
            clock=lambda: self.now,
            pause=self.pause,
        )


def test_lease_survives_an_outage_that_is_shorter_than_it() -> None:
    jobs = Jobs()
    lease = jobs.lease()
    for second in range(600):
        jobs.now, jobs.is_away = float(second), 200 <= second < 200 + OUTAGE_S
        lease.extend()
        if second >= LEASE_S:
            assert jobs.deadline > second


def test_outage_that_is_too_long_is_its_error() -> None:
    jobs = Jobs()
    lease, jobs.is_away = jobs.lease(), True

    def kept_for(seconds: int) -> None:
        for second in range(seconds):
            jobs.now = float(second)
            lease.extend()

    with pytest.raises(ClusterError, match="it can't be reached"):
        kept_for(600)
    assert OUTAGE_S < jobs.now < LEASE_S


def test_job_that_was_deleted_ends_the_measurement() -> None:
    jobs = Jobs()
    lease, jobs.exists, jobs.now = jobs.lease(), False, 60.0
    with pytest.raises(PlaceError, match="Job m-bench was deleted"):
        lease.extend()


def test_deletion_is_repeated_and_its_failure_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Jobs()
    lease, jobs.is_away = jobs.lease(), True
    lease.delete()
    assert jobs.deletions == 3
    assert "sooner with kubectl delete job m-bench -n team" in capsys.readouterr().err
    jobs.is_away = False
    lease.delete()
    assert jobs.deletions == 4
    assert not capsys.readouterr().err
