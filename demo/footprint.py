"""Halcyon's own resource usage: memory of its processes, idle writes to the API server, and the versions in use."""

import json
import re
import time
from typing import Any

from demo import models
from demo.errors import DemoError
from demo.kube import SYSTEM, Kube, is_ready, total, wait_for
from demo.models import HTTP_PORT, variant

IDLE_MODELS = 20
_OPERATOR_PORT = 8080
_SETTLED_S = 15.0
_SETTLE_LIMIT_S = 120.0
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_STATUS_OF_ALL = ("sh", "-c", "cat /proc/[0-9]*/status 2>/dev/null | grep ^VmRSS")


def operator_rss_mib(kube: Kube) -> float:
    """Return the largest resident memory of any operator process, in MiB."""
    rss_bytes = [total(kube.metrics(pod, _OPERATOR_PORT), "process_resident_memory_bytes") for pod in kube.operators()]
    return round(max(rss_bytes, default=0.0) / 2**20, 1)


def balancer_rss_mib(kube: Kube, name: str) -> tuple[float, float]:
    """Return (agent, whole pod) resident memory in MiB of the largest balancer pod of a model.

    The values are sums over processes. They are upper bounds, because pages shared by two processes are counted twice.
    """
    agents, pods = [0.0], [0.0]
    for pod in kube.pods(name, "balancer"):
        if is_ready(pod):
            by_container = {
                container: _rss_mib(kube, pod["metadata"]["name"], container) for container in ("agent", "haproxy")
            }
            agents.append(by_container["agent"])
            pods.append(sum(by_container.values()))
    return round(max(agents), 1), round(max(pods), 1)


def _rss_mib(kube: Kube, pod: str, container: str) -> float:
    # The shell that reads the values isn't part of the container. It is excluded by its size, which is below 1 MiB.
    statuses = kube("exec", pod, f"--container={container}", "--", *_STATUS_OF_ALL)
    sizes = [int(size) / 1024 for size in _RSS.findall(statuses)]
    return sum(size for size in sizes if size > 2)


def apply_idle_models(kube: Kube, *, image: str | None = None, count: int = IDLE_MODELS) -> list[str]:
    """Apply models that need no GPU and little memory, and return their names."""
    names = [f"idle-{number:02d}" for number in range(count)]
    kube.apply(*(idle_model(name, image=image) for name in names))
    return names


def idle_model(name: str, *, image: str | None = None) -> dict[str, Any]:
    """Return a ModelDeployment that needs no GPU and requests little CPU."""
    document = variant(name, gpus=0, image=image)
    document["spec"]["runtime"]["resources"] = {"requests": {"cpu": "10m"}}
    return document


def wait_for_idle_models(kube: Kube, names: list[str], *, limit_s: float = 300) -> float:
    """Wait until all idle models serve, and return the seconds that this took.

    A balancer requests 60m of CPU, which it doesn't use when idle. Next to all other pods, twenty balancers may not fit
    on the two cores of a small node. Requests affect only the scheduling, so they are lowered in the pods by in-place
    resize. The operator ignores this change.

    Raises:
        DemoError: some models don't serve within `limit_s` seconds.
    """
    lowered: set[str] = set()

    def served() -> bool:
        ready = 0
        for name in names:
            balancers = kube.pods(name, "balancer")
            for pod in balancers:
                if pod["metadata"]["name"] not in lowered:
                    lowered.add(pod["metadata"]["name"])
                    _lower_requests(kube, pod["metadata"]["name"])
            ready += any(map(is_ready, balancers)) and any(map(is_ready, kube.pods(name, "server")))
        return ready == len(names)

    return wait_for(served, goal=f"{len(names)} idle models served", limit_s=limit_s, every_s=1.0)


def _lower_requests(kube: Kube, pod: str) -> None:
    def container(name: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": "1m"}}}

    spec = {"containers": [container("haproxy")], "initContainers": [container("agent")]}
    kube("patch", "pod", pod, "--subresource=resize", "--patch", json.dumps({"spec": spec}))


def writes(kube: Kube) -> dict[str, float]:
    """Return the number of writes to the API server since its start, by operator pod, not counting Leases and reviews.

    Raises:
        DemoError: a pod doesn't respond.
    """
    counts = {}
    for pod in kube.operators():
        samples = kube.metrics(pod, _OPERATOR_PORT)
        if samples is None:
            raise DemoError(f"{pod['metadata']['name']} in {SYSTEM} does not publish its metrics")
        counts[pod["metadata"]["name"]] = total(samples, "halcyon_api_writes_total")
    return counts


def writes_at_rest(kube: Kube, *, seconds: float) -> int:
    """Count the writes of all operators for `seconds` seconds, after waiting until they are idle.

    The count begins after 15 s without writes, or after two minutes.

    Raises:
        DemoError: an operator pod was replaced during the measurement.
    """
    last, since_s = writes(kube), time.monotonic()
    limit_s = since_s + _SETTLE_LIMIT_S
    while time.monotonic() - since_s < _SETTLED_S and time.monotonic() < limit_s:
        time.sleep(1)
        current = writes(kube)
        if current != last:
            last, since_s = current, time.monotonic()
    before = writes(kube)
    time.sleep(seconds)
    after = writes(kube)
    if before.keys() != after.keys():
        raise DemoError("an operator pod was replaced while writes were counted")
    return int(sum(after.values()) - sum(before.values()))


def versions(kube: Kube, name: str) -> dict[str, str]:
    """Return the versions in use, as reported by the running components and not as configured."""
    nodes = kube.items("/api/v1/nodes")
    runtime = nodes[0]["status"]["nodeInfo"]["containerRuntimeVersion"] if nodes else "?"
    balancer = next((p["metadata"]["name"] for p in kube.pods(name, "balancer") if is_ready(p)), "")
    operator = next((p["metadata"]["name"] for p in kube.operators()), "")
    haproxy = kube("exec", balancer, "--container=haproxy", "--", "haproxy", "-v") if balancer else "?"
    halcyon = kube("exec", operator, "--", "halcyon", "--version", namespace=SYSTEM) if operator else "?"
    return {
        "kubernetes": str((kube.json("/version") or {}).get("gitVersion", "?")),
        "triton": _triton(kube, name),
        "haproxy": _version_number(haproxy),
        "halcyon": _version_number(halcyon),
        "helm": kube.helm("version", "--short").strip(),
        "containerd": runtime.removeprefix("containerd://"),
    }


def _triton(kube: Kube, name: str) -> str:
    pods: list[dict[str, Any]] = [pod for pod in kube.pods(name, "server") if is_ready(pod)]
    if not pods:
        return "?"
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pods[0]['metadata']['name']}:{HTTP_PORT}/proxy/v2"
    return str((kube.json(path) or {}).get("version", "?"))


def _version_number(text: str) -> str:
    match = re.search(r"\d+\.\d+\S*", text)
    return match[0] if match else "?"


def delete_idle_models(kube: Kube, names: list[str]) -> None:
    """Delete the models that `apply_idle_models` created, without waiting for their pods."""
    models.delete(kube, *names, wait=False)
