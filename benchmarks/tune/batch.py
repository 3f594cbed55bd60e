"""Rows of batch inference on a real Triton: `python -m benchmarks.tune.batch [ROW...]`.

8.2   each row exactly once and equal to a direct run, after events of eight kinds (`batch_scene`)
8.3   the end that is estimated after a tenth of the rows
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane import ways
from benchmarks.dataplane.tritons import HTTP_PORT, Work
from benchmarks.quality.rows import Row, record
from benchmarks.right import overload
from benchmarks.tune.batch_scene import EVENTS, Door, Place, Scene, serve
from halcyon.api.documents.balancer_plan import BalancerPlan
from halcyon.api.documents.batch_documents import PATH
from halcyon_batch.output_parts import rows_per_part
from tests.ports import free_ports

_COMMAND = "make bench-batch"
ROWS_COUNT = int(os.environ.get("ROWS") or 200_000)
_LAW = Work(overload.MODEL, t0_ms=2, a_ms=0.2, max_batch=8)
_BALANCERS = 2
_ETA_RUNS, _ETA_ROWS = 5, 100_000
"""Runs of row 8.3, and rows of each. A tenth of the rows takes several seconds, as of any batch that runs for a minute."""


def _plan() -> BalancerPlan:
    """Return the plan of two balancers while a batch runs."""
    law = overload.Law(_LAW.t0_ms, _LAW.a_ms, _LAW.max_batch, 500)
    return replace(overload.plan(law, _BALANCERS), lower_class="Fill", instances=1)


@contextlib.contextmanager
def _place(rows: int) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="halcyon-batch-") as name:
        folder = Path(name)
        np.savez(folder / "rows.npz", x=np.arange(rows, dtype=np.float32).reshape(-1, 1))
        yield Place(folder, Door(), _LAW)


def _progress(port: int) -> Mapping[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{PATH}", timeout=2) as answer:
        progress: dict[str, Any] = json.loads(answer.read())
    return progress


async def _interrupted(place: Place, rng: random.Random) -> tuple[int, dict[str, int]]:
    """Run the batch through all events, and return the exit status of the last runner and the events by kind."""
    plan = [name for name, (count, _) in EVENTS.items() for _ in range(count)]
    rng.shuffle(plan)
    happened = dict.fromkeys(EVENTS, 0)
    # An event after each share of the parts, so that all of them hit work.
    total = -(-ROWS_COUNT // rows_per_part(ROWS_COUNT, 4))
    with contextlib.ExitStack() as stack:
        server = await asyncio.to_thread(serve, stack, _LAW)
        async with ways.balancers(_BALANCERS, _plan(), [server.address]) as balancers:
            place.door.ways = [("127.0.0.1", balancer.balanced.haproxy.ports.http) for balancer in balancers]
            scene = Scene(place, balancers, stack, server, rng)
            for number, name in enumerate(plan, 1):
                await asyncio.to_thread(scene.wait_parts, number * total // (len(plan) + 1))
                await asyncio.sleep(rng.uniform(0.0, 0.2))
                if scene.runner.poll() is not None:
                    break
                await EVENTS[name][1](scene)
                happened[name] += 1
            return await asyncio.to_thread(scene.runner.wait, 600), happened


def exactly_once() -> list[Row]:
    """Measure row 8.2: interrupt a batch at random moments, and compare all rows with those of a direct run."""
    began = time.monotonic()
    with _place(ROWS_COUNT) as place:
        status, happened = asyncio.run(_interrupted(place, random.Random(82)))
        rows, values = _stored(place.folder / "out")
    value = {
        "exit": status,
        "rows": len(rows),
        "lost": int(ROWS_COUNT - len(set(rows.tolist()))),
        "twice": int(len(rows) - len(set(rows.tolist()))),
        "differ": int((values != rows).sum()),
        "in_order": int(np.array_equal(rows, np.arange(ROWS_COUNT))),
        "kills": sum(happened.values()),
        "kinds": sum(count > 0 for count in happened.values()),
        "seconds": round(time.monotonic() - began, 1),
    }
    return [
        Row(
            id="8.2",
            what="each row of a batch exactly once, and equal to a direct run, after kills",
            value=value,
            target="200,000 rows, 30 kills of 8 kinds: none lost, none twice, none different, in order",
            limits=(("lost", 0, "=="), ("twice", 0, "=="), ("differ", 0, "=="), ("in_order", 1, "=="), ("rows", 200_000, ">="), ("kills", 30, ">="), ("kinds", 8, ">=")),
            command=_COMMAND,
            stand_ins=(
                "runners, servers, and two balancers with their agents are processes; the agents' API server is that of the integration "
                "tests; a TCP port stands for the Service; a node that is cut off is a runner that stops and goes on beside its successor"
            ),
            why="no operator, canary or change of the autoscaler is among the kinds, which need a cluster",
            n=ROWS_COUNT,
            law="2 + 0.2 b ms, batch 8",
            load="the batch alone",
            raw={"events": happened},
        )
    ]  # fmt: skip


def estimated_end() -> list[Row]:
    """Measure row 8.3: the end that is estimated after a tenth of the rows, against the real one."""
    errors = []
    raw = []
    for _ in range(_ETA_RUNS):
        with _place(_ETA_ROWS) as place, contextlib.ExitStack() as stack:
            place.door.ways = [(serve(stack, _LAW).address, HTTP_PORT)]
            (port,) = free_ports(1)
            runner = place.start(port)
            estimate: tuple[float, float] | None = None
            while runner.poll() is None:
                with contextlib.suppress(OSError, ValueError):
                    progress = _progress(port)
                    if estimate is None and progress["done"] >= _ETA_ROWS // 10 and progress["left_s"]:
                        estimate = time.time(), progress["left_s"]
                time.sleep(0.05)
            # The manifest is written last: what follows is the end of the process.
            ended = (place.folder / "out" / "batch.json").stat().st_mtime
            assert estimate is not None
            real = ended - estimate[0]
            errors.append(abs(estimate[1] - real) / real)
            raw.append({"estimated_s": estimate[1], "real_s": real})
    return [
        Row(
            id="8.3",
            what="end of a batch, estimated after a tenth of the rows",
            value={"worst_error": round(max(errors), 3), "runs": len(errors)},
            target="within 20 % of the truth, 5 runs",
            limits=(("worst_error", 0.2, "<="), ("runs", 5, ">=")),
            command=_COMMAND,
            stand_ins="runners and servers are processes",
            why="" if max(errors) <= 0.2 else "the rate changes during a run, on two cores that other work shares",
            n=len(errors),
            law="2 + 0.2 b ms, batch 8",
            load="the batch alone",
            raw=raw,
        )
    ]


def _stored(output: Path) -> tuple[Any, Any]:
    """Return the numbers and the results of all rows, in the order of the parts."""
    rows, values = [], []
    for file in sorted(output.glob("part-*.npz")):
        with np.load(file) as archive:
            rows.append(archive["row"])
            values.append(archive["y"][:, 0])
    return np.concatenate(rows), np.concatenate(values)


ROWS: Mapping[str, Callable[[], list[Row]]] = {"8.2": exactly_once, "8.3": estimated_end}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    for row in itertools.chain.from_iterable(ROWS[name]() for name in arguments or ROWS):
        record("tune", [row])
        print(f"{row.id}: {json.dumps(row.value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
