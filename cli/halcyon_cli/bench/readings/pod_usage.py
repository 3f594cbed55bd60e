"""CPU and memory of the measured pods, which the command reads from the cluster's Metrics API, `metrics.k8s.io`.

The API returns the mean CPU in a window of usually 15 s, and the end of the window. Only windows within the measured
time count, so a short run may have none. Values that the client measured itself on the server's machine aren't
replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halcyon.api.types import quantity
from halcyon.kube.kinds import Kind
from halcyon.render import names
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster

if TYPE_CHECKING:
    from halcyon_measure.results.document import BenchDocument

Json = Mapping[str, Any]

POD_METRICS = Kind("metrics.k8s.io/v1beta1", "PodMetrics", "pods")
INTERVAL_S = 5.0
"""Minimum time between two requests to the API, in seconds. Its values change at most every 15 s."""
SLACK_S = 2.0
"""Maximum time by which a window may extend beyond the measured time, in seconds. Both ends are known only to the
second."""
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|us|µs|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_SOURCE = "metrics.k8s.io"
_OF_BALANCERS = names.CONTAINERS - {names.TRITON, names.FETCHER}


@dataclass(frozen=True)
class Usage:
    """CPU and memory usage of a container in a window."""

    measured: str
    """Name of the pod's ModelDeployment, from its labels."""
    pod: str
    container: str
    end_s: float
    """End of the window, in seconds since the epoch."""
    window_s: float
    cores: float
    memory: float


@dataclass
class UsageLog:
    """Usages that the API returned during a measurement."""

    usages: dict[tuple[str, str, float], Usage] = field(default_factory=dict)
    reason: str = ""
    """Reason why the last request failed; empty if it succeeded."""
    _next_s: float = 0.0

    def read(self, cluster: Cluster, measured: Sequence[str], now_s: float) -> None:
        """Request the resource usage of the pods of these ModelDeployments, at most every `INTERVAL_S`.

        A failure sets `reason` instead of raising an error.
        """
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        try:
            items = cluster.items(POD_METRICS, selector=f"{names.OWNER_LABEL} in ({','.join(measured)})")
        except ClusterError as error:
            self.reason = f"{_SOURCE} can't be read: {error}"
            return
        self.reason = "" if items is not None else f"the cluster has no {_SOURCE}; metrics-server serves it"
        for usage in parse(items or ()):
            self.usages[usage.pod, usage.container, usage.end_s] = usage


def parse(items: Iterable[Json]) -> list[Usage]:
    """Return the usages in PodMetrics objects. Invalid entries are omitted."""
    usages = []
    for item in items:
        end, window = fields.time(item.get("timestamp")), _seconds(item.get("window"))
        if end is None or window is None:
            continue
        for container in fields.mappings(item.get("containers")):
            usage = fields.mapping(container.get("usage"))
            try:
                cores, memory = (float(quantity(str(usage[name]))) for name in ("cpu", "memory"))
            except (KeyError, ValueError):
                continue
            meta = fields.mapping(item.get("metadata"))
            owner = str(fields.mapping(meta.get("labels")).get(names.OWNER_LABEL) or "")
            usages.append(
                Usage(owner, str(meta.get("name")), str(container.get("name")), end.timestamp(), window, cores, memory)
            )
    return usages


def added(document: BenchDocument, log: UsageLog, servers: Sequence[Json], measured: str) -> BenchDocument:
    """Return the document with the CPU and memory of a model's servers and balancers, and with an updated verdict."""
    from halcyon_measure.breakdown import verdict  # noqa: PLC0415  # NumPy takes a while to import

    end, hardware = fields.time(document.made_at), document.hardware
    if hardware is None or end is None:
        return document
    begin_s, end_s = end.timestamp() - document.run.measured_s, end.timestamp()
    usages = [
        usage for usage in log.usages.values() if usage.measured == measured and _is_within(usage, begin_s, end_s)
    ]
    triton = [usage for usage in usages if usage.container == names.TRITON]
    balancers = [usage for usage in usages if usage.container in _OF_BALANCERS]
    shortest = min((usage.window_s for usage in log.usages.values()), default=0.0)
    reason = log.reason or (
        f"no window of {_SOURCE}, of {shortest:.0f} s, lies within the {document.run.measured_s:.0f} s of the run"
        if log.usages
        else f"{_SOURCE} has no values of the measured pods yet"
    )
    update: dict[str, object] = {}
    if hardware.server_cpu.mean.value is None:
        update["server_cpu"] = _series(triton, lambda usage: usage.cores, "cores", reason)
        update["server_cpu_limit"] = _limit(servers, "cpu", "cores")
    if hardware.server_memory.mean.value is None:
        update["server_memory"] = _series(triton, lambda usage: usage.memory, "bytes", reason)
        update["server_memory_limit"] = _limit(servers, "memory", "bytes")
    if balancers:
        # These values include HAProxy; the agents' own counter doesn't.
        update["balancer_cpu"] = _series(balancers, lambda usage: usage.cores, "cores", reason)
    return verdict.judged(document.model_copy(update={"hardware": hardware.model_copy(update=update)}))


def _is_within(usage: Usage, begin_s: float, end_s: float) -> bool:
    return usage.end_s - usage.window_s >= begin_s - SLACK_S and usage.end_s <= end_s + SLACK_S


def _series(usages: Sequence[Usage], value: Callable[[Usage], float], unit: Any, reason: str) -> Any:
    """Return the sum over all pods for each window.

    The windows of different pods don't coincide, so the n-th windows of all pods are added.
    """
    from halcyon_measure.breakdown import hardware  # noqa: PLC0415

    by_container: dict[tuple[str, str], list[Usage]] = {}
    for usage in sorted(usages, key=lambda usage: usage.end_s):
        by_container.setdefault((usage.pod, usage.container), []).append(usage)
    sums = [sum(map(value, row)) for row in zip(*by_container.values(), strict=False)] if by_container else []
    windows = [usage.window_s for usage in usages]
    source = f"{_SOURCE}, means of {sum(windows) / len(windows):.0f} s" if windows else _SOURCE
    return hardware.series(sums, unit, source, reason)


def _limit(servers: Sequence[Json], resource: str, unit: Any) -> Any:
    """Return the sum of the server containers' limits as a figure; it is unmeasured if a container has no limit."""
    from halcyon_measure.results.figure import Figure, unmeasured  # noqa: PLC0415

    total = 0.0
    for pod in servers:
        containers = fields.mappings(fields.mapping(pod.get("spec")).get("containers"))
        limits = [fields.mapping(fields.mapping(container.get("resources")).get("limits")).get(resource) for container in containers if container.get("name") == names.TRITON]  # fmt: skip
        try:
            total += sum(float(quantity(str(limit))) for limit in limits)
        except ValueError:
            return unmeasured(unit, f"the servers have no limit of {resource}")
    if not servers:
        return unmeasured(unit, "no server pod was there at the end")
    return Figure(value=total, unit=unit, n=len(servers), source="limits of the containers")


def _seconds(duration: object) -> float | None:
    """Return a duration in Go's notation, such as 15.021s or 1m0s, in seconds; None for any other text."""
    text = fields.text(duration) or ""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
