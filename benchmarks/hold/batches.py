"""Operator's memory for 50 BatchInferences, for row 8.5 of the table `tune`: `python -m benchmarks.hold.batches`.

The models and their batches are real objects of an API server. The pods are KWOK's: they are Ready at once and run
nothing, so a batch runs without an end, and sends no requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.cost import rss_mib
from benchmarks.counts import Counts
from benchmarks.errors import BenchError
from benchmarks.fleet import create
from benchmarks.plane import Plane, namespace_of, plane
from benchmarks.quality.rows import OUT, commit
from e2e.cluster.progress import say
from halcyon.kube import kinds

BATCHES, MODELS = 50, 10
_PART = OUT / "raw" / "tune-8.5-memory.json"
_SETTLE_S = 45.0
"""Time after which the memory of models or batches is read, in seconds."""
_READ_S = 15.0
"""Time over which the memory is read, in seconds. Its median counts."""
_RUN_WITHIN_S = 400.0


@dataclass(frozen=True)
class BatchMemory:
    """Memory of the operator, in MiB."""

    models_mib: float
    """Memory with the models alone."""
    later_mib: float
    """Memory with the models alone, as much later as that with batches. It shows what time alone adds."""
    batches_mib: float
    """Memory with the models and all batches."""
    ended_mib: float
    """Memory after the batches were deleted."""
    batches: int
    models: int

    @property
    def added_mib(self) -> float:
        """Memory that the batches added."""
        return round(self.batches_mib - self.later_mib, 2)


def measured(batches: int = BATCHES, models: int = MODELS) -> BatchMemory:
    """Run an operator with these models, then also with batches of them, and return its memory.

    A measurement of this commit is not repeated.

    Raises:
        BenchError: the models aren't served, or the batches don't run.
    """
    if _PART.exists() and (stored := json.loads(_PART.read_text()))["commit"] == commit():
        memory = BatchMemory(**stored["memory"])
        if (memory.batches, memory.models) == (batches, models):
            return memory
    options = ("--bench-image=localhost/halcyon-bench:dev",)
    with plane(hpa_sync_s=15, pods=4 * models + batches, options=options) as control_plane:
        memory = asyncio.run(_measured(control_plane, batches, models))
    _PART.parent.mkdir(parents=True, exist_ok=True)
    _PART.write_text(json.dumps({"commit": commit(), "memory": asdict(memory)}))
    say(f"batches: {asdict(memory)}, so {memory.added_mib} MiB more")
    return memory


async def _measured(plane: Plane, batches: int, models: int) -> BatchMemory:
    async with Counts(plane.kubeconfig, namespace_of) as counts:
        names = [f"m{number:03}" for number in range(models)]
        await create(counts, names)
        await counts.until_served(names, limit_s=_RUN_WITHIN_S)
        models_mib = await _memory(plane)
        later_mib = await _memory(plane)
        documents = [_batch(f"night-{number:03}", names[number % models]) for number in range(batches)]
        for document in documents:
            await counts.client.create(kinds.BATCH_INFERENCE, document, namespace=document["metadata"]["namespace"])
        await _until_running(counts, documents)
        batches_mib = await _memory(plane)
        for document in documents:
            await counts.client.delete(
                kinds.BATCH_INFERENCE, document["metadata"]["namespace"], document["metadata"]["name"]
            )
        ended_mib = await _memory(plane)
    return BatchMemory(models_mib, later_mib, batches_mib, ended_mib, batches, models)


def _batch(name: str, model: str) -> dict[str, Any]:
    """Return a BatchInference with data sets in buckets, so that its pod needs no volume."""
    credentials = {"secretName": "reader"}
    return {
        "apiVersion": kinds.BATCH_INFERENCE.api_version,
        "kind": kinds.BATCH_INFERENCE.kind,
        "metadata": {"name": name, "namespace": namespace_of(model)},
        "spec": {
            "modelDeployment": model,
            "input": {"uri": f"s3://sets/{name}.npz", "credentials": credentials, "sizeLimit": "1Gi"},
            "output": {"uri": f"s3://results/{name}", "credentials": credentials},
        },
    }


async def _until_running(counts: Counts, documents: Sequence[dict[str, Any]]) -> None:
    """Wait until each batch has the Job of its runner.

    Raises:
        BenchError: some have none in time. The message has the conditions of one of them.
    """
    end_s = time.monotonic() + _RUN_WITHIN_S
    missing: list[str] = []
    while time.monotonic() < end_s:
        missing = []
        for document in documents:
            name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
            job = await counts.client.get(kinds.JOB, namespace, f"{name}-batch")
            if job is None:
                missing.append(name)
        if not missing:
            return
        await asyncio.sleep(2.0)
    [namespace] = [doc["metadata"]["namespace"] for doc in documents if doc["metadata"]["name"] == missing[0]]
    batch = await counts.client.get(kinds.BATCH_INFERENCE, namespace, missing[0])
    status = (batch or {}).get("status")
    raise BenchError(
        f"{len(missing)} of {len(documents)} batches have no Job, for example {missing[0]}, whose status is {status}"
    )


async def _memory(plane: Plane) -> float:
    """Return the operator's memory once it has settled, in MiB."""
    await asyncio.sleep(_SETTLE_S)
    readings = []
    end_s = time.monotonic() + _READ_S
    while time.monotonic() < end_s:
        readings.append(rss_mib(plane.operator.pid))
        await asyncio.sleep(0.5)
    return round(median(readings), 2)


if __name__ == "__main__":
    measured()
    sys.exit(0)
