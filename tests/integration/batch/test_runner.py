"""The runner of a batch against a real Triton: each row once, whatever kills it, and what ends it for good."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton
from halcyon.api.documents.batch_documents import BatchProgress, BatchRecipe
from tests.integration.measure.test_protocols import serving
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports

pytestmark = pytest.mark.more

_CONFIG = """backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { }
"""
_MODEL = """import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        time.sleep(0.004 + 0.0004 * sum(map(len, inputs)))
        return [
            pb_utils.InferenceResponse(error=pb_utils.TritonError("a row is negative"))
            if (values < 0).any()
            else pb_utils.InferenceResponse([pb_utils.Tensor("y", values * values)])
            for values in inputs
        ]
"""


@dataclass(frozen=True)
class Squares:
    """A model of 4 ms + 0.4 ms a row that squares its input, and refuses a request with a negative row."""

    name: str = "m"

    @property
    def files(self) -> Mapping[str, str]:
        """Files of the model."""
        return {"config.pbtxt": _CONFIG, "1/model.py": _MODEL}


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    with tritons.running([Squares()]) as (server,):
        yield server


def recipe(triton: Triton, source: Path, output: Path, **others: Any) -> BatchRecipe:
    defaults: dict[str, Any] = {"owner": "u", "name": "b", "model": "m", "input_format": "", "output_format": ""}
    return BatchRecipe(
        **defaults
        | {"url": f"http://{triton.address}:{HTTP_PORT}", "input": str(source), "output": str(output)}
        | others
    )


def start(recipe: BatchRecipe, folder: Path) -> subprocess.Popen[bytes]:
    """Start a runner as its pod does."""
    (port,) = free_ports(1)
    own = {"HALCYON_PORT": str(port), "HALCYON_TERMINATION_LOG": str(folder / "termination-log")}
    command = [sys.executable, "-m", "halcyon_batch", recipe.to_json()]
    return subprocess.Popen(command, env={**os.environ, **own, "PYTHONPATH": "operator:cli"}, stdout=subprocess.DEVNULL)


def run(recipe: BatchRecipe, folder: Path) -> tuple[int, BatchProgress]:
    """Run a runner to its end, and return its exit status and last progress."""
    status = start(recipe, folder).wait(60 * PATIENCE)
    return status, BatchProgress.from_json((folder / "termination-log").read_text())


def stored(output: Path) -> dict[int, Any]:
    """Return the results by row; a row that is stored twice fails."""
    results: dict[int, Any] = {}
    for file in sorted(output.glob("part-*")):
        if file.suffix == ".npz":
            with np.load(file) as archive:
                rows = (
                    list(zip(archive["row"].tolist(), archive["y"][:, 0].tolist(), strict=True))
                    if archive["row"].size
                    else []
                )
        else:
            rows = [(line["row"], line["outputs"]) for line in map(json.loads, file.read_text().splitlines())]
        assert [row for row, _ in rows] == sorted({row for row, _ in rows} - results.keys()), file
        results |= dict(rows)
    return results


@pytest.mark.parametrize(("rows_per_request", "expected"), [(None, 1), (4, 4)])
def test_gentle_batch_sends_single_rows_unless_rows_are_given(
    triton: Triton, tmp_path: Path, rows_per_request: int | None, expected: int
) -> None:
    np.savez(tmp_path / "rows.npz", x=np.arange(60, dtype=np.float32).reshape(-1, 1))
    batch = recipe(triton, tmp_path / "rows.npz", tmp_path / "out", gentle=True, rows_per_request=rows_per_request)
    status, progress = run(batch, tmp_path)
    assert (status, progress.done, progress.rows_per_request) == (0, 60, expected)


def test_rows_are_stored_once_after_ten_kills_as_by_a_direct_run(triton: Triton, tmp_path: Path) -> None:
    values = np.arange(6000, dtype=np.float32).reshape(-1, 1)
    bad = [17, 18, 2500, 5999]
    values[bad] *= -1
    np.savez(tmp_path / "rows.npz", x=values)
    batch = recipe(triton, tmp_path / "rows.npz", tmp_path / "out", rows_per_part=40)
    rng, kills = random.Random(7), 0
    while kills < 10:
        runner = start(batch, tmp_path)
        before = len(list((tmp_path / "out").glob("part-*")))
        end = time.monotonic() + 30 * PATIENCE
        # Killed at any moment after its first write, so that each runner gets somewhere.
        while (
            runner.poll() is None and len(list((tmp_path / "out").glob("part-*"))) <= before and time.monotonic() < end
        ):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.3))
        if runner.poll() is not None:
            break
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        kills += 1
    status, progress = run(batch, tmp_path)

    assert (status, kills) == (0, 10)
    assert (progress.total, progress.done, progress.failed, progress.is_complete) == (6000, 5996, 4, True)
    squares = (values * values)[:, 0].tolist()
    assert stored(tmp_path / "out") == {row: squares[row] for row in range(6000) if row not in bad}
    failures = [json.loads(line) for line in (tmp_path / "out" / "failures.jsonl").read_text().splitlines()]
    assert [failure["row"] for failure in failures] == bad
    assert all("a row is negative" in failure["failure"] for failure in failures)


def test_too_many_failures_end_a_batch_and_a_larger_number_resumes_it(triton: Triton, tmp_path: Path) -> None:
    values = np.arange(400, dtype=np.float32).reshape(-1, 1)
    values[350:] *= -1
    np.savez(tmp_path / "rows.npz", x=values)
    batch = recipe(triton, tmp_path / "rows.npz", tmp_path / "out", rows_per_part=50, max_failures=5)
    status, progress = run(batch, tmp_path)
    assert (status, progress.reason, progress.is_complete) == (2, "TooManyFailures", False)
    assert "spec.maxFailures is 5" in progress.message
    assert "a row is negative" in progress.message
    written = {part.name for part in (tmp_path / "out").glob("part-*")}

    status, progress = run(replace(batch, max_failures=50), tmp_path)
    assert (status, progress.done, progress.failed) == (0, 350, 50)
    assert written <= {part.name for part in (tmp_path / "out").glob("part-*")}
    assert len(stored(tmp_path / "out")) == 350


def test_an_input_that_changes_ends_the_batch_with_both_digests(triton: Triton, tmp_path: Path) -> None:
    source = tmp_path / "rows.npz"
    np.savez(source, x=np.arange(9000, dtype=np.float32).reshape(-1, 1))
    batch = recipe(triton, source, tmp_path / "out", rows_per_part=20)
    runner = start(batch, tmp_path)
    while not list((tmp_path / "out").glob("part-*")):
        time.sleep(0.02)
        assert runner.poll() is None
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros((9000, 1), np.float32))
    other.replace(source)
    assert runner.wait(60 * PATIENCE) == 2
    progress = BatchProgress.from_json((tmp_path / "termination-log").read_text())
    known = json.loads((tmp_path / "out" / "batch.json").read_text())["digest"]
    assert progress.reason == "InputChanged"
    assert known in progress.message
    assert progress.message.count("sha256:") == 2
    status, progress = run(batch, tmp_path)
    assert (status, progress.reason) == (2, "InputChanged")


def test_lines_with_functions_keep_their_order_and_name_bad_rows(triton: Triton, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.py"
    hooks.write_text(
        "import numpy as np\n\n\ndef prepare(value):\n    return np.array([value['n']], np.float32)\n\n\n"
        "def finish(outputs):\n    return {'square': float(outputs['y'][0, 0]), 'even': bool(outputs['y'][0, 0] % 2 == 0)}\n"
    )
    lines = [json.dumps({"n": n}) for n in range(60)]
    lines[7], lines[9] = "no json", '{"m": 1}'
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    batch = recipe(
        triton,
        tmp_path / "rows.jsonl",
        tmp_path / "out",
        prepare=f"{hooks}:prepare",
        finish=f"{hooks}:finish",
        workers=2,
    )
    status, progress = run(batch, tmp_path)
    assert (status, progress.done, progress.failed) == (0, 58, 2)
    assert stored(tmp_path / "out") == {
        n: {"square": float(n * n), "even": n % 2 == 0} for n in range(60) if n not in {7, 9}
    }
    failures = [json.loads(line) for line in (tmp_path / "out" / "failures.jsonl").read_text().splitlines()]
    assert [failure["row"] for failure in failures] == [7, 9]
    assert failures[0]["failure"].startswith("not JSON")
    assert failures[1]["failure"] == "hooks.py, line 5: KeyError: 'n'"


def test_files_of_a_folder_are_rows_with_their_names(triton: Triton, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for n in range(12):
        np.save(tmp_path / "set" / f"{n:02d}.npy", np.array([n], np.float32))
    (tmp_path / "set" / "03.npy").write_bytes(b"broken")
    batch = recipe(triton, tmp_path / "set", tmp_path / "out", output_format="Npz")
    status, progress = run(batch, tmp_path)
    assert (status, progress.done, progress.failed) == (0, 11, 1)
    with np.load(tmp_path / "out" / "part-00000.npz") as archive:
        assert archive["name"].tolist() == [f"{n:02d}.npy" for n in range(12) if n != 3]
        assert archive["y"][:, 0].tolist() == [float(n * n) for n in range(12) if n != 3]


def test_a_runner_waits_for_its_model_and_says_why(triton: Triton, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((5, 1), np.float32))
    runner = start(recipe(triton, tmp_path / "rows.npz", tmp_path / "out", model="none"), tmp_path)
    while not (tmp_path / "out" / "batch.json").exists():
        time.sleep(0.05)
        assert runner.poll() is None
    time.sleep(1)
    runner.terminate()
    assert runner.wait(15 * PATIENCE) == 75
    progress = BatchProgress.from_json((tmp_path / "termination-log").read_text())
    assert "unknown model" in progress.waiting


def test_a_runner_waits_after_a_rejection_and_repeats_what_broke(triton: Triton, tmp_path: Path) -> None:
    """A relay stands for the balancers: it rejects two requests, and reports two servers that ended."""
    seen: list[tuple[float, dict[str, str]]] = []
    rejected: list[float] = []

    async def relay(request: web.Request) -> web.Response:
        body = await request.read()
        url = f"http://{triton.address}:{HTTP_PORT}{request.path}"
        if request.method == "POST":
            seen.append((time.monotonic(), dict(request.headers)))
            if len(seen) in {10, 40}:
                rejected.append(time.monotonic())
                return web.json_response({"error": "no room"}, status=503, headers={"Retry-After": "1"})
            if len(seen) in {20, 50}:
                return web.json_response({"error": "the server closed the connection"}, status=502)
        names = ("Content-Type", "Inference-Header-Content-Length")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=body, headers=headers) as answer,
        ):
            kept = {name: answer.headers[name] for name in names if name in answer.headers}
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    values = np.arange(800, dtype=np.float32).reshape(-1, 1)
    np.savez(tmp_path / "rows.npz", x=values)
    routes: dict[tuple[str, str], Any] = {("*", "/{path:.*}"): relay}
    with serving(routes) as address:
        batch = replace(
            recipe(triton, tmp_path / "rows.npz", tmp_path / "out"), url=f"http://{address}", max_failures=0
        )
        status, progress = run(batch, tmp_path)

    assert (status, progress.done, progress.failed) == (0, 800, 0)
    assert stored(tmp_path / "out") == dict(enumerate((values * values)[:, 0].tolist()))
    assert len(rejected) == 2
    for at in rejected:
        # Requests that were on their way may still arrive.
        assert not [at_s for at_s, _ in seen if at + 0.25 < at_s < at + 0.7]
    assert {headers["halcyon-batch"] for _, headers in seen} == {"b"}
    assert {int(headers["halcyon-batch-rows"]) for _, headers in seen} <= set(range(1, 9))
