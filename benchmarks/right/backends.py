"""Section 3: a request that is merely wrong takes no pod out, and a dead backend is out within 3 s and repaired.

`python -m benchmarks.right.backends [ROW...] [--kinds KIND...] [--replicas N...] [--again]`. Real Triton servers;
`backend_pods` says what stands in for the rest. Row 3.2 is recorded after each of its 15 cases, which take about 25 s each, and
goes on where the last run on this machine has ended; `--again` measures known cases, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.dataplane.leftovers import ended
from benchmarks.quality.rows import Row, commit, raw, record
from benchmarks.right.backend_pods import Fleet, infer, running

STAND_INS = (
    "the kubelet (probes and restarts with the rendered periods), the API server (an order arrives after 1.5 s), "
    "balancers (requests go in turn to pods that are not out)"
)
_CONFIG = """backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
dynamic_batching {{ }}
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
"""
_MODEL = """import os
import time

import numpy
import triton_python_backend_utils as pb_utils

FIRST_S = {first_s}


class TritonPythonModel:
    # 1: answer. -1: the stub exits. -2: from now on every request fails. -3: the stub needs more memory than there is.
    # -4: an exception for this request.
    broken = False
    started = False

    def execute(self, requests):
        if not self.started:
            self.started = True
            time.sleep(FIRST_S)
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            value = float(x.flat[0])
            if value == -1:
                os._exit(139)
            if value == -3:
                memory = [numpy.ones(2**27) for _ in range(64)]
            self.broken = self.broken or value == -2
            if self.broken:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            if value == -4:
                raise ValueError("x must not be negative")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return responses
"""
_OOM_LIMIT = 512 * 2**20
_KINDS = ("stub killed", "stub's exit", "OOM of the stub", "one stub of four", "every request fails")
REPLICAS = (1, 2, 5)


def model(*, instances: int = 1, first_s: float = 0.0) -> Mapping[str, str]:
    """Return the files of a model that fails on request."""
    return {"config.pbtxt": _CONFIG.format(instances=instances), "1/model.py": _MODEL.format(first_s=first_s)}


async def wrong_requests(share: float, replicas: int, requests: int, *, first_s: float = 0.0) -> dict[str, Any]:
    """Send requests of which this share makes `execute` raise, and return how many pods were taken out."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="halcyon-right-") as folder:
        async with running(Path(folder), replicas, model(first_s=first_s)) as (fleet, session):
            limit = asyncio.Semaphore(16)
            statuses: list[int] = []

            async def send(value: float) -> None:
                async with limit:
                    statuses.append(await fleet.infer(session, value, 300.0))
                    await asyncio.sleep(chance.uniform(0.0, 0.1))

            began = time.monotonic()
            await asyncio.gather(*(send(-4.0 if chance.random() < share else 1.0) for _ in range(requests)))
            took_s = time.monotonic() - began
            await asyncio.sleep(3)
            return {
                "share": share,
                "replicas": replicas,
                "requests": requests,
                "first execution s": first_s,
                "failed": sum(status == 500 for status in statuses),
                "seconds": round(took_s, 1),
                "taken out": len(fleet.ever_out),
                "reported": len(fleet.failing),
            }


async def dead_backend(kind: str, replicas: int) -> dict[str, Any]:
    """Make a backend die under load, and return when its pod was out of both agents, restarted, and back.

    Times are counted from the first failed request.
    """
    instances = 4 if kind == "one stub of four" else 1
    limit_bytes = _OOM_LIMIT if kind == "OOM of the stub" else None
    with tempfile.TemporaryDirectory(prefix="halcyon-right-") as folder:
        async with running(Path(folder), replicas, model(instances=instances), memory_bytes=limit_bytes) as (
            fleet,
            session,
        ):
            loads = [asyncio.create_task(_load(fleet, session)) for _ in range(4 * instances)]
            try:
                await asyncio.sleep(6)
                return await _die(kind, fleet, session)
            finally:
                for load in loads:
                    load.cancel()
                await asyncio.gather(*loads, return_exceptions=True)


async def _load(fleet: Fleet, session: aiohttp.ClientSession) -> None:
    while True:
        await fleet.infer(session, 1.0)
        await asyncio.sleep(0.02)


async def _die(kind: str, fleet: Fleet, session: aiohttp.ClientSession) -> dict[str, Any]:
    pod = next(iter(fleet.pods.values()))
    request: asyncio.Task[int] | None = None
    if kind in {"stub killed", "one stub of four"}:
        pod.kill_stub(sent_signal=signal.SIGKILL)
    else:
        value = {"stub's exit": -1.0, "OOM of the stub": -3.0, "every request fails": -2.0}[kind]
        request = asyncio.create_task(fleet.send(session, pod, value))
    await _until(lambda: pod.name in fleet.out_at, 30)
    await _until(lambda: pod.restarts > 0, 60)
    failed_at = fleet.failed_at[pod.name]
    reason, note = fleet.events.recorded[0].message, pod.termination_message
    await _until(lambda: pod in fleet.candidates(), 90)
    status = await infer(session, pod, 1.0)
    if request is not None:
        request.cancel()
    return {
        "kind": kind,
        "replicas": len(fleet.pods),
        "out s": round(fleet.out_at[pod.name] - failed_at, 2),
        "restart s": round(pod.times["restarted"] - failed_at, 2),
        "stages s": {name: round(at - failed_at, 2) for name, at in pod.times.items()},
        "answers again": status == 200,
        "others out": len(fleet.ever_out - {pod.name}),
        "reason": reason,
        "termination message": note,
        "named": _is_named(kind, reason),
    }


