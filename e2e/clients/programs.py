"""The programs perf_analyzer, PyTriton's ModelClient and MLPerf's LoadGen.

`requirements.lock` in this folder pins them, and scripts/clients-site installs them. perf_analyzer is built for Debian
13 and newer, so it uses the C library of the file tree with the tests' HAProxy.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.balancer import real_haproxy

_REPOSITORY = Path(__file__).resolve().parents[2]
_LIMIT_S = 180
_MODEL_CLIENT = """
import json, sys
import numpy as np
from pytriton.client import ModelClient

url, model, name, rows, width = sys.argv[1:]
with ModelClient(url, model, lazy_init=False, init_timeout_s=30, inference_timeout_s=30) as client:
    answer = client.infer_batch(**{name: np.zeros((int(rows), int(width)), np.float32)})
    shapes = {output: list(array.shape) for output, array in answer.items()}
    print(json.dumps({"model": client.model_config.model_name, "shapes": shapes}))
"""

_LOADGEN = """
import json, sys, tempfile, threading
import mlperf_loadgen as lg
import numpy as np
import tritonclient.grpc as grpc

url, model, scenario, seconds, rate, seed = sys.argv[1:]
client = grpc.InferenceServerClient(url)
metadata = client.get_model_metadata(model)
tensors = []
for declared in metadata.inputs:
    shape = [1 if size < 0 else size for size in declared.shape]
    tensors.append(grpc.InferInput(declared.name, shape, declared.datatype))
    tensors[-1].set_data_from_numpy(np.zeros(shape, np.float32))
failures = []


def done(identity):
    def complete(result, error):
        if error is not None:
            failures.append(str(error))
        lg.QuerySamplesComplete([lg.QuerySampleResponse(identity, 0, 0)])
    return complete


def issue(samples):
    for sample in samples:
        client.async_infer(model, tensors, done(sample.id))


settings = lg.TestSettings()
settings.scenario = getattr(lg.TestScenario, scenario)
settings.mode = lg.TestMode.PerformanceOnly
settings.min_duration_ms = int(1000 * float(seconds))
settings.min_query_count = 1
settings.schedule_rng_seed = int(seed)
if scenario == "Server":
    settings.server_target_qps = float(rate)
    settings.server_target_latency_ns = 10**10
with tempfile.TemporaryDirectory() as folder:
    logs = lg.LogSettings()
    logs.log_output.outdir = folder
    logs.log_output.copy_summary_to_stdout = False
    logs.enable_trace = False
    sut = lg.ConstructSUT(issue, lambda: None)
    library = lg.ConstructQSL(1, 1, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, library, settings, logs)
    lg.DestroyQSL(library)
    lg.DestroySUT(sut)
    summary = dict(
        (part.strip() for part in line.split(":", 1))
        for line in open(f"{folder}/mlperf_log_summary.txt") if ":" in line
    )
if failures:
    sys.exit(f"{len(failures)} requests failed, for example: {failures[0]}")
results = {name: float(summary[f"{share} percentile latency (ns)"]) / 1e6
           for name, share in (("p50_ms", "50.00"), ("p90_ms", "90.00"), ("p99_ms", "99.00"))}
results["summary"] = summary
print(json.dumps(results))
"""


class ClientError(Exception):
    """A client that could not be installed, or failed. The message has the end of its output."""


@cache
def _site() -> Path:
    return Path(_run([str(_REPOSITORY / "scripts" / "clients-site")]).strip())


def perf_analyzer_command() -> list[str]:
    """Return the command that runs perf_analyzer with the C library of Debian 13."""
    tree = real_haproxy.root()
    [loader] = (tree / "usr/lib").glob("*/ld-linux-*.so.*")
    program = _site() / "perf_analyzer" / "bin" / "perf_analyzer"
    return [str(loader), "--library-path", str(loader.parent), str(program)]


def perf_analyzer(*arguments: str) -> str:
    """Run perf_analyzer, and return its report.

    Raises:
        ClientError: it failed.
    """
    return _run([*perf_analyzer_command(), *arguments])


def model_client(url: str, model: str, *, name: str, rows: int, width: int) -> dict[str, Any]:
    """Return the model's name in its configuration and the shapes of its outputs for rows of zeros, from ModelClient.

    Raises:
        ClientError: it failed.
    """
    command = [sys.executable, "-W", "ignore", "-c", _MODEL_CLIENT, url, model, name, str(rows), str(width)]
    answer: dict[str, Any] = json.loads(_run(command, PYTHONPATH=str(_site())))
    return answer


def loadgen(
    url: str, model: str, *, scenario: str, seconds: float, rate_rps: float = 0.0, seed: int = 1
) -> dict[str, Any]:
    """Return the percentiles of a run of LoadGen over gRPC, in ms, and its summary.

    Raises:
        ClientError: it failed, or a request did.
    """
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        _LOADGEN,
        url,
        model,
        scenario,
        str(seconds),
        str(rate_rps),
        str(seed),
    ]
    results: dict[str, Any] = json.loads(_run(command, PYTHONPATH=str(_site())).splitlines()[-1])
    return results


def _run(command: list[str], **environment: str) -> str:
    try:
        completed = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"{command[0]} did not end within {_LIMIT_S} s") from error
    if completed.returncode:
        output = f"{completed.stdout[-1000:]}\n{completed.stderr[-1000:]}".strip()
        raise ClientError(f"{' '.join(command)[:200]} ended with status {completed.returncode}: {output}")
    return completed.stdout
