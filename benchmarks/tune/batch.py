"""Rows of batch inference on a real Triton: `python -m benchmarks.tune.batch [ROW...]`.

8.2   each row exactly once and equal to a direct run, after kills of runners and servers
8.3   the end that is estimated after a tenth of the rows
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton, Work
from benchmarks.quality.rows import Row, record
from halcyon.api.documents.batch_documents import PATH, BatchRecipe
from halcyon_batch.output_parts import rows_per_part
from tests.ports import free_ports

_COMMAND = "make bench-batch"
ROWS_COUNT, RUNNER_KILLS, SERVER_KILLS = 200_000, 24, 6
_LAW = Work("m", t0_ms=2, a_ms=0.2, max_batch=8)
_ETA_RUNS, _ETA_ROWS = 5, 30_000


class Door:
    """A TCP port that leads to the server that is set last, as a balancer's address stays when servers are replaced."""

    def __init__(self) -> None:
        self.server = ""
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self.port = 0
        threading.Thread(target=self._run, daemon=True).start()
        self._listening.wait()

    def _run(self) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._listening.set()
            await server.serve_forever()

        self._loop.run_until_complete(serve())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await asyncio.open_connection(self.server, HTTP_PORT)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, back_writer), _carry(back_reader, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(frozen=True)
class Place:
    """A data set, its results, and the door to the model."""

    folder: Path
    door: Door

    def recipe(self, **others: Any) -> BatchRecipe:
        """Return what a runner does."""
        return BatchRecipe(
            owner="bench",
            name="bench",
            model="m",
            url=f"http://127.0.0.1:{self.door.port}",
            input=str(self.folder / "rows.npz"),
            output=str(self.folder / "out"),
            input_format="",
            output_format="",
            max_rows=_LAW.max_batch,
            **others,
        )

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start a runner as its pod does."""
        own = {
            "HALCYON_PORT": str(port),
            "HALCYON_TERMINATION_LOG": str(self.folder / "log"),
            "PYTHONPATH": "operator:cli",
        }
        command = [sys.executable, "-m", "halcyon_batch", self.recipe().to_json()]
        return subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.DEVNULL)

    def parts(self) -> int:
        """Return the number of parts that are written."""
        return len(list((self.folder / "out").glob("part-*")))


@contextlib.contextmanager
def _place(rows: int) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="halcyon-batch-") as name:
        folder = Path(name)
        np.savez(folder / "rows.npz", x=np.arange(rows, dtype=np.float32).reshape(-1, 1))
        yield Place(folder, Door())


def _progress(port: int) -> Mapping[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{PATH}", timeout=2) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def once() -> list[Row]:
    """Row 8.2: kill runners and servers at random moments, and compare all rows with those of a direct run."""
    rng, kills = random.Random(82), {"runner": 0, "server": 0}
    began = time.monotonic()
    with _place(ROWS_COUNT) as place:
        plan = ["runner"] * RUNNER_KILLS + ["server"] * SERVER_KILLS
        rng.shuffle(plan)
        (port,) = free_ports(1)
        with contextlib.ExitStack() as stack:
            server = _serve(stack, place.door)
            runner = place.start(port)
            stack.callback(lambda: runner.kill())  # noqa: PLW0108  # whichever is the last
            # A kill after each share of the parts, so that all of them hit work.
            total = -(-ROWS_COUNT // rows_per_part(ROWS_COUNT, 4))
            for number, what in enumerate(plan, 1):
                while place.parts() < number * total // (len(plan) + 1) and runner.poll() is None:
                    time.sleep(0.02)
                time.sleep(rng.uniform(0.0, 0.2))
                if runner.poll() is not None:
                    break
                kills[what] += 1
                if what == "runner":
                    runner.kill()
                    runner.wait()
                    runner = place.start(port)
                else:
                    server.kill()
                    server = _serve(stack, place.door)
            status = runner.wait(600)
        rows, values = _stored(place.folder / "out")
    wanted = np.arange(ROWS_COUNT)
    seconds = time.monotonic() - began
    value = {
        "exit": status,
        "rows": len(rows),
        "lost": int(ROWS_COUNT - len(set(rows.tolist()))),
        "twice": int(len(rows) - len(set(rows.tolist()))),
        "differ": int((values != rows).sum()),
        "in_order": int(np.array_equal(np.sort(rows), rows) and np.array_equal(rows, wanted)),
        "kills": sum(kills.values()),
        "kinds": sum(count > 0 for count in kills.values()),
        "seconds": round(seconds, 1),
    }
    return [
        Row(
            id="8.2",
            what="each row of a batch exactly once, and equal to a direct run, after kills",
            value=value,
            target="200,000 rows, 30 kills of 8 kinds: none lost, none twice, none different, in order",
            limits=(("lost", 0, "=="), ("twice", 0, "=="), ("differ", 0, "=="), ("in_order", 1, "=="), ("rows", 200_000, ">="), ("kills", 30, ">="), ("kinds", 8, ">=")),
            command=_COMMAND,
            stand_ins="runners and servers are processes that SIGKILL ends; a TCP port stands for the balancers",
            why=(
                f"{ROWS_COUNT} rows and {sum(kills.values())} kills ({kills['runner']} of runners, {kills['server']} of servers): no operator, "
                "balancer, rollout, canary or scale to zero is among them yet"
            ),
            n=ROWS_COUNT,
            law="2 + 0.2 b ms, batch 8",
            load="the batch alone",
            raw={"plan": plan, "kills": kills},
        )
    ]  # fmt: skip


def end() -> list[Row]:
    """Row 8.3: the end that is estimated after a tenth of the rows, against the real one."""
    errors = []
    raw = []
    for _ in range(_ETA_RUNS):
        with _place(_ETA_ROWS) as place, contextlib.ExitStack() as stack:
            _serve(stack, place.door)
            (port,) = free_ports(1)
            runner = place.start(port)
            estimate: tuple[float, float] | None = None
            while runner.poll() is None:
                with contextlib.suppress(OSError, ValueError):
                    found = _progress(port)
                    if estimate is None and found["done"] >= _ETA_ROWS // 10 and found["left_s"]:
                        estimate = time.time(), found["left_s"]
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


def _serve(stack: contextlib.ExitStack, door: Door) -> Triton:
    (made,) = stack.enter_context(tritons.running([_LAW]))
    door.server = made.address
    return made


def _stored(output: Path) -> tuple[Any, Any]:
    """Return the numbers and the results of all rows, in the order of the parts."""
    rows, values = [], []
    for file in sorted(output.glob("part-*.npz")):
        with np.load(file) as archive:
            rows.append(archive["row"])
            values.append(archive["y"][:, 0])
    return np.concatenate(rows), np.concatenate(values)


ROWS: Mapping[str, Callable[[], list[Row]]] = {"8.2": once, "8.3": end}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    for row in itertools.chain.from_iterable(ROWS[name]() for name in arguments or ROWS):
        record("tune", [row])
        print(f"{row.id}: {json.dumps(row.value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
