"""The load engine against a real Triton: each request counted once, whatever the protocol, the scenario and the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, Triton, Work
from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.engine.recorder import CHUNK
from halcyon_measure.errors import HookError, TargetError
from halcyon_measure.inputs.payloads import Rows
from halcyon_measure.measurement import Measurement, save
from halcyon_measure.protocols import target
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.schedule.scenario import Scenario

pytestmark = pytest.mark.more

NO_WARM_UP = WarmUp(0.0, fixed=True)


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    """Start a model of 10 ms + 1 ms a row, with batches of 8 rows."""
    with tritons.running([Work("m", t0_ms=10, a_ms=1, max_batch=8)]) as (server,):
        yield server


def to(triton: Triton, protocol: str, encoding: Any = None, model: str = "m", **others: Any) -> target.Target:
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    url = f"{protocol}://{triton.address}:{port}"
    return target.parse(url, api="kserve", transport=None, encoding=encoding, model=model, **others)


def measured(measurement: Measurement) -> tuple[BenchDocument, Columns]:
    ready = measurement.prepare()
    run = ready.run()
    return ready.document(run, made_by="test"), run.columns


SCENARIOS = {
    "blocking": Scenario(callers=4, requests=60),
    "sustained": Scenario(kind="sustained", rate_rps=60, duration_s=1.5),
    "burst": Scenario(kind="burst", rate_rps=60, cv=2, duration_s=1.5),
    "ramp": Scenario(kind="ramp", rate_rps=20, to_rps=100, duration_s=1.5),
    "trace": Scenario(kind="trace", trace=tuple(n / 50 for n in range(60))),
    "offline": Scenario(kind="offline", requests=80, callers=16, duration_s=30),
}


@pytest.mark.parametrize(
    ("protocol", "encoding"), [("http", "binary"), ("http", "json"), ("grpc", "raw"), ("grpc", "typed")]
)
@pytest.mark.parametrize("kind", SCENARIOS)
def test_requests_of_a_run_equal_the_counters_of_the_server(
    triton: Triton, protocol: str, encoding: str, kind: str
) -> None:
    before = triton.answered()
    document, columns = measured(
        Measurement(target=to(triton, protocol, encoding), scenario=SCENARIOS[kind], warm_up=NO_WARM_UP)
    )
    assert triton.answered() - before == document.requests.answered == document.requests.due == len(columns) > 20
    assert np.all(columns.due <= columns.sent)
    assert np.all(columns.sent <= columns.first_byte)
    assert np.all(columns.first_byte <= columns.done)


def test_requests_above_the_limit_are_counted_each_once(triton: Triton, tmp_path: Path) -> None:
    before = triton.answered()
    scenario = Scenario(callers=16, duration_s=4)
    ready = Measurement(
        target=to(triton, "grpc"), scenario=scenario, warm_up=NO_WARM_UP, processes=2, fold_above=CHUNK // 2
    ).prepare()
    run = ready.run()
    document = ready.document(run, made_by="test")
    assert run.folded is not None
    assert len(run.columns) == 0
    assert triton.answered() - before == document.requests.answered == document.requests.due > CHUNK
    assert document.run.histogram
    # Two batches of 8 take turns on one instance.
    assert document.latency.p50.value == pytest.approx(36, rel=0.6)
    assert document.phases is not None
    assert document.phases.adds_up
    assert [path.name for path in save(tmp_path, document, run)] == ["bench.json", "histogram.npz"]


def test_processes_share_one_schedule(triton: Triton) -> None:
    scenario = Scenario(kind="sustained", rate_rps=80, duration_s=2)
    dues = []
    for processes in (1, 2):
        _, columns = measured(
            Measurement(target=to(triton, "grpc"), scenario=scenario, warm_up=NO_WARM_UP, processes=processes)
        )
        dues.append(columns.due)
    assert np.allclose(*dues, atol=1e-9)


def test_warm_up_is_not_counted(triton: Triton) -> None:
    before = triton.answered()
    measurement = Measurement(target=to(triton, "grpc"), scenario=Scenario(callers=2, duration_s=1)).prepare()
    run = measurement.run()
    sent = triton.answered() - before
    warm = sum(usage["warm_up_requests"] for usage in run.usage)
    assert run.settled
    assert run.warm_up_s >= 3
    assert sent == warm + len(run.columns)
    assert float(run.columns.due.min()) >= 0


def test_rows_of_a_request_are_executed_rows(triton: Triton) -> None:
    document, columns = measured(
        Measurement(
            target=to(triton, "http"),
            scenario=Scenario(requests=64),
            payload=PayloadSettings(rows=Rows(1, 8)),
            warm_up=NO_WARM_UP,
        )
    )
    assert sorted(set(columns.rows.tolist())) == list(range(1, 9))
    assert document.requests.rows == int(columns.rows.sum()) == 8 * 36


def test_too_many_requests_in_flight_are_counted_as_not_sent(triton: Triton) -> None:
    scenario = Scenario(kind="sustained", rate_rps=1500, duration_s=1.5, max_in_flight=20)
    before = triton.answered()
    document, _ = measured(Measurement(target=to(triton, "grpc"), scenario=scenario, warm_up=NO_WARM_UP))
    assert document.requests.not_sent > 100
    assert document.requests.answered + document.requests.not_sent == document.requests.due
    assert triton.answered() - before == document.requests.answered
    assert not document.run.valid


def test_wrong_answers_are_failures_of_their_own(triton: Triton, tmp_path: Path) -> None:
    value = tmp_path / "x.npy"
    np.save(value, np.array([[3.0]], np.float32))
    wrong_counts: dict[str, int] = {}
    for name, expected in (("right", [[3.0]]), ("wrong", [[4.0]]), ("shape", [[[3.0]]])):
        expect = tmp_path / f"{name}.npz"
        np.savez(expect, y=np.array(expected, np.float32))
        document, _ = measured(
            Measurement(
                target=to(triton, "http"),
                scenario=Scenario(requests=5),
                payload=PayloadSettings(samples=((("", str(value)),),)),
                warm_up=NO_WARM_UP,
                expect=str(expect),
            )
        )
        wrong_counts[name] = document.requests.wrong
    assert wrong_counts == {"right": 0, "wrong": 5, "shape": 5}


def test_a_request_beyond_its_time_out_is_counted_as_such(triton: Triton) -> None:
    for protocol in ("http", "grpc"):
        scenario = Scenario(kind="offline", requests=40, callers=40, duration_s=10)
        document, _ = measured(
            Measurement(target=to(triton, protocol, timeout_s=0.05), scenario=scenario, warm_up=NO_WARM_UP)
        )
        assert document.requests.timed_out > 5
        assert document.requests.timed_out + document.requests.answered == 40


def test_a_server_that_ends_is_a_broken_connection() -> None:
    for protocol in ("http", "grpc"):
        with tritons.running([Work("m", t0_ms=5, max_batch=8)]) as (own,):
            measurement = Measurement(
                target=to(own, protocol), scenario=Scenario(callers=2, duration_s=2), warm_up=NO_WARM_UP
            ).prepare()
            own.kill()
            document = measurement.document(measurement.run(), made_by="test")
        assert document.requests.answered == 0
        assert document.requests.disconnected == document.requests.due > 10


def test_functions_of_the_user_are_timed_apart(triton: Triton, tmp_path: Path) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(
        "import time\nimport numpy as np\n\n"
        "def prepare(number):\n    time.sleep(0.02)\n    return np.full((1, 1), number, np.float32)\n\n"
        "def finish(outputs):\n    assert outputs['y'].shape == (1, 1)\n    time.sleep(0.01)\n\n"
        "def broken(number):\n    if number == 3:\n        raise ValueError('no picture 3')\n    return prepare(number)\n"
    )
    settings = HookSettings(prepare=f"{hook}:prepare", finish=f"{hook}:finish", processes=2)
    document, columns = measured(
        Measurement(target=to(triton, "http"), scenario=Scenario(requests=30), hooks=settings, warm_up=NO_WARM_UP)
    )
    assert document.requests.answered == 30
    assert float((columns.prepared - columns.due).min()) >= 0.02
    assert float((columns.finished - columns.done).min()) >= 0.01
    assert float((columns.done - columns.sent).min()) < 0.02
    broken = HookSettings(prepare=f"{hook}:broken")
    with pytest.raises(HookError, match=r"hook\.py, line 14: ValueError: no picture 3, in request 3"):
        measured(Measurement(target=to(triton, "http"), scenario=Scenario(requests=30), hooks=broken))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_unknown_model_is_an_error_before_the_load(triton: Triton, protocol: str) -> None:
    with pytest.raises(TargetError, match="unknown model"):
        Measurement(target=to(triton, protocol, model="nope"), scenario=Scenario()).prepare()


def test_an_interrupted_command_shows_what_was_measured(triton: Triton, tmp_path: Path) -> None:
    url = f"http://{triton.address}:{HTTP_PORT}"
    arguments = ["bench", "--url", url, "--model", "m", "--duration", "60s", "--warm-up", "0", "--save", str(tmp_path)]
    command = subprocess.Popen(
        [sys.executable, "-m", "halcyon.main", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    before = triton.answered()
    while triton.answered() < before + 20:
        assert command.poll() is None
        time.sleep(0.05)
    command.send_signal(signal.SIGTERM)  # SIGINT is ignored by what a shell starts in the background
    output, _ = command.communicate(timeout=60)
    assert command.returncode == 1
    assert "NOT VALID the run was interrupted" in output
    document = BenchDocument.model_validate(json.loads((tmp_path / "bench.json").read_text()))
    columns, _, _ = Columns.load(tmp_path / "requests.npz")
    assert document.run.partial
    assert document.requests.answered == len(columns) >= 20


def test_a_result_that_stdout_can_not_take_is_saved(triton: Triton, tmp_path: Path) -> None:
    url = f"http://{triton.address}:{HTTP_PORT}"
    arguments = ["bench", "--url", url, "--model", "m", "--requests", "20", "--warm-up", "0", "--save", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        command = subprocess.run(
            [sys.executable, "-m", "halcyon.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert command.returncode == 2
    assert "stdout can't be written: No space left on device" in command.stderr
    document = BenchDocument.model_validate(json.loads((tmp_path / "bench.json").read_text()))
    assert document.requests.answered == 20
