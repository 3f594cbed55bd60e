"""NVIDIA's perf_analyzer and MLPerf's LoadGen as judges of `halcyon bench`: their results on a server."""

from __future__ import annotations

import csv
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

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
    found = programs.loadgen(
        triton.grpc, triton.model, scenario=scenario, seconds=seconds, rate_rps=rate_rps, seed=seed
    )
    return Reading(found.get("rate_rps"), found.get("p50_ms"), found.get("p90_ms"), found.get("p99_ms"))


def stalled(triton: Triton, *, seconds: float, rate_rps: float, service_s: float, asynchronous: bool) -> float | None:
    """Return perf_analyzer's P99 in seconds for a Poisson load on a model whose input is its execution time."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.json"
        data.write_text(json.dumps({"data": [{"seconds": [service_s]}]}))
        found = perf_analyzer(
            triton,
            "grpc",
            f"--input-data={data}",
            f"--request-rate-range={rate_rps:g}",
            "--request-distribution=poisson",
            f"--request-count={int(seconds * rate_rps)}",
            *(("--async",) if asynchronous else ("--sync",)),
        )
    return None if found.p99_ms is None else found.p99_ms / 1000
