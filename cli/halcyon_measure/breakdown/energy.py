"""Energy, carbon and cost of an inference.

Energy is read from counters if there are any; otherwise it is the integral of power.

| what | source, in this order |
| --- | --- |
| GPU | Triton's nv_energy_consumption; DCGM's counter in Prometheus; the integral of Triton's power |
| CPU | RAPL on the server's machine; Kepler's counter in Prometheus |

A missing measurement is never replaced by an assumed value, such as typical power or a country's carbon intensity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from halcyon_measure.breakdown import growth
from halcyon_measure.errors import SettingError
from halcyon_measure.results.figure import Figure, Unit, unmeasured
from halcyon_measure.results.observations import RAPL, Observations, Readings, Series, ServerSample
from halcyon_measure.results.sections.energy import Energy

MAX_G_PER_KWH = 2000.0
"""Maximum carbon intensity in g/kWh. Electricity from coal has about 1,000 g/kWh at the plant."""
MAX_PRICE_PER_HOUR = 10_000.0
_J_PER_KWH = 3.6e6
_TRITON = "nv_energy_consumption"
_DCGM = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Prices:
    """Carbon intensity and price given by the user; None for a value that isn't given."""

    g_per_kwh: float | None = None
    per_hour: float | None = None
    """Price per hour of all measured replicas together, in any currency."""

    def check(self) -> Prices:
        """Check that these values are possible, and return them.

        Raises:
            SettingError: a value is negative, not a number, or above its limit.
        """
        _check_range("carbon-intensity", self.g_per_kwh, MAX_G_PER_KWH, "g/kWh", "--carbon-intensity 380")
        _check_range("price-per-hour", self.per_hour, MAX_PRICE_PER_HOUR, "an hour", "--price-per-hour 2.50")
        return self


def _check_range(name: str, value: float | None, maximum: float, unit: str, example: str) -> None:
    if value is not None and not (math.isfinite(value) and 0 <= value <= maximum):
        raise SettingError(f"{name} is {value:g}; it must be 0 to {maximum:g} {unit}, for example {example}")


def cost_per_thousand(price_per_hour: float, inferences_per_s: float) -> float:
    """Return the price of a thousand inferences, computed as in the status of a ModelDeployment."""
    return price_per_hour / (3600 * inferences_per_s) * 1000


def build(observations: Observations, prices: Prices, *, rows: int, rows_per_s: float, wall_s: float) -> Energy:
    """Return the section `energy` of a run with `rows` answered rows, whose samples span `wall_s` seconds.

    The cost is computed from the rate `rows_per_s`, because the samples also cover the wait for the last answers, in
    which no more requests are sent.
    """
    gpu, idle = _gpu(observations, wall_s), _idle_power(observations)
    cpu = _cpu(observations, wall_s)
    gross = None if gpu.value is None else gpu.value + (cpu.value or 0.0)
    no_rows = "" if rows else "no row was answered"
    source = "GPU and CPU" if cpu.value is not None else f"GPU alone; CPU: {cpu.reason}"
    net = None if gross is None or idle.value is None or gpu.value is None else gross - idle.value * wall_s
    intensity = _setting(prices.g_per_kwh, "g/kWh", "no carbon intensity is given; for example --carbon-intensity 380")
    price = _setting(prices.per_hour, "price/h", "no price is given; for example --price-per-hour 2.50")
    carbon = None if gross is None or prices.g_per_kwh is None else gross / _J_PER_KWH * prices.g_per_kwh * 1000
    return Energy(
        gpu=gpu,
        cpu=cpu,
        idle_power=idle,
        per_inference=_per_row(gross, "J", rows, source, no_rows or gpu.reason),
        net_per_inference=_per_row(
            net, "J", rows, f"{source}; without idle power", no_rows or gpu.reason or idle.reason
        ),
        carbon_intensity=intensity,
        carbon_per_inference=_per_row(carbon, "mg", rows, source, no_rows or gpu.reason or intensity.reason),
        price_per_hour=price,
        cost_per_thousand=_per_row(
            None if prices.per_hour is None or not rows else rows * cost_per_thousand(prices.per_hour, rows_per_s),
            "price",
            rows,
            "price per hour over inferences per hour",
            no_rows or price.reason,
        ),
    )


