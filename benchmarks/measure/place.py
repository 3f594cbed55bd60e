"""Rows of section 2: a measurement in the cluster hurts no client, and leaves nothing.

python -m benchmarks.measure.place [ROW...]

Rows 2.1 and 2.2 need the embedded cluster, and 2.3 its control plane. Out of scope: row 2.4 (`live`).
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from demo import models, setup
from demo.kube import wait_for
from e2e.cluster import cluster as clusters
from e2e.cluster.cluster import Cluster
from e2e.cluster.options import Options
from e2e.cluster.progress import say
from halcyon.kube import kinds
from halcyon_cli.bench.place.client_job import BENCH_LABEL, JOB, job_name
from tests.integration.operator_process import running
from tests.integration.operator_space import Space

CLUSTER = "bench-place"
KILLS = int(os.environ.get("KILLS", "20"))
KILLED = ("command", "job", "node")
REQUESTS = int(os.environ.get("REQUESTS", "10000"))
_GONE_S = 300.0
_STAYS_GONE_S = 10.0
_LONGEST_RUN_S = 6.0
"""About the time from the first object of a measurement with KWOK's pods to its end, in seconds."""
_STAND_IN = "a Python model that sleeps stands in for a GPU"


def command(*arguments: str, kubeconfig: Path) -> list[str]:
    """Return the command line of `halcyon ARGUMENTS` for this cluster."""
    return [sys.executable, "-m", "halcyon.main", *arguments, "--kubeconfig", str(kubeconfig)]


@contextmanager
def embedded(deployed: Mapping[str, Any] | None = None) -> Iterator[setup.Installed]:
    """Run the embedded cluster with the chart and the digits model, or this ModelDeployment of it."""
    try:
        on = setup.install(CLUSTER, step=lambda title: say(f"measure: {title}"))
        documents = models.documents() | ({"ModelDeployment": dict(deployed)} if deployed is not None else {})
        manifest = "\n---\n".join(map(models.as_text, documents.values()))
        on.kube("apply", "-f", "-", stdin=manifest)
        models.wait_until_served(on.kube, models.DIGITS)
        # A copy is of the serving revision, which the operator records after the first answer.
        wait_for(lambda: _revision(on), what="the serving revision of digits", limit_s=60)
        yield on
    finally:
        setup.remove(CLUSTER, step=lambda title: say(f"measure: {title}"))


def _revision(on: setup.Installed) -> bool:
    status = (on.kube.model(models.DIGITS) or {}).get("status") or {}
    return bool((status.get("revision") or {}).get("current"))


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


