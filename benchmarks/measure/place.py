"""Rows of section 2: a measurement in the cluster hurts no client, and leaves nothing.

python -m benchmarks.measure.place [ROW...]

Rows 2.1 and 2.2 need the embedded cluster, 2.3 its control plane, 2.4 only Triton.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton, Work
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from demo import models, setup
from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.options import Options
from e2e.cluster.progress import say
from halcyon.kube import kinds
from halcyon_cli.bench import live_steps
from halcyon_cli.bench.place.client_job import JOB
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.schedule.scenario import Scenario
from tests.integration.operator_process import running
from tests.integration.operator_space import Space

CLUSTER = "bench-place"
KILLS = int(os.environ.get("KILLS", "20"))
RUNS = int(os.environ.get("RUNS", "10"))
REQUESTS = int(os.environ.get("REQUESTS", "10000"))
_GONE_S = 300.0
_STAND_IN = "a Python model that sleeps stands in for a GPU"


def command(*arguments: str, kubeconfig: Path) -> list[str]:
    """Return the command line of `halcyon ARGUMENTS` for this cluster."""
    return [sys.executable, "-m", "halcyon.main", *arguments, "--kubeconfig", str(kubeconfig)]


@contextmanager
def embedded() -> Iterator[setup.Installed]:
    """Run the embedded cluster with the chart and the digits model."""
    try:
        on = setup.install(CLUSTER, step=lambda title: say(f"measure: {title}"))
        manifest = "\n---\n".join(map(models.as_text, models.documents().values()))
        on.kube("apply", "-f", "-", stdin=manifest)
        models.wait_until_served(on.kube, models.DIGITS)
        yield on
    finally:
        setup.remove(CLUSTER, step=lambda title: say(f"measure: {title}"))


def row_1() -> Row:
    """Time of `halcyon bench digits` to its answer, first and again."""
    with embedded() as on:
        times, said = [], []
        for _ in range(2):
            began = time.monotonic()
            done = subprocess.run(
                command("bench", "digits", "-o", "json", kubeconfig=on.kube.kubeconfig),
                capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
            times.append(time.monotonic() - began)
            document = json.loads(done.stdout) if done.stdout.strip().startswith("{") else None
            said.append({"status": done.returncode, "stderr": done.stderr[-500:], "document": document})
    valid = [one["document"] is not None and one["status"] in {0, 1} for one in said]
    return Row(
        id="2.1",
        what="demo cluster: `halcyon bench digits` to its answer, the first time and again",
        value={
            "first_s": round(times[0], 1) if valid[0] else None,
            "again_s": round(times[1], 1) if valid[1] else None,
        },
        target="<= 150 s, again <= 90 s",
        limits=[("first_s", 150.0, "<="), ("again_s", 90.0, "<=")],
        command="python -m benchmarks.measure.place 2.1",
        stand_ins=_STAND_IN,
        n=2,
        law="5 + 0.5 b ms, batch 16",
        load="one caller, 10 s",
        raw=said,
    )


def row_2(rate: float = 30.0) -> Row:
    """A live model at half its capacity, alone and while its copy is at the limit."""
    with embedded() as on:
        address = on.kube.must_address("digits", models.HTTP_PORT)
        seconds = REQUESTS / 2 / rate
        load = command(
            "bench", "--url", f"http://{address}", "--model", "digits", "--rate", f"{rate:g}", "--duration",
            f"{seconds:.0f}s", "--warm-up", "3s", "-o", "json", kubeconfig=on.kube.kubeconfig,
        )  # fmt: skip
        before = on.kube.model("digits") or {}
        alone = json.loads(subprocess.run(load, capture_output=True, text=True, check=False).stdout)
        beside = subprocess.Popen(load, stdout=subprocess.PIPE, text=True)
        copied = subprocess.Popen(
            command("bench", "digits", "--callers", "64", "--duration", f"{max(seconds - 30, 10):.0f}s", "-o", "json", kubeconfig=on.kube.kubeconfig),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        during = json.loads(beside.communicate()[0])
        said = copied.communicate()[0]
        after = on.kube.model("digits") or {}
    failed = sum(one["requests"]["due"] - one["requests"]["answered"] for one in (alone, during))
    p99 = [one["latency"]["p99"]["value"] for one in (alone, during)]
    same = before["metadata"]["generation"] == after["metadata"]["generation"]
    return Row(
        id="2.2",
        what="a live model at half its capacity while its copy is at the limit",
        value={
            "p99_more_percent": round(100 * (p99[1] / p99[0] - 1), 1) if all(p99) else None,
            "failed": failed,
            "requests": alone["requests"]["due"] + during["requests"]["due"],
            "changes": 0 if same else 1,
        },
        target="live P99 +<= 10 %, 0 of 10,000 failed, 0 changes of its object",
        limits=[("p99_more_percent", 10.0, "<="), ("failed", 0, "=="), ("changes", 0, "=="), ("requests", 10000, ">=")],
        command="python -m benchmarks.measure.place 2.2",
        stand_ins=_STAND_IN + "; model, copy, both clients and the control plane share two cores",
        why="" if REQUESTS >= 10000 else f"{REQUESTS} requests instead of 10,000",
        n=REQUESTS,
        law="5 + 0.5 b ms, batch 16",
        load=f"Poisson, {rate:g}/s, beside 64 callers on the copy",
        raw={"alone": alone, "during": during, "copy": said[-2000:]},
    )


def row_3() -> Row:
    """Commands that are killed at random moments: what is left, and for how long."""
    seed = random.Random(43)
    name = f"{CLUSTER}-{os.getpid()}"
    gone: dict[str, float | None] = {}
    changed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster: Cluster = clusters.up(name, Options(control_plane_only=True))
            space = Space(cluster.api, "default")
            with running(cluster, Path(folder), watch="default"):
                space.make()
                served = [f"m{number}" for number in range(KILLS)]
                for model in served:
                    space.serve(model, traffic={"mode": "Direct"})
                before = {
                    model: space.must(kinds.MODEL_DEPLOYMENT, model)["metadata"]["generation"] for model in served
                }
                killed = {model: _killed(model, cluster, seed.uniform(1.0, 8.0)) for model in served}
                gone = _watched(space, killed)
                changed = [
                    model
                    for model in served
                    if space.must(kinds.MODEL_DEPLOYMENT, model)["metadata"]["generation"] != before[model]
                ]
        finally:
            clusters.down(name)
    times = [seconds for seconds in gone.values() if seconds is not None]
    return Row(
        id="2.3",
        what="commands killed at random moments: seconds until nothing is left, the original untouched",
        value={
            "kills": len(gone),
            "left": sum(seconds is None for seconds in gone.values()),
            "longest_s": round(max(times), 1) if times else None,
            "originals_changed": len(changed),
        },
        target="nothing left after 5 min, 20 of 20",
        limits=[("kills", 20, ">="), ("left", 0, "=="), ("longest_s", _GONE_S, "<="), ("originals_changed", 0, "==")],
        command="python -m benchmarks.measure.place 2.3",
        stand_ins="KWOK's pods; commands are killed, Jobs and nodes are not",
        why="" if KILLS >= 20 else f"{KILLS} kills instead of 20",
        n=len(gone),
        raw={"gone_s": gone, "changed": changed},
    )


def _killed(model: str, cluster: Cluster, after_s: float) -> float:
    """Start a measurement of a model, kill its command after a time, and return the moment."""
    process = subprocess.Popen(
        [*command("bench", model, "--start-timeout", "5m", "--bench-image", "localhost/halcyon-bench:dev", kubeconfig=cluster.kubeconfig), "-n", "default"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return time.monotonic()


def _watched(space: Space, killed: Mapping[str, float]) -> dict[str, float | None]:
    """Return the seconds from each kill until nothing was left of its measurement; None if something is after the limit."""
    gone: dict[str, float | None] = dict.fromkeys(killed)
    every = (JOB, kinds.MODEL_DEPLOYMENT, kinds.DEPLOYMENT, kinds.SERVICE, kinds.CONFIG_MAP, kinds.POD)
    while any(gone[model] is None and time.monotonic() - at < _GONE_S for model, at in killed.items()):
        present = {obj["metadata"]["name"] for kind in every for obj in space.every(kind)}
        for model, at in killed.items():
            if gone[model] is None and not any(name.startswith(f"{model}-bench") for name in present):
                gone[model] = time.monotonic() - at
            elif any(name.startswith(f"{model}-bench") for name in present):
                gone[model] = None
        time.sleep(1.0)
    return gone


class Clients(threading.Thread):
    """Clients of a served model, each of which sends again 50 ms after its answer, and what they had to bear."""

    def __init__(self, triton: Triton) -> None:
        super().__init__(daemon=True)
        self._url = f"http://{triton.address}:{HTTP_PORT}/v2/models/m/infer"
        self._body = json.dumps({"inputs": [_tensor(triton)]}).encode()
        self._ends = threading.Event()
        self.seen: list[tuple[float, float]] = []
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
            self.seen.append((ended, ended - began))
            time.sleep(0.05)

    def end(self) -> None:
        """End after the requests in flight."""
        self._ends.set()
        self.join()

    def windows(self) -> list[tuple[float, float]]:
        """Return (end, P95) of each window of 2 s that ends every quarter of a second, in seconds."""
        rows = sorted(self.seen)
        ends = np.arange(rows[0][0] + 2.0, rows[-1][0], 0.25)
        found = [(float(end), [latency for at, latency in rows if end - 2.0 < at <= end]) for end in ends]
        return [(end, float(np.percentile(latencies, 95))) for end, latencies in found if len(latencies) >= 10]

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
        (one,) = json.loads(answer.read())["inputs"]
    shape = [1 if size < 0 else size for size in one["shape"]]
    zeros = np.zeros(shape).ravel().tolist()
    return {"name": one["name"], "datatype": one["datatype"], "shape": shape, "data": zeros}


def row_4() -> Row:
    """Served models with clients, loaded until they suffer: seconds from the clients' crossing to the end of the load."""
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
        said = {"t0_ms": t0, "bound_s": bound, "after_s": None if crossed is None else ended - crossed, "why": why}
        raw.append(said | {"p95_s": [(round(end - ended, 2), round(p95, 4)) for end, p95 in clients.windows()]})
    # A run that ends before clients cross the bound has ended in time, too.
    good = sum(bool(one["why"]) and (one["after_s"] is None or one["after_s"] <= 5.0) for one in raw)
    late = [one["after_s"] for one in raw if one["after_s"] is not None]
    return Row(
        id="2.4",
        what="`--live` on a model that suffers: seconds from the clients' crossing to the end of the load",
        value={"within_5_s": good, "runs": len(raw), "longest_s": round(max(late), 2) if late else None},
        target="ends within 5 s of the crossing, 10 of 10",
        limits=[("within_5_s", 10, ">=")],
        command="python -m benchmarks.measure.place 2.4",
        stand_ins=_STAND_IN,
        why="" if RUNS >= 10 else f"{RUNS} runs instead of 10",
        n=len(raw),
        law="10, 20 and 40 ms, unbatched",
        load="4 clients, and the steps of --live",
        raw=raw,
    )


ROWS: Mapping[str, Callable[[], Row]] = {"2.1": row_1, "2.2": row_2, "2.3": row_3, "2.4": row_4}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
