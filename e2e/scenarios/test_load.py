"""The load itself: what it refuses, and how it counts. No cluster."""

import pytest

from e2e.load.clients import Answer
from e2e.load.settings import Load, LoadError, Report, together
from e2e.load.tally import Tally


def test_a_load_without_bounds_is_refused_by_field_and_limit() -> None:
    with pytest.raises(LoadError, match=r"duration_s is 7200; it must be above 0 and at most 3600, for example 10"):
        Load(address="127.0.0.1:8001", model="digits", duration_s=7200)
    with pytest.raises(LoadError, match="rate_rps is 0"):
        Load(address="127.0.0.1:8001", model="digits", rate_rps=0)


def test_a_load_travels_as_json() -> None:
    load = Load(address="127.0.0.1:8001", model="digits", rate_rps=2.5, shape=(2, 64))
    assert Load.from_json(load.to_json()) == load


def test_each_execution_counts_once_in_the_mean_batch() -> None:
    tally = Tally(0.0)
    for batch in (4, 4, 4, 4, 1):
        tally.answered(Answer(batch, "pod"), sent_s=0.0, now=1.0)
    assert tally.report(1.0, final=True).mean_batch == 2.5


def test_a_report_has_failures_by_kind_and_when_they_were() -> None:
    tally = Tally(10.0)
    tally.answered(Answer(None, "a"), sent_s=10.0, now=10.2)
    tally.failed("StatusCode.UNAVAILABLE", now=11.0)
    tally.failed("StatusCode.UNAVAILABLE", now=12.5)
    report = tally.report(13.0, final=True)
    assert report.failures == {"StatusCode.UNAVAILABLE": 2}
    assert (report.first_failed_s, report.last_failed_s) == (1.0, 2.5)
    assert report.requests == 3
    assert report.shares == [1.0]


def test_rounds_together_weigh_by_time_and_by_execution() -> None:
    slow = Report(answered=100, failed=1, seconds=2.0, rate_rps=50, mean_batch=10, who={"a": 100})
    quick = Report(answered=300, failed=0, seconds=2.0, rate_rps=150, mean_batch=30, who={"a": 200, "b": 100})
    combined = together([slow, quick])
    assert (combined.rate_rps, combined.failed, combined.mean_batch) == (100.0, 1, 20.0)
    assert combined.who == {"a": 300, "b": 100}
