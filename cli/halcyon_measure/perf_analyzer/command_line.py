"""Command line of perf_analyzer for a load and a target, and checks of whether it can generate the load. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halcyon_measure.errors import ScenarioError, SettingError
from halcyon_measure.results.number_text import count_text, number
from halcyon_measure.schedule import arrivals

if TYPE_CHECKING:
    from halcyon_measure.measurement import Measurement
    from halcyon_measure.protocols.target import Target
    from halcyon_measure.schedule.scenario import Scenario

DATA, GAPS, TABLE = "data.json", "gaps.txt", "table.csv"
"""Names of the files with the input data, the gaps between arrivals in microseconds, and the result."""
MAX_ARRIVALS = 1_000_000
_MAX_THREADS = 32
"""Number of callers above which perf_analyzer doesn't use one thread for each."""
_WINDOW_OPTIONS = frozenset(
    {
        "stability-percentage",
        "measurement-interval",
        "measurement-mode",
        "measurement-request-count",
        "max-trials",
        "percentile",
    }
)
"""Options that make perf_analyzer measure in windows until they are stable."""
_FLAGS = frozenset({"streaming", "async", "sync"})
_OPTIONS = _WINDOW_OPTIONS | _FLAGS | {"max-threads", "warmup-request-count", "request-parameter"}
_WINDOWS, _TRIALS, _MIN_WINDOW_MS = 3, 10, 1000
_ANY_PERCENTAGE = "1000000"
"""Stability percentage with which the first three windows count as stable."""
_WARM_UP_REQUESTS = 10
_HIDDEN = "REDACTED"
_SPARE_S = 60.0
LIMITS = (
    "its latencies start when a request is sent, so they are compared with `from_send`; waiting before the send isn't in them",
    "it has no time-out for a request, and ends at the first failed request",
)


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """Arguments of perf_analyzer, and the facts about the load that they describe."""

    arguments: tuple[str, ...]
    load: str
    """Phrase that describes the load."""
    gaps_us: tuple[int, ...] = ()
    """Gaps between arrivals for the file `GAPS`; empty if there is no such file."""
    limit_s: float
    """Time in seconds after which the execution is ended."""
    has_schedule: bool
    has_windows: bool
    """Whether perf_analyzer measures in windows, and not a fixed number of requests."""
    limits: tuple[str, ...] = field(default=LIMITS)

    @property
    def recorded(self) -> tuple[str, ...]:
        """Arguments without the values of headers, which may be secret."""
        return tuple(
            f"{argument.partition(':')[0]}:{_HIDDEN}" if previous == "-H" else argument
            for previous, argument in zip(("", *self.arguments), self.arguments, strict=False)
        )


def check(measurement: Measurement, options: Sequence[str]) -> None:
    """Check that perf_analyzer can generate the load of a measurement.

    Raises:
        ScenarioError: perf_analyzer lacks a feature that the measurement uses.
        SettingError: an option of perf_analyzer is unknown, or set by Halcyon.
    """
    target = measurement.target
    unsupported = (
        (target.api != "kserve", f"--api {target.api}"),
        (target.encoding == "typed", "--encoding typed"),
        (target.shared_memory != "none", f"--shared-memory {target.shared_memory}"),
        (target.tls.server_name is not None, f"--server-name {target.tls.server_name}"),
        (bool(target.path), f"the path {target.path} in the URL"),
        (bool(measurement.hooks.prepare), "a function that prepares requests (--prepare, --decode)"),
        (bool(measurement.hooks.finish), "a function that processes responses (--finish)"),
        (measurement.scenario.think_s > 0, "the think time of --think"),
        (
            measurement.payload.rows.least != measurement.payload.rows.most,
            f"the range --rows {measurement.payload.rows.least}..{measurement.payload.rows.most}",
        ),
        (
            target.encrypted and target.transport == "grpc" and not _authorities(target),
            "TLS without the system's certificates; for example --ca ca.crt",
        ),
    )
    for applies, feature in unsupported:
        if applies:
            raise ScenarioError(
                f"--engine perf_analyzer: perf_analyzer has no equivalent of {feature}; leave one of them out"
            )
    _check_options(options, target)


def _check_options(options: Sequence[str], target: Target) -> None:
    for option in options:
        name, sign, value = option.partition("=")
        if name not in _OPTIONS:
            raise SettingError(
                f"--perf-analyzer-option {option}: it must be one of {', '.join(sorted(_OPTIONS))}, for example "
                "--perf-analyzer-option stability-percentage=5"
            )
        if (name in _FLAGS) == bool(sign and value):
            example = name if name in _FLAGS else f"{name}=10"
            raise SettingError(
                f"--perf-analyzer-option {option}: {name} {'takes no' if name in _FLAGS else 'needs a'} value; for example "
                f"--perf-analyzer-option {example}"
            )
    if "streaming" in options and target.transport != "grpc":
        raise SettingError("--perf-analyzer-option streaming needs gRPC; for example --url grpc://localhost:8001")