def _is_named(kind: str, reason: str) -> bool:
    words = {
        "stub killed": "signal 9",
        "stub's exit": "code 139",
        "OOM of the stub": "OOM",
        "one stub of four": "signal 9",
        "every request fails": "CUDA error",
    }
    return words[kind] in reason


async def _until(condition: Any, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition has many writers
            await asyncio.sleep(0.01)


async def row_1(*, requests: int) -> None:
    """Record 3.1."""
    cases = [(share, replicas) for share in (0.001, 0.01, 0.1, 0.5, 1.0) for replicas in (3, 1)]
    runs = [await wrong_requests(share, replicas, requests // len(cases)) for share, replicas in cases]
    runs.append(await wrong_requests(0.0, 1, 50, first_s=120.0))
    for run in runs:
        print(run, flush=True)
    record(
        "right",
        [
            Row(
                "3.1",
                "pods taken out by wrong requests (0.1 % to 100 % of them; 3 replicas and 1), a first execution of 120 s",
                {"pods taken out": sum(run["taken out"] for run in runs)},
                "0 pods",
                [("pods taken out", 0, "<=")],
                "python -m benchmarks.right.backends 3.1",
                STAND_INS,
                "a backend whose success counter stays 0 is covered by a unit test: no such backend runs here",
                sum(run["requests"] for run in runs),
                "answers at once, batch 8",
                "16 at once",
                runs,
            )
        ],
    )


async def row_2(kinds: Sequence[str], replicas: Sequence[int], *, again: bool) -> None:
    """Measure the cases of 3.2 that earlier runs have not measured, and record the row after each."""
    by_case = {(run["kind"], run["replicas"]): run for run in raw("right", "3.2") or () if "error" not in run}
    for kind, count in itertools.product(kinds, replicas):
        if (kind, count) in by_case and not again:
            continue
        began = time.monotonic()
        try:
            run = await dead_backend(kind, count)
        except (OSError, TimeoutError) as error:
            run = {"kind": kind, "replicas": count, "error": repr(error)}
        by_case[kind, count] = run | {"took s": round(time.monotonic() - began, 1), "commit": commit()}
        print(by_case[kind, count], flush=True)
        record("right", [_row_2([by_case[case] for case in itertools.product(_KINDS, REPLICAS) if case in by_case])])


def _row_2(runs: Sequence[dict[str, Any]]) -> Row:
    measured = [run for run in runs if "error" not in run]
    why = [f"{run['kind']} at {run['replicas']}: {run['error']}" for run in runs if "error" in run]
    if len(runs) < len(_KINDS) * len(REPLICAS):
        why.append(f"{len(_KINDS) * len(REPLICAS) - len(runs)} cases are not measured yet")
    return Row(
        "3.2",
        "dead backends (stub killed, its exit, its OOM, one of four, every request fails; 1, 2 and 5 replicas): "
        "out within 3 s of the first failed request, its container started again within 10 s of that request, named",
        {
            "out in 3 s": sum(run["out s"] <= 3.0 for run in measured),
            "restarted in 10 s": sum(run["restart s"] <= 10.0 for run in measured),
            "repaired": sum(run["answers again"] for run in measured),
            "named": sum(run["named"] for run in measured),
            "others out": sum(run["others out"] for run in measured),
        },
        "15 of 15 each, and no other pod out",
        [
            *((name, 15, ">=") for name in ("out in 3 s", "restarted in 10 s", "repaired", "named")),
            ("others out", 0, "<="),
        ],
        "python -m benchmarks.right.backends 3.2",
        STAND_INS,
        "; ".join(why),
        len(runs),
        "answers at once, batch 8",
        "4 at once per instance",
        list(runs),
    )


def main() -> None:
    """Measure the rows that the command line names; default: all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=["3.1", "3.2"])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kinds", nargs="*", default=_KINDS)
    parser.add_argument("--replicas", nargs="*", type=int, default=REPLICAS)
    parser.add_argument(
        "--again", action="store_true", help="measure cases of 3.2 that earlier runs have measured, too"
    )
    options = parser.parse_args()
    with ended(), contextlib.suppress(KeyboardInterrupt):
        if "3.1" in options.rows:
            asyncio.run(row_1(requests=options.requests))
        if "3.2" in options.rows:
            asyncio.run(row_2(options.kinds, options.replicas, again=options.again))


if __name__ == "__main__":
    main()
