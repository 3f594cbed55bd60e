"""The section of the second engine: figures with differences, or the reason why perf_analyzer has none."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from halcyon_measure.errors import SettingError
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.measurement import Measurement
from halcyon_measure.perf_analyzer import program
from halcyon_measure.perf_analyzer.engine import Engine
from halcyon_measure.perf_analyzer.program import ProgramError
from halcyon_measure.protocols.target import Target
from halcyon_measure.report import csv_rows, page
from halcyon_measure.results import text
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.document_file import StoredDocument, parse
from halcyon_measure.schedule.scenario import Scenario
from tests.bench_documents import bench_document

STUB = """#!/bin/sh
if [ "$1" = --version ]; then echo 'Perf Analyzer Version 2.60.0 (commit abc)' >&2; exit 0; fi
{body}
"""
RESULT = """cat > table.csv <<'X'
Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency
4,100,20000,21000,22000,30000,20500
X
echo '    Request count: 900'
"""


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    path = folder / "perf_analyzer"
    path.write_text(STUB.format(body=body))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


MEASUREMENT = Measurement(
    target=Target(host="m", port=8000, model="m", inputs=(ModelInput("x", "FP32", (-1, 2)),)),
    scenario=Scenario(callers=4),
)


def measured(document: BenchDocument | None = None) -> BenchDocument:
    engine = Engine.checked(MEASUREMENT, ())
    return engine.measure(MEASUREMENT, document or bench_document(), lambda _: None)


def test_both_engines_and_their_difference_are_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, RESULT)
    document = measured()
    section = document.second_engine
    assert section is not None
    assert (section.version, section.requests, section.reason) == ("2.60.0 (commit abc)", 900, "")
    own = document.from_send.p50.value
    assert own is not None
    assert section.p50.other.value == 20.0
    assert section.p50.difference.value == pytest.approx(20 - own)
    assert section.p50.relative.value == pytest.approx(20 / own - 1)
    assert section.p50.other.n == 900
    assert section.throughput.other.value == 100
    data = document.model_dump(mode="json")
    assert parse(data, "x") == document
    stored = StoredDocument("x", document, data)
    assert "p50, ms" in text.page(document)
    assert "perf_analyzer 2.60.0 (commit abc)" in text.page(document)
    assert "second_engine.p50.difference [ms]" in csv_rows.text([stored])
    assert "Second engine" in page.page([stored], library="", library_style="")


def test_failure_of_the_program_is_the_reason_of_its_missing_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(tmp_path, monkeypatch, "echo 'Failed to obtain stable measurement.' >&2; exit 2")
    section = measured().second_engine
    assert section is not None
    assert "stability-percentage=20" in section.reason
    assert section.p99.other.value is None
    assert section.p99.halcyon.value is not None
    assert section.p99.difference.reason == section.reason


def test_interrupted_run_is_not_repeated_by_perf_analyzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, RESULT)
    document = bench_document()
    partial = document.model_copy(update={"run": document.run.model_copy(update={"partial": True})})
    section = measured(partial).second_engine
    assert section is not None
    assert section.reason == "it was interrupted"


def test_interrupt_ends_the_program_and_keeps_the_own_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, "exec sleep 60")
    engine = Engine.checked(MEASUREMENT, ())
    ended: list[subprocess.Popen[str]] = []

    def interrupted(process: subprocess.Popen[str], *_: object, **__: object) -> tuple[str, str]:
        ended.append(process)
        monkeypatch.undo()  # only the first call, which waits for the result
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    document = engine.measure(MEASUREMENT, bench_document(), lambda _: None)
    assert ended[0].returncode == -signal.SIGTERM
    assert document.second_engine is not None
    assert document.second_engine.reason == "it was interrupted"
    assert document.latency.p50.value is not None


def test_program_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(ProgramError, match="did not end"):
        program.execute(str(tmp_path / "perf_analyzer"), [], limit_s=0.05)


@pytest.mark.parametrize(
    ("body", "message"),
    [(None, "neither on PATH nor in the Python environment"), ("libc.so.6: not found", "libc.so.6: not found")],
)
def test_missing_program_is_an_error_with_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None, message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    if body is not None:
        # As NVIDIA's script in Python does, it ends with status 0 when the program can't be loaded.
        (tmp_path / "perf_analyzer").write_text(f"#!/bin/sh\necho '{body}' >&2\n")
        (tmp_path / "perf_analyzer").chmod(0o755)
    with pytest.raises(SettingError, match=message) as error:
        Engine.checked(MEASUREMENT, ())
    assert "pip install perf-analyzer" in str(error.value)


def test_version_is_that_of_the_python_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    stub(folder, monkeypatch, "")
    path = folder / "perf_analyzer"
    path.write_text(path.read_text().replace("2.60.0", "0.0.0"))
    (tmp_path / "lib/python3.13/site-packages/perf_analyzer-2.61.0.dist-info").mkdir(parents=True)
    assert program.installed().version == "2.61.0 (commit abc)"


def test_schedule_has_no_throughput_of_perf_analyzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, RESULT + "echo '    Delayed Request Count: 3 (0.3%)'")
    sustained = replace(MEASUREMENT, scenario=Scenario(kind="sustained", rate_rps=50, duration_s=2))
    section = Engine.checked(sustained, ()).measure(sustained, bench_document(), lambda _: None).second_engine
    assert section is not None
    assert section.delayed == 3
    assert section.throughput.other.value is None
    assert "full seconds" in section.throughput.other.reason