def integral(points: Points) -> float | None:
    """Return the integral of points (time in seconds, value) by the trapezoidal rule.

    The result is None with fewer than two points.
    """
    if len(points) < 2:  # an interval has two ends
        return None
    return sum((t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(points))


def _gpu(observations: Observations, wall_s: float) -> Figure:
    no_page = next(
        (readings.reason for readings in observations.servers if readings.reason and not readings.samples), ""
    )
    counters, powers = _by_gpu(observations.servers)
    doubts: list[str] = []
    if counters:
        total, doubts = _sum(counters, _TRITON)
        if total is not None:
            return _energy(total, _count(counters), f"Triton's counter {_TRITON}")
    if observations.gpu_energy:
        total, dcgm_doubts = _scraped(observations.gpu_energy, _DCGM, wall_s)
        if total is not None:
            n = sum(len(series.points) for series in observations.gpu_energy)
            return _energy(total / 1000, n, f"DCGM's counter {_DCGM} in Prometheus")
        doubts += dcgm_doubts
    integrals = [integral(points) for points in powers.values()]
    energies = [value for value in integrals if value is not None]
    if energies and len(energies) == len(integrals) and sum(energies) > 0:
        doubt = "; ".join(doubts)
        return _energy(sum(energies), _count(powers), "integral of power, sampled once a second", doubt)
    reasons = [*doubts]
    if not counters and not powers:
        reasons.append(no_page or "Triton publishes neither energy nor power of a GPU")
    if not observations.gpu_energy:
        reasons.append(
            observations.no_gpu_energy or "no Prometheus is given; for example --prometheus http://prometheus:9090"
        )
    return unmeasured("J", "; ".join(reasons))


def _cpu(observations: Observations, wall_s: float) -> Figure:
    if not observations.cpu_energy:
        return unmeasured("J", observations.no_cpu_energy or "neither RAPL nor Kepler's metrics can be read")
    source = observations.cpu_energy_source
    if all(series.name == RAPL for series in observations.cpu_energy):
        total, doubts = _sum({series.labels: series.points for series in observations.cpu_energy}, source)
    else:
        total, doubts = _scraped(observations.cpu_energy, source, wall_s)
    if total is None:
        return unmeasured("J", "; ".join(dict.fromkeys(doubts)))
    return _energy(total, sum(len(series.points) for series in observations.cpu_energy), source)


def _idle_power(observations: Observations) -> Figure:
    """Return the power of the GPUs before the load, in watts.

    It is computed from their energy counters if possible, otherwise from their power samples.
    """
    if not any(readings.samples for readings in observations.idle):
        return unmeasured("W", "idle power isn't measured, because there is no source of energy")
    counters, powers = _by_gpu(observations.idle)
    seconds = max((points[-1][0] - points[0][0] for points in counters.values()), default=0.0)
    total, _ = _sum(counters, _TRITON) if counters and seconds > 0 else (None, [])
    if total is not None:
        return Figure(
            value=total / seconds, unit="W", n=_count(counters), source=f"Triton's counter {_TRITON}, before the load"
        )
    means = [sum(value for _, value in points) / len(points) for points in powers.values() if points]
    if means:
        return Figure(value=sum(means), unit="W", n=_count(powers), source="mean power before the load")
    return unmeasured("W", "neither a counter nor the power of a GPU could be read before the load")


def _by_gpu(servers: Sequence[Readings[ServerSample]]) -> tuple[dict[str, Points], dict[str, Points]]:
    """Return the energy counters and the powers, by GPU.

    If two servers publish the same GPU, only the values from the first server are used.
    """
    counters: dict[str, list[tuple[float, float]]] = {}
    powers: dict[str, list[tuple[float, float]]] = {}
    owners: dict[str, str] = {}
    for server in servers:
        for sample in server.samples:
            for uuid, gpu in sample.gpus.items():
                if owners.setdefault(uuid, server.pod) != server.pod:
                    continue
                if gpu.energy_j is not None:
                    counters.setdefault(uuid, []).append((sample.at_s, gpu.energy_j))
                if gpu.power_w is not None:
                    powers.setdefault(uuid, []).append((sample.at_s, gpu.power_w))
    return dict(counters), dict(powers)


def _sum(points_by_counter: Mapping[str, Points], name: str) -> tuple[float | None, list[str]]:
    """Return the total growth of all counters; None with the reasons if the growth of one of them isn't plausible."""
    total, doubts = 0.0, []
    for points in points_by_counter.values():
        increase, doubt = growth.counter(points, name)
        if increase is None:
            doubts.append(f"{doubt}: not believed")
        else:
            total += increase
    return (None, doubts) if doubts else (total, [])


def _scraped(counters: Sequence[Series], name: str, wall_s: float) -> tuple[float | None, list[str]]:
    """Return the growth of counters that Prometheus scraped, over `wall_s` seconds from time 0.

    If one of them isn't plausible, or none has grown, return None and the reasons. One alone may stand still: Kepler
    counts idle energy apart.
    """
    total, doubts = 0.0, []
    for series in counters:
        if len(series.points) < 2:  # a difference needs two
            doubts.append(f"Prometheus scraped {name} less than twice in the run; for example --duration 60s")
            continue
        if any(later < earlier for (_, earlier), (_, later) in pairwise(series.points)):
            doubts.append(f"{growth.counter(series.points, name)[1]}: not believed")
            continue
        # An exporter may repeat a value in several scrapes.
        points = [series.points[0], *(new for old, new in pairwise(series.points) if new[1] != old[1])]
        if len(points) > 1:
            total += (points[-1][1] - points[0][1]) * _extrapolation([at_s for at_s, _ in points], wall_s)
    if counters and not doubts and not total:
        doubts.append(f"{name} stands still: not believed")
    return (None, list(dict.fromkeys(doubts))) if doubts else (total, [])


def _extrapolation(times: Sequence[float], wall_s: float) -> float:
    """Return the factor from the growth between the first and the last time to that over the whole run.

    As in Prometheus's `increase`, a counter that begins or ends more than a scrape interval within the run is assumed
    to begin or end there.
    """
    span_s = times[-1] - times[0]
    interval_s = span_s / (len(times) - 1)
    beyond = (
        distance if distance <= 1.1 * interval_s else interval_s / 2
        for distance in (max(times[0], 0.0), max(wall_s - times[-1], 0.0))
    )
    return (span_s + sum(beyond)) / span_s


def _count(points_by_counter: Mapping[str, Points]) -> int:
    return sum(len(points) for points in points_by_counter.values())


def _energy(value: float, n: int, source: str, reason: str = "") -> Figure:
    return Figure(value=value, unit="J", n=n, source=source, reason=reason)


def _setting(value: float | None, unit: Unit, reason: str) -> Figure:
    return Figure(value=value, unit=unit, n=0, source="given", reason="" if value is not None else reason)


def _per_row(value: float | None, unit: Unit, rows: int, source: str, reason: str) -> Figure:
    if value is None or not rows:
        return unmeasured(unit, reason or "it wasn't measured", source)
    return Figure(value=value / rows, unit=unit, n=rows, source=source)
