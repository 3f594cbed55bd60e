"""Judges of `halcyon bench`: the results of perf_analyzer, MLPerf's LoadGen and tritonclient on a server."""

from __future__ import annotations

import csv
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput

from benchmarks.dataplane.tritons import GRPC_PORT, HTTP_PORT, Triton
from e2e.clients import programs


@dataclass(frozen=True)
class Reading:
    """Result of one run of one program. A figure that the program doesn't have is None."""

    rate_rps: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


def perf_analyzer(triton: Triton, protocol: str, *options: str) -> Reading:
    """Run perf_analyzer on the server's model, and return the result of its table.

    Raises:
        ClientError: it failed.
    """
    port = GRPC_PORT if protocol == "grpc" else HTTP_PORT
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        address = f"{triton.address}:{port}"
        programs.perf_analyzer("-m", triton.model, "-u", address, "-i", protocol, "-f", str(table), *options)
        (row,) = csv.DictReader(table.open())
    return Reading(float(row["Inferences/Second"]), *(float(row[f"p{share} latency"]) / 1000 for share in (50, 90, 99)))


def loadgen(triton: Triton, scenario: str, *, seconds: float, rate_rps: float = 0.0, seed: int = 1) -> Reading:
    """Run LoadGen's scenario `Server` or `SingleStream`; its calls are those of tritonclient over gRPC.

    Raises:
        ClientError: it failed.
    """
    figures = programs.loadgen(
        triton.grpc, triton.model, scenario=scenario, seconds=seconds, rate_rps=rate_rps, seed=seed
    )
    return Reading(figures.get("rate_rps"), figures.get("p50_ms"), figures.get("p90_ms"), figures.get("p99_ms"))


def stalled(triton: Triton, *, seconds: float, rate_rps: float, service_s: float, asynchronous: bool) -> float | None:
    """Return perf_analyzer's P99 in seconds for a Poisson load on a model whose input is its execution time."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.json"
        data.write_text(json.dumps({"data": [{"seconds": [service_s]}]}))
        reading = perf_analyzer(
            triton,
            "grpc",
            f"--input-data={data}",
            f"--request-rate-range={rate_rps:g}",
            "--request-distribution=poisson",
            f"--request-count={int(seconds * rate_rps)}",
            *(("--async",) if asynchronous else ("--sync",)),
        )
    return None if reading.p99_ms is None else reading.p99_ms / 1000


def blocking(triton: Triton, seconds: Iterable[float]) -> list[float]:
    """Return the seconds that blocking calls of tritonclient take, on a model whose input is its execution time."""
    durations_s = []
    tensor = InferInput("seconds", [1], "FP32")
    with InferenceServerClient(triton.grpc) as client:
        client.is_server_live()  # connects
        for duration_s in seconds:
            tensor.set_data_from_numpy(np.array([duration_s], np.float32))
            began = time.monotonic()
            client.infer(triton.model, [tensor])
            durations_s.append(time.monotonic() - began)
    return durations_s