def build(target: Target, scenario: Scenario, options: Sequence[str], *, rows: int, measured_s: float) -> CommandLine:
    """Return the command line for the same load.

    A schedule is repeated with the same arrivals. Callers are measured in three windows that together are as long as the
    run of Halcyon's engine. With an option for stability, perf_analyzer measures windows until three of them are stable.

    Args:
        target: server and model.
        scenario: load that Halcyon's engine generated.
        options: options of perf_analyzer as NAME or NAME=VALUE.
        rows: rows of a request.
        measured_s: length of the part that Halcyon's engine measured, in seconds.

    Raises:
        ScenarioError: the schedule has too many arrivals, or none.
    """
    has_schedule = scenario.is_open and scenario.kind != "offline"
    names = {option.partition("=")[0] for option in options}
    arguments = [*_of_target(target), "-f", TABLE, "--verbose-csv", "--input-data", DATA]
    arguments += ["-b", str(rows)] if rows > 1 else []
    gaps_us: tuple[int, ...] = ()
    limits = [*LIMITS]
    if has_schedule:
        gaps_us = _gaps_us(scenario)
        arguments += ["--request-intervals", GAPS]
        arguments += [] if names & {"sync", "async", "streaming"} else ["--async"]
        load = f"the same {count_text(len(gaps_us), 'arrival')}"
        mean = scenario.mean_rps
        load += f", {number(mean)}/s on average" if mean is not None else ""
    else:
        arguments += ["--concurrency-range", str(scenario.callers)]
        needs_async = scenario.callers > _MAX_THREADS and not names & {"sync", "streaming"}
        arguments += ["--async"] if needs_async and "async" not in names else []
        load = f"{count_text(scenario.callers, 'concurrent request')}"
    if "streaming" in names and "async" not in names:
        arguments.append("--async")
        limits.append("it sends its requests in one gRPC stream, and Halcyon's engine in single calls")
    limit_s = 3 * measured_s + _SPARE_S
    if has_schedule and not names & _WINDOW_OPTIONS:
        if not gaps_us:
            raise ScenarioError("the schedule has no arrival that perf_analyzer could repeat")
        arguments += ["--request-count", str(len(gaps_us))]
        arguments += [] if "warmup-request-count" in names else ["--warmup-request-count", str(_WARM_UP_REQUESTS)]
    else:
        window_arguments, windows, windows_s = _windows(options, measured_s)
        arguments += window_arguments
        load += f", {windows}"
        limit_s += 2 * windows_s
    for option in options:
        name, sign, value = option.partition("=")
        arguments += [f"--{name}", value] if sign else [f"--{name}"]
    return CommandLine(
        arguments=tuple(arguments),
        load=load,
        gaps_us=gaps_us,
        limit_s=limit_s,
        has_schedule=has_schedule,
        has_windows="--request-count" not in arguments,
        limits=tuple(limits),
    )


def _windows(options: Sequence[str], measured_s: float) -> tuple[list[str], str, float]:
    """Return the arguments for measuring in windows, a phrase that describes them, and their longest time in seconds."""
    settings = dict(option.partition("=")[::2] for option in options)
    window_ms = max(int(1000 * measured_s / _WINDOWS), _MIN_WINDOW_MS)
    arguments: list[str] = []
    if not settings.keys() & {"measurement-interval", "measurement-mode"}:
        arguments += ["--measurement-interval", str(window_ms)]
    window_s = _number(settings.get("measurement-interval"), window_ms) / 1000
    if not settings.keys() & {"stability-percentage", "max-trials"}:
        arguments += ["--stability-percentage", _ANY_PERCENTAGE, "--max-trials", str(_WINDOWS)]
        return arguments, f"{_WINDOWS} windows of {number(window_s)} s", _WINDOWS * window_s
    trials = _number(settings.get("max-trials"), _TRIALS)
    return arguments, f"windows of {number(window_s)} s until {_WINDOWS} of them are stable", trials * window_s


def _number(text: str | None, default: float) -> float:
    """Return the value of an option as a number. perf_analyzer itself rejects an invalid value."""
    try:
        return float(text or default)
    except ValueError:
        return default


def _gaps_us(scenario: Scenario) -> tuple[int, ...]:
    """Return the gaps before the arrivals in microseconds, rounded so that the errors don't add up.

    perf_analyzer takes no gap of 0, so arrivals at the same time are 1 us apart.
    """
    chunks, count = [], 0
    for chunk in arrivals.chunks(scenario):
        chunks.append(chunk)
        count += len(chunk)
        if count > MAX_ARRIVALS:
            raise ScenarioError(
                f"--engine perf_analyzer: the schedule has more than {MAX_ARRIVALS} arrivals; for example --duration 10s"
            )
    times = np.rint(1e6 * np.concatenate([np.zeros(1), *chunks])).astype(np.int64)
    return tuple(np.maximum(np.diff(times), 1).tolist())


def _of_target(target: Target) -> list[str]:
    """Return the arguments for the server, the model, TLS and headers."""
    over_grpc = target.transport == "grpc"
    address = f"https://{target.address}" if target.encrypted and not over_grpc else target.address
    arguments = ["-m", target.model, "-u", address, "-i", target.transport]
    arguments += ["-x", target.version] if target.version else []
    if target.encoding == "json":
        arguments += ["--input-tensor-format=json", "--output-tensor-format=json"]
    for name, value in target.headers:
        arguments += ["-H", f"{name}:{value}"]  # perf_analyzer doesn't remove a space after the colon
    if not target.encrypted:
        return arguments
    authorities = _authorities(target)
    tls = target.tls
    if over_grpc:
        arguments.append("--ssl-grpc-use-ssl")
        files = (
            ("root-certifications-file", authorities),
            ("certificate-chain-file", tls.certificate),
            ("private-key-file", tls.key),
        )
    else:
        files = (
            ("ca-certificates-file", authorities),
            ("client-certificate-file", tls.certificate),
            ("private-key-file", tls.key),
        )
    for name, path in files:
        if path:
            arguments += [f"--ssl-{'grpc' if over_grpc else 'https'}-{name}", str(Path(path).resolve())]
    return arguments


def _authorities(target: Target) -> str | None:
    """Return the file with the certificates of trusted authorities; None if there is none."""
    return target.tls.ca or ssl.get_default_verify_paths().cafile
