"""Row 2.4: the measurement of a served model ends soon after its clients suffer.

python -m benchmarks.measure.live [2.4]
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton, Work
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from halcyon_cli.bench import live_steps
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.schedule.scenario import Scenario

RUNS = int(os.environ.get("RUNS", "10"))


class Clients(threading.Thread):
    """Clients of a served model, each of which sends again 50 ms after its answer, and their latencies."""

    def __init__(self, triton: Triton) -> None:
        super().__init__(daemon=True)
        self._url = f"http://{triton.address}:{HTTP_PORT}/v2/models/m/infer"
        self._body = json.dumps({"inputs": [_tensor(triton)]}).encode()
        self._ends = threading.Event()
        self.answers: list[tuple[float, float]] = []
        """(time of the answer, latency), both in seconds."""

    def run(self) -> None:
        """Send until `end` is called."""
        workers = [threading.Thread(target=self._send, daemon=True) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _send(self) -> None:
        while not self._ends.is_set():
            began = time.monotonic()
            request = urllib.request.Request(self._url, self._body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            ended = time.monotonic()
            self.answers.append((ended, ended - began))
            time.sleep(0.05)

    def end(self) -> None:
        """End after the requests in flight."""
        self._ends.set()
        self.join()

    def windows(self) -> list[tuple[float, float]]:
        """Return (end, P95) of each window of 2 s that ends every quarter of a second, in seconds."""
        rows = sorted(self.answers)
        ends = np.arange(rows[0][0] + 2.0, rows[-1][0], 0.25)
        windows = [(float(end), [latency for at, latency in rows if end - 2.0 < at <= end]) for end in ends]
        return [(end, float(np.percentile(latencies, 95))) for end, latencies in windows if len(latencies) >= 10]

    def crossing(self, bound_s: float, ended_s: float) -> float | None:
        """Return when the clients' P95 exceeded a bound for good: the begin of the stretch that lasts until the load ended.

        A window that exceeds it and recovers is noise of the machine, which the load shares with the clients and the server.
        None if the P95 was within the bound when the load ended.
        """
        crossed = None
        for end, p95 in self.windows():
            if end > ended_s:
                break
            crossed = (crossed if crossed is not None else end) if p95 > bound_s else None
        return crossed


def _tensor(triton: Triton) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{triton.address}:{HTTP_PORT}/v2/models/m", timeout=5) as answer:
        (tensor,) = json.loads(answer.read())["inputs"]
    shape = [1 if size < 0 else size for size in tensor["shape"]]
    zeros = np.zeros(shape).ravel().tolist()
    return {"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": zeros}


def row_4() -> Row:
    """Load served models until their clients suffer; return the seconds from the clients' crossing to the end of the load."""
    raw: list[dict[str, Any]] = []
    for number in range(RUNS):
        t0 = (10.0, 20.0, 40.0)[number % 3]
        with tritons.running([Work("m", t0_ms=t0, a_ms=0.01, max_batch=1)]) as (triton,):
            address = target.parse(
                f"http://{triton.address}:{HTTP_PORT}", api="kserve", transport=None, encoding=None, model="m"
            )
            prepared = Measurement(target=address, scenario=Scenario(seed=number + 1)).prepare()
            clients = Clients(triton)
            clients.start()
            time.sleep(2.0)
            bound = 8 * t0 / 1000
            _, _, why = live_steps.run(prepared, bound, lambda _: None)
            ended = time.monotonic()
            clients.end()
        crossed = clients.crossing(bound, ended)
        record = {"t0_ms": t0, "bound_s": bound, "after_s": None if crossed is None else ended - crossed, "why": why}
        raw.append(record | {"p95_s": [(round(end - ended, 2), round(p95, 4)) for end, p95 in clients.windows()]})
    # A run that ends before clients cross the bound has ended in time, too.
    good = sum(bool(run["why"]) and (run["after_s"] is None or run["after_s"] <= 5.0) for run in raw)
    late = [run["after_s"] for run in raw if run["after_s"] is not None]
    return Row(
        id="2.4",
        what="`--live` on a model that suffers: seconds from the clients' crossing to the end of the load",
        value={"within_5_s": good, "runs": len(raw), "longest_s": round(max(late), 2) if late else None},
        target="ends within 5 s of the crossing, 10 of 10",
        limits=[("within_5_s", 10, ">=")],
        command="python -m benchmarks.measure.live 2.4",
        stand_ins="a Python model that sleeps stands in for a GPU",
        why="" if RUNS >= 10 else f"{RUNS} runs instead of 10",
        n=len(raw),
        law="10, 20 and 40 ms, unbatched",
        load="4 clients, and the steps of --live",
        raw=raw,
    )


ROWS: Mapping[str, Callable[[], Row]] = {"2.4": row_4}


def main(arguments: Sequence[str]) -> int:
    """Measure the row."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
