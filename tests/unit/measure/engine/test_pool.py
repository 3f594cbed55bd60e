"""The length of a run's measured part, by which its rates are divided."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from halcyon_measure.engine import pool
from halcyon_measure.engine.job import FOLD_ABOVE
from halcyon_measure.engine.pool import measured_s, processes_for
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.folded import Folded
from halcyon_measure.schedule.scenario import Scenario

SUSTAINED = Scenario(kind="sustained", rate_rps=10, duration_s=60)


def columns(due: list[float], latency_s: float = 0.0) -> Columns:
    """Return requests whose answers take `latency_s`."""
    rows = []
    for time in due:
        times = dict.fromkeys(("first_byte", "done", "finished"), time + latency_s)
        known = {"due": time, "prepared": time, "sent": time, "written": math.nan, "rows": 1.0, **times}
        rows.append(tuple(known.get(field.name, 0.0) for field in fields(Columns)))
    return Columns.of(rows)


def test_waiting_for_slow_answers_is_not_measured_time_of_a_schedule() -> None:
    requests = columns([n / 10 for n in range(31)], 5.0)
    limited = Scenario(kind="sustained", rate_rps=10, duration_s=60, requests=31)
    assert measured_s(limited, requests, None, stopped_s=None) == pytest.approx(3.0)
    assert measured_s(SUSTAINED, requests, None, stopped_s=3.1) == pytest.approx(3.1)
    assert measured_s(SUSTAINED, requests, None, stopped_s=None) == 60


def test_a_number_of_requests_ends_the_measured_part_of_counted_requests(tmp_path: Path) -> None:
    total = Folded()
    for first in (0, 1):
        part = Folded()
        part.add(columns([n / 10 for n in range(first, 31, 2)], 5.0))
        part.save(tmp_path / "part.npz", messages=[], pods=[])
        loaded = Folded.load(tmp_path / "part.npz")
        assert loaded is not None
        total.merged(loaded[0], [], [-1])
    limited = Scenario(kind="sustained", rate_rps=10, duration_s=60, requests=31)
    assert measured_s(limited, columns([]), total, stopped_s=None) == pytest.approx(3.0)
    assert measured_s(SUSTAINED, columns([]), total, stopped_s=None) == 60


def test_callers_and_offline_are_measured_to_the_last_answer() -> None:
    requests = columns([0.0, 0.0, 0.0], 5.0)
    assert measured_s(Scenario(kind="offline", requests=3, duration_s=600), requests, None, stopped_s=None) == 5.0
    assert measured_s(Scenario(callers=3, requests=3), requests, None, stopped_s=None) == 5.0
    assert measured_s(Scenario(callers=3), requests, None, stopped_s=1.0) == 5.0
    assert measured_s(Scenario(callers=3), requests, None, stopped_s=None) == 10.0


def test_answers_after_the_limit_of_an_offline_run_lengthen_it() -> None:
    # 100 requests in flight take 5 s each, and the run ends after 12 s: 300 answers in 15 s.
    rows = [columns([0.0] * 100, latency_s) for latency_s in (5.0, 10.0, 15.0)]
    offline = Scenario(kind="offline", requests=100_000, callers=100, duration_s=12)
    assert measured_s(offline, Columns.merged(rows), None, stopped_s=None) == 15.0


def test_slow_answers_to_a_number_of_requests_of_callers_lengthen_the_run() -> None:
    callers = Scenario(callers=4, duration_s=10, requests=100)
    # Without a warm-up, no answer of a request from before the run arrives within it.
    requests = columns([0.0] * 4 + [7.0] * 4, 7.0)
    assert measured_s(callers, requests, None, stopped_s=None, has_warm_up=False) == 14.0
    all_of_them = replace(callers, requests=8)
    assert measured_s(all_of_them, requests, None, stopped_s=None, has_warm_up=False) == 14.0
    assert measured_s(callers, requests, None, stopped_s=None) == 10.0


def test_a_load_interrupted_before_its_first_request_has_a_length() -> None:
    none = Columns.of([])
    assert measured_s(SUSTAINED, none, None, stopped_s=1e-9) > 0
    assert measured_s(Scenario(callers=3), none, None, stopped_s=1e-9) > 0


@pytest.mark.parametrize(
    ("scenario", "processes"),
    [
        (Scenario(kind="sustained", rate_rps=6000), 4),
        (Scenario(kind="ramp", rate_rps=100, to_rps=6000), 4),
        (Scenario(kind="burst", rate_rps=6000, on_s=1, off_s=9), 4),
        (Scenario(kind="offline", requests=100_000), 1),
        (Scenario(kind="trace", trace=(0.0, 1.0)), 1),
        (Scenario(callers=257), 2),
    ],
)
def test_processes_of_a_load_suffice_for_its_highest_rate(scenario: Scenario, processes: int) -> None:
    assert processes_for(scenario, cores=8) == processes


def test_process_has_time_to_write_all_its_requests(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    requests = Columns.of(draws.random((40_000, len(fields(Columns)))))  # type: ignore[arg-type]  # rows of an array
    began = process_time()
    requests.save(tmp_path / "0.npz", messages=[], pods=[])
    assert FOLD_ABOVE / len(requests) * (process_time() - began) < pool._END_S


@pytest.mark.parametrize(("hard", "limit"), [(2048, 2048), (20_000, 8192)])
def test_process_may_open_a_connection_for_each_request_in_flight(hard: int, limit: int) -> None:
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "from halcyon_measure.engine import worker; worker.raise_file_limit()\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.split() == [str(limit), str(hard)]


def test_rate_of_slow_callers_without_a_warm_up_is_their_answers_rate() -> None:
    callers = Scenario(kind="blocking", duration_s=10)
    requests = columns([0.0, 7.0], 7.0)
    assert measured_s(callers, requests, None, stopped_s=None, has_warm_up=False) == 14
    assert measured_s(callers, requests, None, stopped_s=None) == 10
    assert measured_s(callers, columns([0.0, 1.0], 0.5), None, stopped_s=None, has_warm_up=False) == 10
    # One of many callers whose last request takes long changes the length little.
    many = columns([n / 10 for n in range(100)] * 32, 0.1)
    slow = Columns.merged([many, columns([9.9], 30.0)])
    assert measured_s(replace(callers, callers=32), slow, None, stopped_s=None, has_warm_up=False) < 11
