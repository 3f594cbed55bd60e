"""Utilisation, memory, power and CPU over a run, from samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from halcyon_measure.breakdown import growth
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.observations import (
    BalancerSample,
    GpuSample,
    Observations,
    ProcessSample,
    Readings,
    ServerSample,
)
from halcyon_measure.results.sections.hardware import Hardware, ReplicaUse, Series

BUSY = 0.8
"""Utilisation, from 0 to 1, from which a GPU counts as fully used."""
_PAGE = "Triton's metrics, once a second"


def build(observations: Observations, *, wall_s: float) -> Hardware:
    """Return the section `hardware` of a run whose samples span `wall_s` seconds."""
    servers, processes = observations.servers, observations.processes
    no_page = _reason(servers, "no server's metrics could be read")
    no_gpu = no_page or "the server publishes no GPU metrics: it has no GPU, or its metrics of GPUs are switched off"
    utilization = _over_gpus(servers, lambda gpu: gpu.utilization, "mean")
    no_process = observations.no_process or _reason(processes, "no process of a server could be read")
    throttled = _growths(processes, lambda sample: sample.throttled)
    periods = _growths(processes, lambda sample: sample.periods)
    killed = _growths(processes, lambda sample: sample.oom_kills)
    no_limit = no_process or "the servers have no limit of CPU, or it couldn't be read"
    notes = [note for server in servers for note in _notes(server)]
    return Hardware(
        samples=max((len(server.samples) for server in servers), default=0)
        or max((len(process.samples) for process in processes), default=0),
        gpu_utilization=series(utilization, "ratio", _PAGE, no_gpu),
        gpu_at_80=Figure(
            value=float(np.mean(np.array(utilization) >= BUSY)), unit="ratio", n=len(utilization), source=_PAGE
        )
        if utilization
        else unmeasured("ratio", no_gpu),
        gpu_memory=series(_over_gpus(servers, lambda gpu: gpu.memory, "sum"), "bytes", _PAGE, no_gpu),
        gpu_memory_total=_last(_over_gpus(servers, lambda gpu: gpu.memory_total, "sum"), "bytes", _PAGE, no_gpu),
        gpu_power=series(_over_gpus(servers, lambda gpu: gpu.power_w, "sum"), "W", _PAGE, no_gpu),
        pinned_memory=series(_over_pages(servers, lambda page: page.pinned), "bytes", _PAGE, no_page or _ABSENT),
        pinned_memory_total=_last(
            _over_pages(servers, lambda page: page.pinned_total), "bytes", _PAGE, no_page or _ABSENT
        ),
        server_cpu=series(
            _rates(processes, lambda sample: sample.cpu_s),
            "cores",
            "CPU time of the servers' processes",
            no_process or "fewer than two readings have their CPU time",
        ),
        server_cpu_limit=_last(
            _summed(processes, lambda sample: sample.cpu_limit), "cores", "cgroup or affinity", no_limit
        ),
        server_core_wait=series(
            _rates(processes, lambda sample: sample.core_wait_s),
            "cores",
            "waiting of the servers' main threads",
            no_process or "the kernel doesn't count it",
        ),
        server_throttled=Figure(value=throttled / periods, unit="ratio", n=int(periods), source="periods of the cgroup")
        if throttled is not None and periods
        else unmeasured("ratio", no_limit),
        server_memory=series(
            _summed(processes, lambda sample: sample.memory),
            "bytes",
            "memory of the servers",
            no_process or "no reading has their memory",
        ),
        server_memory_limit=_last(
            _summed(processes, lambda sample: sample.memory_limit),
            "bytes",
            "cgroup",
            no_process or "the servers have no limit of memory, or it couldn't be read",
        ),
        server_oom_kills=Figure(value=killed, unit="events", n=len(processes), source="cgroup")
        if killed is not None
        else unmeasured("events", no_process or "the servers' cgroup couldn't be read"),
        balancer_cpu=series(
            _cpu_of(observations),
            "cores",
            "CPU time of the balancers' agents",
            observations.no_balancer
            or _reason(observations.balancers, "no balancer's metrics could be read")
            or "fewer than two readings have the CPU time",
        ),
        machine_cpu=series(_over_pages(servers, lambda page: page.machine_cpu), "ratio", _PAGE, no_page or _ABSENT),
        machine_memory=series(
            _over_pages(servers, lambda page: page.machine_memory), "bytes", _PAGE, no_page or _ABSENT
        ),
        replicas=tuple(_replica(server) for server in servers if server.samples),
        sampling_cpu=Figure(
            value=observations.sampling_cpu_s / wall_s, unit="cores", n=1, source="CPU time of the sampling thread"
        )
        if observations.sampling_cpu_s is not None and wall_s > 0
        else unmeasured("cores", "the kernel doesn't report it"),
        notes=tuple(notes),
    )


_ABSENT = "the server doesn't publish it"


def series(values: Sequence[float], unit: Unit, source: str, reason: str) -> Series:
    """Return the mean, P10, P90 and maximum of the samples; if there are none, a series with the reason."""
    if not len(values):
        none = unmeasured(unit, reason)
        return Series(mean=none, p10=none, p90=none, max=none)
    array = np.array(values)

    def figure(value: float) -> Figure:
        return Figure(value=float(value), unit=unit, n=len(array), source=source)

    low, high = np.quantile(array, (0.1, 0.9))
    rounded = tuple(float(f"{value:.4g}") for value in values)
    return Series(mean=figure(array.mean()), p10=figure(low), p90=figure(high), max=figure(array.max()), values=rounded)


def _reason(
    readings: Sequence[Readings[ServerSample]] | Sequence[Readings[ProcessSample]] | Sequence[Readings[BalancerSample]],
    default: str,
) -> str:
    """Return the reason why there is no sample; empty if there is one."""
    if any(source.samples for source in readings):
        return ""
    return next((source.reason for source in readings if source.reason), default)


def _over_gpus(
    servers: Iterable[Readings[ServerSample]], value: Callable[[GpuSample], float | None], aggregate: str
) -> list[float]:
    """Return the sum or the mean over all GPUs for each second; `aggregate` selects which.

    A GPU that two servers publish counts once.
    """
    values = []
    for pages in _by_second(servers):
        gpus = {uuid: gpu for page in pages for uuid, gpu in page.gpus.items()}
        gpu_values = [gauge for gpu in gpus.values() if (gauge := value(gpu)) is not None]
        if gpu_values:
            values.append(sum(gpu_values) / (len(gpu_values) if aggregate == "mean" else 1))
    return values


def _over_pages(
    servers: Iterable[Readings[ServerSample]], value: Callable[[ServerSample], float | None]
) -> list[float]:
    values = []
    for pages in _by_second(servers):
        page_values = [gauge for page in pages if (gauge := value(page)) is not None]
        if page_values:
            values.append(sum(page_values) / len(page_values))
    return values


def _by_second(servers: Iterable[Readings[ServerSample]]) -> list[list[ServerSample]]:
    """Return the samples of all servers, grouped by second."""
    by_second: dict[int, list[ServerSample]] = {}
    for server in servers:
        for sample in server.samples:
            by_second.setdefault(round(sample.at_s), []).append(sample)
    return [by_second[second] for second in sorted(by_second)]


def _summed(
    processes: Sequence[Readings[ProcessSample]], value: Callable[[ProcessSample], float | None]
) -> list[float]:
    """Return, for each sampling time, the sum of a value over the servers.

    Times at which a server lacks the value are omitted.
    """
    columns = [[value(sample) for sample in process.samples] for process in processes if process.samples]
    sums = []
    for row in zip(*columns, strict=False):
        numbers = [number for number in row if number is not None]
        if len(numbers) == len(row):
            sums.append(sum(numbers))
    return sums


def _rates(processes: Sequence[Readings[ProcessSample]], value: Callable[[ProcessSample], float | None]) -> list[float]:
    """Return the increase per second of a cumulative time, summed over all servers.

    Decreases, which mean a new process, and servers with fewer than two readings are ignored.
    """
    columns = []
    for process in processes:
        points = [(sample.at_s, reading) for sample in process.samples if (reading := value(sample)) is not None]
        rates = [(b - a) / (t - s) for (s, a), (t, b) in pairwise(points) if t > s and b >= a]
        if rates:
            columns.append(rates)
    return [sum(row) for row in zip(*columns, strict=False)]


def _growths(
    processes: Sequence[Readings[ProcessSample]], value: Callable[[ProcessSample], float | None]
) -> float | None:
    total: float | None = None
    for process in processes:
        readings = [reading for sample in process.samples if (reading := value(sample)) is not None]
        if readings:
            total = (total or 0.0) + max(readings[-1] - readings[0], 0.0)
    return total


def _cpu_of(observations: Observations) -> list[float]:
    agents = [
        Readings(balancer.pod, tuple(ProcessSample(sample.at_s, cpu_s=sample.cpu_s) for sample in balancer.samples))
        for balancer in observations.balancers
    ]
    return _rates(agents, lambda sample: sample.cpu_s)


def _last(values: Sequence[float], unit: Unit, source: str, reason: str) -> Figure:
    if not values:
        return unmeasured(unit, reason)
    return Figure(value=values[-1], unit=unit, n=len(values), source=source)


def _notes(server: Readings[ServerSample]) -> list[str]:
    notes = [f"{server.pod}: {server.reason}"] if server.reason and server.samples else []
    replica_growth = growth.of_samples(server.samples)
    if replica_growth is not None and replica_growth.restarts:
        notes.append(
            f"{server.pod} counts from 0 again, {replica_growth.restarts} times: it was replaced or restarted in the "
            "run; its parts before and after are added"
        )
    return notes


def _replica(server: Readings[ServerSample]) -> ReplicaUse:
    replica_growth = growth.of_samples(server.samples)
    counters = None if replica_growth is None else replica_growth.counters
    reason = "fewer than two readings have its counters"
    if counters is not None and counters.requests <= 0:
        reason, counters = "it answered no request", None
    requests = 0 if counters is None else int(counters.requests)

    def per_request(seconds: float | None) -> Figure:
        if seconds is None or not requests:
            return unmeasured("ms", reason)
        return Figure(value=1000 * seconds / requests, unit="ms", n=requests, source=_PAGE)

    return ReplicaUse(
        pod=server.pod,
        requests=unmeasured("requests", reason)
        if replica_growth is None
        else Figure(value=replica_growth.counters.requests, unit="requests", n=requests, source=_PAGE),
        queue=per_request(None if counters is None else counters.queue_s),
        model=per_request(None if counters is None else counters.model_s),
        replaced=replica_growth is not None and replica_growth.restarts > 0,
    )
