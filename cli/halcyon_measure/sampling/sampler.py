"""Sampler that reads metrics once a second during a run, in a thread of the process that shows the result."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

from halcyon_measure.errors import SettingError, TargetError
from halcyon_measure.protocols.target import Target
from halcyon_measure.results.observations import (
    RAPL,
    BalancerSample,
    Observations,
    ProcessSample,
    Readings,
    Series,
    ServerConfig,
    ServerSample,
    Statistics,
)
from halcyon_measure.sampling import local_process, metrics_page, prometheus, server_statistics
from halcyon_measure.sampling.prometheus import Prometheus, is_http

INTERVAL_S = 1.0
IDLE_S = 10.0
_TIMEOUT_S = 0.8
_MAX_PAGE = 4 * 2**20
Sample = TypeVar("Sample", ServerSample, BalancerSample, ProcessSample)


@dataclass(frozen=True, kw_only=True)
class Source:
    """URL of a metrics page, and the pod to which the page belongs."""

    pod: str
    url: str


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Settings for sampling servers and machines during a run."""

    servers: tuple[Source, ...] = ()
    """Metrics pages of the replicas; if empty, the page at Triton's default metrics port on the host of the target."""
    balancers: tuple[Source, ...] = ()
    prometheus: str = ""
    namespace: str = ""
    """Namespace of the measured pods in Prometheus queries; empty for any namespace."""
    pods: str = ""
    """Regular expression for the names of the measured pods; empty if they are unknown."""
    idle_s: float = IDLE_S

    def check(self) -> SamplingSettings:
        """Check that the URLs are valid, and return these settings.

        Raises:
            SettingError: a URL is invalid.
        """
        for source in (*self.servers, *self.balancers):
            if not is_http(source.url):
                raise SettingError(f"{source.url} isn't a URL of metrics; for example http://10.0.0.7:8002/metrics")
        if self.prometheus:
            Prometheus(self.prometheus)
        return self