def row_2(execution_s: float = 0.016) -> Row:
    """A live model at half its capacity, alone and while its copy is at the limit."""
    # A few more, because the number of Poisson arrivals is random.
    rate, seconds = 0.5 / execution_s, 1.03 * REQUESTS * execution_s
    deployed = models.variant(models.DIGITS, batching=False)
    deployed["spec"]["model"]["parameters"] = {"gpu_ms": f"{1000 * execution_s:g}"}
    with embedded(deployed) as on:
        address = on.kube.must_address("digits", models.HTTP_PORT)
        load = command(
            "bench", "--url", f"http://{address}", "--model", "digits", "--rate", f"{rate:g}", "--duration",
            f"{seconds:.0f}s", "--warm-up", "3s", "-o", "json", kubeconfig=on.kube.kubeconfig,
        )  # fmt: skip
        before = _served(on)
        alone = json.loads(subprocess.run(load, capture_output=True, text=True, check=False).stdout)
        # The copy's load begins while the model is loaded already, and ends after it.
        copied = subprocess.Popen(
            command(
                "bench", "digits", "--callers", "16", "--duration", f"{seconds:.0f}s", "-o", "json",
                kubeconfig=on.kube.kubeconfig,
            ),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        during = json.loads(subprocess.run(load, capture_output=True, text=True, check=False).stdout)
        copy = json.loads(copied.communicate()[0])
        after = _served(on)
    failed = sum(one["requests"]["due"] - one["requests"]["answered"] for one in (alone, during))
    p99 = [one["latency"]["p99"]["value"] for one in (alone, during)]
    busy = copy["batches"]["busy"]["value"]
    return Row(
        id="2.2",
        what="a live model at half its capacity while its copy is at the limit",
        value={
            "p99_more_percent": round(100 * (p99[1] / p99[0] - 1), 1) if all(p99) else None,
            "failed": failed,
            "requests": alone["requests"]["due"] + during["requests"]["due"],
            "changes": sum(before[name] != after[name] for name in before),
            "copy_busy_percent": None if busy is None else round(100 * busy, 1),
        },
        target="live P99 +<= 10 %, 0 of 10,000 failed, 0 changes of its object and pods, the copy's instance busy",
        limits=[
            ("p99_more_percent", 10.0, "<="), ("failed", 0, "=="), ("changes", 0, "=="), ("requests", 10000, ">="),
            ("copy_busy_percent", 90.0, ">="),
        ],
        command="python -m benchmarks.measure.place 2.2",
        stand_ins=_STAND_IN + "; model, copy, both clients and the control plane share two cores",
        why="" if REQUESTS >= 10000 else f"{REQUESTS} requests instead of 10,000",
        n=REQUESTS,
        law=f"{1000 * execution_s:g} ms, unbatched",
        load=f"Poisson, {rate:g}/s, the same arrivals twice, {seconds:.0f} s each, beside 16 callers on the copy",
        raw={"alone": alone, "during": during, "copy": copy},
    )  # fmt: skip


def _served(on: setup.Installed) -> dict[str, Any]:
    """Return what a measurement beside the digits model must not change."""
    model = on.kube.model("digits") or {}
    meta = model["metadata"]
    pods = [*on.kube.pods("digits", "server"), *on.kube.pods("digits", "balancer")]
    return {
        "spec": model["spec"],
        "generation": meta["generation"],
        "labels": meta.get("labels"),
        "annotations": meta.get("annotations"),
        "pods": sorted(
            (pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"]["containerStatuses"]))
            for pod in pods
        ),
    }


def row_3() -> Row:
    """Measurements that end early at random moments: what is left, and for how long."""
    seed = random.Random(43)
    name = f"{CLUSTER}-{os.getpid()}"
    killed: list[Killed] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster: Cluster = clusters.up(name, Options(control_plane_only=True))
            space = Space(cluster.api, "default")
            _add_node(space, 0)
            with running(cluster, Path(folder), watch="default"):
                served = [f"m{number}" for number in range(KILLS)]
                for model in served:
                    space.serve(model, traffic={"mode": "Direct"})
                before = {model: _untouched(space, model) for model in served}
                with Watched(space) as watched:
                    for number, model in enumerate(served):
                        what = KILLED[number % len(KILLED)]
                        while (one := _killed(what, model, cluster, space, seed.uniform(0.0, _LONGEST_RUN_S))) is None:
                            pass
                        killed.append(one)
                        watched.add(one)
                        say(f"measure: row 2.3: {one}")
                gone = watched.gone
                changed = [model for model in served if _untouched(space, model) != before[model]]
        finally:
            for one in killed:
                one.process.kill()
            clusters.down(name)
    times = [seconds for seconds in gone.values() if seconds is not None]
    return Row(
        id="2.3",
        what="command, Job or node killed at random moments between the first object of the measurement and its end: seconds until nothing is left, the original untouched",
        value={
            "kills": len(gone),
            **{f"{what}s": sum(one.what == what for one in killed) for what in KILLED},
            "left": sum(seconds is None for seconds in gone.values()),
            "longest_s": round(max(times), 1) if times else None,
            "originals_changed": len(changed),
            "with_a_copy": sum("ModelDeployment" in one.present for one in killed),
            "with_a_client": sum("Pod client" in one.present for one in killed),
        },
        target="nothing left after 5 min, 20 of 20",
        limits=[
            ("kills", 20, ">="), ("left", 0, "=="), ("longest_s", _GONE_S, "<="), ("originals_changed", 0, "=="),
            ("with_a_copy", 1, ">="), ("with_a_client", 1, ">="), *((f"{what}s", 6, ">=") for what in KILLED),
        ],
        command="python -m benchmarks.measure.place 2.3",
        stand_ins="KWOK's pods and nodes; a node is killed by the deletion of its object, as a cloud's controller does it",
        why="" if KILLS >= 20 else f"{KILLS} kills instead of 20",
        n=len(gone),
        raw={"gone_s": gone, "changed": changed, "killed": [_plain(one) for one in killed]},
    )  # fmt: skip


@dataclass(frozen=True)
class Killed:
    """A measurement of which something was killed."""

    what: str
    """One of `KILLED`."""
    model: str
    at_s: float
    """Moment of the kill, by the monotonic clock."""
    after_s: float
    """Seconds from the first object of the measurement to the kill."""
    present: tuple[str, ...]
    """Kinds of the objects that existed then; `Pod client` is the client's pod."""
    process: subprocess.Popen[bytes] = field(repr=False)
    """The command, which has to end too."""


def _plain(one: Killed) -> dict[str, Any]:
    return {key: value for key, value in one.__dict__.items() if key != "process"} | {"status": one.process.poll()}


def _killed(what: str, model: str, cluster: Cluster, space: Space, after_s: float) -> Killed | None:
    """Start a measurement of a model, and kill its command, Job or node this long after its first object.

    None if the command ended before, or no pod had a node; the command has then removed everything.
    """
    process = subprocess.Popen(
        [*command("bench", model, "--start-timeout", "5m", "--bench-image", "localhost/halcyon-bench:dev", kubeconfig=cluster.kubeconfig), "-n", "default"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and space.get(JOB, job_name(model)) is None:
        time.sleep(0.02)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        present = tuple(sorted(set(_present(space, [model])[model])))
        if _kill(what, model, process, space):
            return Killed(what, model, time.monotonic(), after_s, present, process)
        process.send_signal(signal.SIGINT)
        process.wait()
    while _present(space, [model])[model]:
        time.sleep(0.2)
    return None


def _kill(what: str, model: str, process: subprocess.Popen[bytes], space: Space) -> bool:
    """Kill the command, the Job, or the node of the client's pod or of the copy's; return False if there is no node."""
    if what == "command":
        process.send_signal(signal.SIGKILL)
        process.wait()
    elif what == "job":
        space.api.call("DELETE", f"{JOB.path(space.namespace, job_name(model))}?propagationPolicy=Background")
    else:
        pods = [pod for pod in space.every(kinds.POD) if pod["metadata"]["name"].startswith(f"{model}-bench")]
        pods.sort(key=lambda pod: BENCH_LABEL not in (pod["metadata"].get("labels") or {}))
        node = next((str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")), "")
        if not node:
            return False
        _add_node(space, time.monotonic_ns())
        space.api.call("DELETE", f"/api/v1/nodes/{node}")
    return True


def _add_node(space: Space, number: int) -> None:
    """Add another node of KWOK's, equal to one that exists."""
    listed = space.api.call("GET", "/api/v1/nodes").body or {}
    (like, *_) = listed["items"]
    name = f"node-{number}"
    labels = {**like["metadata"]["labels"], "kubernetes.io/hostname": name}
    status = {key: like["status"][key] for key in ("capacity", "allocatable")}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    space.api.create("/api/v1/nodes", body)


def _present(space: Space, models: Iterable[str]) -> dict[str, list[str]]:
    """Return the kinds of the objects of each model's measurement."""
    found: dict[str, list[str]] = {model: [] for model in models}
    for kind in (JOB, kinds.MODEL_DEPLOYMENT, kinds.POD, kinds.NETWORK_POLICY, *kinds.CHILDREN):
        for obj in space.every(kind):
            model, bench, _ = str(obj["metadata"]["name"]).partition("-bench")
            if bench and model in found:
                client = kind == kinds.POD and BENCH_LABEL in (obj["metadata"].get("labels") or {})
                found[model].append(f"{kind.kind} client" if client else kind.kind)
    return found


def _untouched(space: Space, model: str) -> dict[str, Any]:
    """Return what a measurement beside a model must not change."""
    found = space.must(kinds.MODEL_DEPLOYMENT, model)
    meta = found["metadata"]
    return {"spec": found["spec"], **{key: meta.get(key) for key in ("generation", "labels", "annotations", "uid")}}


class Watched(threading.Thread):
    """The measurements that were killed, watched until nothing is left of them.

    As a context manager, it waits at the end until everything is gone or the limit is over.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(daemon=True)
        self._space, self._ends = space, threading.Event()
        self._killed: dict[str, Killed] = {}
        self.gone: dict[str, float | None] = {}
        """Seconds from each kill until nothing was left, by model; None if something is."""

    def add(self, one: Killed) -> None:
        """Watch one more."""
        self.gone[one.model] = None
        self._killed[one.model] = one

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            while any(self.gone[one.model] is None and self._age_s(one) < _GONE_S for one in [*self._killed.values()]):
                time.sleep(1.0)
            # Whatever comes back after its removal isn't gone.
            time.sleep(_STAYS_GONE_S)
        self._ends.set()
        self.join()

    def run(self) -> None:
        """Look once a second."""
        while not self._ends.wait(1.0):
            killed = dict(self._killed)
            for model, found in _present(self._space, killed).items():
                one = killed[model]
                if found or one.process.poll() is None:
                    self.gone[model] = None
                elif self.gone[model] is None:
                    self.gone[model] = self._age_s(one)

    @staticmethod
    def _age_s(one: Killed) -> float:
        return time.monotonic() - one.at_s


ROWS: Mapping[str, Callable[[], Row]] = {"2.1": row_1, "2.2": row_2, "2.3": row_3}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
