"""Rows of section 2: a measurement in the cluster hurts no client, and leaves nothing.

python -m benchmarks.measure.place [ROW...]

Rows 2.1 and 2.2 need the embedded cluster, and 2.3 its control plane. Out of scope: row 2.4 (`live`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.measure.kills.killed import command
from benchmarks.measure.kills.row import row_3
from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from demo import models, setup
from demo.errors import DemoError
from demo.kube import wait_for
from e2e.cluster.progress import say

CLUSTER = "bench-place"
REQUESTS = int(os.environ.get("REQUESTS", "10000"))
_STAND_IN = "a Python model that sleeps stands in for a GPU"


@contextmanager
def embedded(deployed: Mapping[str, Any] | None = None) -> Iterator[setup.Installed]:
    """Run the embedded cluster with the chart and the digits model, or this ModelDeployment of it."""
    try:
        installed = setup.install(CLUSTER, step=lambda title: say(f"measure: {title}"))
        documents = models.documents() | ({"ModelDeployment": dict(deployed)} if deployed is not None else {})
        manifest = "\n---\n".join(map(models.as_text, documents.values()))
        installed.kube("apply", "-f", "-", stdin=manifest)
        models.wait_until_served(installed.kube, models.DIGITS)
        # A copy is of the serving revision, which the operator records after the first answer.
        wait_for(lambda: _revision(installed), goal="the serving revision of digits", limit_s=60)
        yield installed
    finally:
        setup.remove(CLUSTER, step=lambda title: say(f"measure: {title}"))


def _revision(installed: setup.Installed) -> bool:
    status = (installed.kube.model(models.DIGITS) or {}).get("status") or {}
    return bool((status.get("revision") or {}).get("current"))


def row_1() -> Row:
    """Measure the time of `halcyon bench digits` to its answer, first and again."""
    with embedded() as installed:
        times, runs = [], []
        for _ in range(2):
            began = time.monotonic()
            process = subprocess.run(
                command("bench", "digits", "-o", "json", kubeconfig=installed.kube.kubeconfig),
                capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
            times.append(time.monotonic() - began)
            document = json.loads(process.stdout) if process.stdout.strip().startswith("{") else None
            runs.append({"status": process.returncode, "stderr": process.stderr[-500:], "document": document})
    valid = [run["document"] is not None and run["status"] in {0, 1} for run in runs]
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
        raw=runs,
    )


def row_2(execution_s: float = 0.016) -> Row:
    """Measure a live model at half its capacity, alone and while its copy is at the limit."""
    # A few more, because the number of Poisson arrivals is random.
    rate, seconds = 0.5 / execution_s, 1.03 * REQUESTS * execution_s
    deployed = models.variant(models.DIGITS, batching=False)
    # The planner plans, but more replicas would share the same cores.
    deployed["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 3, "mode": "Recommend"}
    deployed["spec"]["model"]["parameters"] = {"gpu_ms": f"{1000 * execution_s:g}"}
    with embedded(deployed) as installed:
        address = installed.kube.must_address("digits", models.HTTP_PORT)
        load = command(
            "bench", "--url", f"http://{address}", "--model", "digits", "--rate", f"{rate:g}", "--duration",
            f"{seconds:.0f}s", "--warm-up", "3s", "-o", "json", kubeconfig=installed.kube.kubeconfig,
        )  # fmt: skip
        alone = json.loads(subprocess.run(load, capture_output=True, text=True, check=False).stdout)
        with suppress(DemoError):  # without a line, the row doesn't hold
            wait_for(lambda: _served(installed)["line"] is not None, goal="the line of the planner", limit_s=60)
        before = _served(installed)
        # The copy's load begins while the model is loaded already, and ends after it.
        copied = subprocess.Popen(
            command(
                "bench", "digits", "--callers", "16", "--duration", f"{seconds:.0f}s", "-o", "json",
                kubeconfig=installed.kube.kubeconfig,
            ),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        during = json.loads(subprocess.run(load, capture_output=True, text=True, check=False).stdout)
        copy = json.loads(copied.communicate()[0])
        after = _served(installed)
    failed = sum(run["requests"]["due"] - run["requests"]["answered"] for run in (alone, during))
    p99 = [run["latency"]["p99"]["value"] for run in (alone, during)]
    busy = copy["batches"]["busy"]["value"]
    return Row(
        id="2.2",
        what="a live model at half its capacity while its copy is at the limit",
        value={
            "p99_more_percent": round(100 * (p99[1] / p99[0] - 1), 1) if all(p99) else None,
            "failed": failed,
            "requests": alone["requests"]["due"] + during["requests"]["due"],
            "changes": sum(before[name] != after[name] for name in before),
            "planner_lines": len(before["line"] or ()),
            "line_moved_percent": line_moved_percent(before["line"] or [], after["line"] or []),
            "copy_busy_percent": None if busy is None else round(100 * busy, 1),
        },
        target="live P99 +<= 10 %, 0 of 10,000 failed, 0 changes of its object, pods, planned count and planner's line, the copy's instance busy",
        limits=[
            ("p99_more_percent", 10.0, "<="), ("failed", 0, "=="), ("changes", 0, "=="), ("requests", 10000, ">="),
            ("copy_busy_percent", 90.0, ">="), ("planner_lines", 1, ">="),
        ],
        command="python -m benchmarks.measure.place 2.2",
        stand_ins=_STAND_IN + "; model, copy, both clients and the control plane share two cores",
        why="" if REQUESTS >= 10000 else f"{REQUESTS} requests instead of 10,000",
        n=REQUESTS,
        law=f"{1000 * execution_s:g} ms, unbatched",
        load=f"Poisson, {rate:g}/s, the same arrivals twice, {seconds:.0f} s each, beside 16 callers on the copy",
        raw={"alone": alone, "during": during, "copy": copy, "before": before, "after": after},
    )  # fmt: skip


def line_moved_percent(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the largest change of the time of one row in the planner's lines; None if there are other lines."""
    names = ("instances", "maxBatchSize")
    if not before or [[line[name] for name in names] for line in before] != [
        [line[name] for name in names] for line in after
    ]:
        return None
    times = [
        [float(line["constantMilliseconds"]) + float(line["perRowMilliseconds"]) for line in lines]
        for lines in (before, after)
    ]
    changes: list[float] = [100 * abs(new / old - 1) for old, new in zip(*times, strict=True)]
    return round(max(changes), 1)


def _served(installed: setup.Installed) -> dict[str, Any]:
    """Return the parts of the digits model that a measurement beside it must not change."""
    model = installed.kube.model("digits") or {}
    meta = model["metadata"]
    status = model.get("status") or {}
    pods = [*installed.kube.pods("digits", "server"), *installed.kube.pods("digits", "balancer")]
    return {
        "spec": model["spec"],
        "generation": meta["generation"],
        "labels": meta.get("labels"),
        "annotations": meta.get("annotations"),
        "planned": (status.get("scaling") or {}).get("desired"),
        "line": (status.get("capacity") or {}).get("lines"),
        "pods": sorted(
            (pod["metadata"]["uid"], sum(container["restartCount"] for container in pod["status"]["containerStatuses"]))
            for pod in pods
        ),
    }


ROWS: Mapping[str, Callable[[], Row]] = {"2.1": row_1, "2.2": row_2, "2.3": row_3}


def main(arguments: Sequence[str]) -> int:
    """Measure these rows, or all."""
    return measure(ROWS, arguments or ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