class Sampler:
    """Sampler of one run. Call `idle` before it, `begin` at its start, and `end` when all answers have arrived."""

    def __init__(self, target: Target, settings: SamplingSettings) -> None:
        self._target, self._settings = target, settings
        self._servers = _pages(settings.servers or _default_source(target))
        self._balancers = _pages(settings.balancers)
        self._server_samples: dict[str, list[ServerSample]] = {pod: [] for pod in self._servers}
        self._balancer_samples: dict[str, list[BalancerSample]] = {pod: [] for pod in self._balancers}
        self._process_samples: dict[str, list[ProcessSample]] = {}
        self._rapl: dict[str, list[tuple[float, float]]] = {}
        self._idle: dict[str, list[ServerSample]] = {}
        self._config = ServerConfig()
        self._before: Statistics | None = None
        self._after: Statistics | None = None
        self._no_statistics = ""
        self._start_s = self._epoch_s = 0.0
        self._cpu_s = self._last_s = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._local: local_process.LocalServer | None = None
        self._is_local = False

    def idle(self, wait: Callable[[float], None] = time.sleep) -> None:
        """Read the values that don't change and, if the energy or power of a GPU can be read, the idle power."""
        self._config = server_statistics.read_config(self._target)
        self._is_local = local_process.is_local(self._target.host)
        if self._is_local and (pid := local_process.listener(self._target.host, self._target.port)) is not None:
            self._local = local_process.LocalServer(pid)
        if self._settings.idle_s <= 0:
            return
        begin = time.monotonic()
        first = self._pages(0.0)
        if not any(
            gpu.energy_j is not None or gpu.power_w is not None
            for sample in first.values()
            for gpu in sample.gpus.values()
        ):
            return
        self._idle = {pod: [sample] for pod, sample in first.items()}
        while (left := self._settings.idle_s - (time.monotonic() - begin)) > 0:
            wait(min(INTERVAL_S, left))
            for pod, sample in self._pages(time.monotonic() - begin).items():
                self._idle.setdefault(pod, []).append(sample)

    def begin(self, start_s: float) -> None:
        """Start to take samples at `start_s`, in seconds of the monotonic clock."""
        self._start_s = start_s
        self._epoch_s = time.time() + start_s - time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take the last samples."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the connections to all metrics pages."""
        self.end()
        for page in (*self._servers.values(), *self._balancers.values()):
            page.close()

    def observations(self) -> Observations:
        """Return all samples of the run, including the series from Prometheus."""
        gpu_energy, no_gpu = self._series(prometheus.GPU_ENERGY)
        cpu_energy, no_cpu, source = self._cpu_energy()
        return Observations(
            span_s=self._last_s,
            before=self._before,
            after=self._after,
            no_statistics=self._no_statistics,
            config=self._config,
            servers=tuple(_readings(page, self._server_samples[pod]) for pod, page in self._servers.items()),
            balancers=tuple(_readings(page, self._balancer_samples[pod]) for pod, page in self._balancers.items()),
            no_balancer="" if self._balancers else Observations.no_balancer,
            processes=tuple(Readings(pod, tuple(samples)) for pod, samples in self._process_samples.items()),
            no_process="" if self._process_samples else self._no_process(),
            idle=tuple(Readings(pod, tuple(samples)) for pod, samples in self._idle.items()),
            gpu_energy=gpu_energy,
            cpu_energy=cpu_energy,
            no_gpu_energy=no_gpu,
            no_cpu_energy=no_cpu,
            cpu_energy_source=source,
            sampling_cpu_s=self._cpu_s,
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Metrics pages of the servers."""
        return tuple(page.source for page in self._servers.values())

    def _run(self) -> None:
        if self._ended.wait(max(self._start_s - time.monotonic(), 0)):
            return
        self._before, self._no_statistics = self._statistics()
        count = 0
        while True:
            self._read()
            count += 1
            if self._ended.wait(max(self._start_s + count * INTERVAL_S - time.monotonic(), 0)):
                break
        self._read()
        if self._before is not None:
            self._after, self._no_statistics = self._statistics()
        self._cpu_s = time.thread_time()

    def _read(self) -> None:
        at = self._last_s = time.monotonic() - self._start_s
        for pod, server_sample in self._pages(at).items():
            self._server_samples[pod].append(server_sample)
        for pod, page in self._balancers.items():
            balancer_sample = page.read(lambda text: metrics_page.balancer(text, at))
            if balancer_sample is not None:
                self._balancer_samples[pod].append(balancer_sample)
        if self._local is not None and (sample := self._local.sample(at)) is not None:
            self._process_samples.setdefault(self._target.address, []).append(sample)
        if self._is_local:
            for package, joules in local_process.rapl_joules().items():
                self._rapl.setdefault(package, []).append((at, joules))

    def _pages(self, at_s: float) -> dict[str, ServerSample]:
        samples = {}
        for pod, page in self._servers.items():
            sample = page.read(lambda text: metrics_page.server(text, self._target.model, at_s))
            if sample is not None:
                samples[pod] = sample
        return samples

    def _statistics(self) -> tuple[Statistics | None, str]:
        try:
            return server_statistics.read(replace(self._target, timeout_s=min(self._target.timeout_s, 5.0))), ""
        except TargetError as error:
            return None, str(error)

    def _no_process(self) -> str:
        if not self._is_local:
            return "the server runs on another machine, and no source of its pods' usage is given"
        return "no process listens on the server's port that this user may read"

    def _series(self, metric: str) -> tuple[tuple[Series, ...], str]:
        """Return the series of a metric for the measured pods, and a text with the reason if there are none."""
        settings = self._settings
        if not settings.prometheus:
            return (), "no Prometheus is given; for example --prometheus http://prometheus:9090"
        if not settings.pods:
            return (), "the names of the server's pods aren't known; for example --pods 'digits-.*'"
        selectors = prometheus.selectors(metric, pods=settings.pods, namespace=settings.namespace)
        try:
            client = Prometheus(settings.prometheus)
            for selector in selectors:
                series = client.series(selector, begin_s=self._epoch_s, end_s=self._epoch_s + self._last_s)
                if series:
                    return series, ""
        except TargetError as error:
            return (), str(error)
        return (), f"{settings.prometheus} has no series {' or '.join(selectors)}"

    def _cpu_energy(self) -> tuple[tuple[Series, ...], str, str]:
        if self._rapl:
            rapl_series = tuple(Series(RAPL, name, tuple(points)) for name, points in self._rapl.items())
            return rapl_series, "", "RAPL, of the whole machine"
        reasons = ["RAPL can't be read here" if self._is_local else "the server runs on another machine"]
        for metric in prometheus.CPU_ENERGY:
            series, why = self._series(metric)
            if series:
                return series, "", f"Kepler's counter {metric} in Prometheus"
            reasons.append(why)
        return (), "; ".join(dict.fromkeys(reasons)), ""


class _Page:
    """A metrics page and the HTTP connection to it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._url, self._parts = source.url, urlsplit(source.url)
        self._connection: HTTPConnection | None = None
        self.reason = ""
        """Reason why the last read failed; empty if it succeeded."""

    def read(self, parse: Callable[[str], Sample | None]) -> Sample | None:
        """Read the page, and return the parsed sample.

        The result is None if the page can't be read or has no known metrics.
        """
        try:
            text = self._get()
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            self.reason = f"{self._url} doesn't answer: {str(error) or type(error).__name__}"
            return None
        sample = parse(text)
        self.reason = "" if sample is not None else f"{self._url} has no metrics that are known here"
        return sample

    def _get(self) -> str:
        # A server may close an idle connection between two samples. A new connection is then tried once.
        for attempt in (0, 1):
            reused = self._connection is not None
            if self._connection is None:
                kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
                self._connection = kind(str(self._parts.hostname), self._parts.port, timeout=_TIMEOUT_S)
            try:
                query = f"?{self._parts.query}" if self._parts.query else ""
                self._connection.request("GET", (self._parts.path or "/metrics") + query)
                response = self._connection.getresponse()
                body = response.read(_MAX_PAGE)
            except (OSError, HTTPException):
                self.close()
                if attempt or not reused:
                    raise
                continue
            if response.status != 200:  # a page
                raise ValueError(f"status {response.status}")
            return body.decode(errors="replace")
        raise ValueError("no answer")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


def _pages(sources: Sequence[Source]) -> dict[str, _Page]:
    """Return the metrics pages by pod.

    A host name with several addresses, such as a headless Service, has one page per address. Pages with the same host
    and port but different paths, for example behind a proxy, are named by their URLs.
    """
    pages: dict[str, _Page] = {}
    for source in dict.fromkeys(sources):
        parts = urlsplit(source.url)
        addresses = _addresses(str(parts.hostname))
        if len(addresses) < 2:  # one address, or an unknown name, whose error the reading has
            pod = source.pod if source.pod not in pages else source.url
            pages[pod] = _Page(replace(source, pod=pod))
            continue
        for address in addresses:
            host = f"[{address}]" if ":" in address else address
            port = f":{parts.port}" if parts.port is not None else ""
            pages[address] = _Page(Source(pod=address, url=parts._replace(netloc=host + port).geturl()))
    return pages


def _addresses(host: str) -> list[str]:
    """Return the addresses of a host name, in one address family only, because a dual-stack pod is still one pod."""
    try:
        families = {str(info[4][0]): info[0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return []
    first = min(families.values(), default=None)
    return sorted(address for address, family in families.items() if family == first)


def _readings(page: _Page, samples: Sequence[Sample]) -> Readings[Sample]:
    return Readings(page.source.pod, tuple(samples), page.reason)


def _default_source(target: Target) -> tuple[Source, ...]:
    """Return the source for Triton's metrics port: 2 above the HTTP port (8000), or 1 above the gRPC port (8001)."""
    if target.api != "kserve" or target.encrypted or target.path:
        return ()
    port = target.port + (1 if target.transport == "grpc" else 2)
    host = f"[{target.host}]" if ":" in target.host else target.host
    return (Source(pod=target.address, url=f"http://{host}:{port}/metrics"),) if port < 65536 else ()
