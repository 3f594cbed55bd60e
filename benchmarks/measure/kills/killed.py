"""One measurement whose command, Job or node is killed at a moment after its first object, and its remaining objects."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon_cli.bench.place.client_job import BENCH_LABEL, JOB, job_name
from tests.integration.operator_space import Space

TARGETS = ("command", "job", "node")


def command(*arguments: str, kubeconfig: Path) -> list[str]:
    """Return the command line of `halcyon ARGUMENTS` for this cluster."""
    return [sys.executable, "-m", "halcyon.main", *arguments, "--kubeconfig", str(kubeconfig)]


@dataclass(frozen=True)
class Killed:
    """A measurement of which something was killed."""

    target: str
    """One of `TARGETS`."""
    model: str
    at_s: float
    """Moment of the kill, by the monotonic clock."""
    after_s: float
    """Seconds from the first object of the measurement to the kill."""
    present_kinds: tuple[str, ...]
    """Kinds of the objects that existed then; `Pod client` is the client's pod."""
    process: subprocess.Popen[bytes] = field(repr=False)
    """The command, which has to end too."""


def killed(target: str, model: str, cluster: Cluster, space: Space, after_s: float) -> Killed | None:
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
        kinds_present = tuple(sorted(set(object_kinds(space, [model])[model])))
        if _kill(target, model, process, space):
            return Killed(target, model, time.monotonic(), after_s, kinds_present, process)
        process.send_signal(signal.SIGINT)
        process.wait()
    while object_kinds(space, [model])[model]:
        time.sleep(0.2)
    return None


def _kill(target: str, model: str, process: subprocess.Popen[bytes], space: Space) -> bool:
    """Kill the command, the Job, or the node of the client's pod or of the copy's; return False if there is no node."""
    if target == "command":
        process.send_signal(signal.SIGKILL)
        process.wait()
    elif target == "job":
        space.api.call("DELETE", f"{JOB.path(space.namespace, job_name(model))}?propagationPolicy=Background")
    else:
        pods = [pod for pod in space.every(kinds.POD) if pod["metadata"]["name"].startswith(f"{model}-bench")]
        pods.sort(key=lambda pod: BENCH_LABEL not in (pod["metadata"].get("labels") or {}))
        node = next((str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")), "")
        if not node:
            return False
        add_node(space, time.monotonic_ns())
        space.api.call("DELETE", f"/api/v1/nodes/{node}")
    return True


def add_node(space: Space, number: int) -> None:
    """Add another node of KWOK's, equal to one that exists."""
    listed = space.api.call("GET", "/api/v1/nodes").body or {}
    (template, *_) = listed["items"]
    name = f"node-{number}"
    labels = {**template["metadata"]["labels"], "kubernetes.io/hostname": name}
    status = {key: template["status"][key] for key in ("capacity", "allocatable")}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    space.api.create("/api/v1/nodes", body)


def object_kinds(space: Space, models: Iterable[str]) -> dict[str, list[str]]:
    """Return the kinds of the objects of each model's measurement."""
    kinds_by_model: dict[str, list[str]] = {model: [] for model in models}
    for kind in (JOB, kinds.MODEL_DEPLOYMENT, kinds.POD, kinds.NETWORK_POLICY, *kinds.CHILDREN):
        for obj in space.every(kind):
            model, bench, _ = str(obj["metadata"]["name"]).partition("-bench")
            if bench and model in kinds_by_model:
                client = kind == kinds.POD and BENCH_LABEL in (obj["metadata"].get("labels") or {})
                kinds_by_model[model].append(f"{kind.kind} client" if client else kind.kind)
    return kinds_by_model


def unchangeable(space: Space, model: str) -> dict[str, Any]:
    """Return the parts of a model that a measurement beside it must not change."""
    deployment = space.must(kinds.MODEL_DEPLOYMENT, model)
    meta = deployment["metadata"]
    return {
        "spec": deployment["spec"],
        **{key: meta.get(key) for key in ("generation", "labels", "annotations", "uid")},
    }
