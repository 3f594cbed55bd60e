"""`--engine perf_analyzer` with the real program against a real Triton: the same requests, and both results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, Triton, Work
from e2e.clients import programs
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement
from halcyon_measure.perf_analyzer.engine import Engine
from halcyon_measure.protocols import target
from halcyon_measure.results.sections.second_engine import SecondEngine
from halcyon_measure.schedule.scenario import Scenario

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    """Start a model of 10 ms + 1 ms a row, with batches of 8 rows."""
    with tritons.running([Work("m", t0_ms=10, a_ms=1, max_batch=8)]) as (server,):
        yield server


@pytest.fixture(autouse=True)
def perf_analyzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put perf_analyzer on PATH."""
    path = tmp_path / "perf_analyzer"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(programs.perf_analyzer_command())} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def measurement(triton: Triton, protocol: str, scenario: Scenario, encoding: Any = None, **others: Any) -> Measurement:
    url = f"{protocol}://{triton.address}:{GRPC_PORT if protocol == 'grpc' else HTTP_PORT}"
    to = target.parse(url, api="kserve", transport=None, encoding=encoding, model="m", headers=(("x-team", "vision"),))
    return Measurement(target=to, scenario=scenario, warm_up=WarmUp(0.5, fixed=True), **others).prepare()


def judged(ready: Measurement, *options: str) -> SecondEngine:
    engine = Engine.checked(ready, options)
    document = engine.measure(ready, ready.document(ready.run(), made_by="test"), lambda _: None)
    assert document.second_engine is not None
    return document.second_engine


@pytest.mark.parametrize(("protocol", "encoding"), [("http", "binary"), ("http", "json"), ("grpc", "raw")])
def test_both_engines_measure_callers(triton: Triton, protocol: str, encoding: str) -> None:
    ready = measurement(
        triton, protocol, Scenario(callers=4, duration_s=3), encoding, payload=PayloadSettings(rows=Rows(2, 2))
    )
    section = judged(ready)
    assert section.reason == ""
    assert section.version.startswith("0.0.0 (commit ")
    # Each execution of 8 rows takes 18 ms, whatever the speed of the machine.
    for entry in (section.mean, section.p50):
        assert entry.halcyon.value is not None
        assert entry.other.value is not None
        assert min(entry.halcyon.value, entry.other.value) > 15
    assert section.throughput.other.value is not None
    assert 0 < section.throughput.other.value < 4 / 0.015


def test_arrivals_of_a_schedule_are_sent_once(triton: Triton, tmp_path: Path) -> None:
    values = tmp_path / "x.npy"
    np.save(values, np.array([[1.0]], np.float32))
    scenario = Scenario(kind="burst", rate_rps=40, cv=2, duration_s=3)
    ready = measurement(triton, "grpc", scenario, payload=PayloadSettings(samples=((("x", str(values)),),)))
    engine = Engine.checked(ready, ())
    run = ready.run()
    before = triton.answered()
    section = engine.measure(ready, ready.document(run, made_by="test"), lambda _: None).second_engine
    assert section is not None
    assert section.reason == ""
    assert section.requests == run.count
    # Ten requests of its own warm-up come first.
    assert triton.answered() - before == run.count + 10


def test_failed_request_ends_perf_analyzer_with_a_reason(triton: Triton) -> None:
    ready = measurement(triton, "grpc", Scenario(callers=2, duration_s=1))
    engine = Engine.checked(ready, ())
    document = ready.document(ready.run(), made_by="test")
    other = Measurement(
        target=target.parse(
            ready.target.url, api="kserve", transport=None, encoding=None, model="none", inputs=ready.target.inputs
        ),
        scenario=ready.scenario,
    )
    section = engine.measure(other, document, lambda _: None).second_engine
    assert section is not None
    assert "unknown model" in section.reason
    assert section.p50.other.value is None
    assert section.p50.halcyon.value is not None


def test_stream_with_stability_of_a_percentage(triton: Triton) -> None:
    ready = measurement(triton, "grpc", Scenario(callers=2, duration_s=3))
    section = judged(ready, "streaming", "stability-percentage=900", "percentile=95")
    assert section.reason == ""
    assert "until 3 of them are stable" in section.load
    assert any("stream" in limit for limit in section.limits)
