"""Energy, carbon and cost: by counters, by power, and not measured with the right reason."""

from __future__ import annotations

import math

import pytest

from halcyon.scaling import gpu_cost
from halcyon.scaling.gpu_cost import Ledger, Spent
from halcyon_measure.breakdown import energy
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.errors import SettingError
from halcyon_measure.results.observations import GpuSample, Observations, Readings, Series, ServerSample
from halcyon_measure.results.sections.energy import Energy


def server(*gauges: GpuSample, pod: str = "a") -> Readings[ServerSample]:
    return Readings(pod, tuple(ServerSample(float(at), gpus={"GPU-0": gauge}) for at, gauge in enumerate(gauges)))


def build(prices: Prices | None = None, *, rows: int = 100, **seen: object) -> Energy:
    observed = Observations(**seen)  # type: ignore[arg-type]  # fields of the class
    return energy.build(observed, prices or Prices(), rows=rows, rows_per_s=rows / 10, wall_s=10)


COUNTER = server(*(GpuSample(energy_j=100 + 200.0 * n, power_w=150) for n in range(11)))
POWER = server(*(GpuSample(power_w=150) for _ in range(11)))
IDLE = server(GpuSample(energy_j=0, power_w=50), GpuSample(energy_j=50, power_w=50))


def test_triton_counter_comes_before_the_integral_of_power() -> None:
    energy = build(servers=(COUNTER,))
    assert energy.gpu.value == 2000
    assert energy.per_inference.value == 20
    assert "nv_energy_consumption" in energy.gpu.source


def test_integral_of_power_is_called_so() -> None:
    energy = build(servers=(POWER,))
    assert energy.gpu.value == 1500
    assert energy.gpu.source.startswith("integral of power")


def test_idle_power_is_left_out_of_the_net_energy() -> None:
    energy = build(servers=(COUNTER,), idle=(IDLE,))
    assert energy.idle_power.value == 50
    assert energy.net_per_inference.value == pytest.approx((2000 - 50 * 10) / 100)


def test_a_shared_gpu_counts_once() -> None:
    other = server(*(GpuSample(energy_j=100 + 200.0 * n) for n in range(11)), pod="b")
    assert build(servers=(COUNTER, other)).gpu.value == 2000


def test_carbon_and_cost_follow_from_the_given_figures() -> None:
    energy = build(Prices(g_per_kwh=360, per_hour=3.6), servers=(COUNTER,))
    assert energy.carbon_per_inference.value == pytest.approx(20 / 3.6e6 * 360 * 1000)
    assert energy.cost_per_thousand.value == pytest.approx(3.6 / 36000 * 1000)


def test_cost_is_computed_as_in_the_status() -> None:
    spent = Spent(busy=3600.0, inferences=36000, seconds=3600)
    known = gpu_cost.cost(Ledger(hours=((1, spent),)), 3.6).per_thousand
    assert energy.cost_per_thousand(3.6, 10.0) == pytest.approx(known)


DCGM = Series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "{}", ((0, 1000.0), (10, 501_000.0)))


def test_dcgm_counts_in_millijoules() -> None:
    assert build(gpu_energy=(DCGM,)).gpu.value == 500


def scraped(*points: tuple[float, float], labels: str = "{}") -> Series:
    return Series("kepler_pod_cpu_joules_total", labels, points)


@pytest.mark.parametrize(
    ("points", "joules"),
    [
        # 20 J/s, and the run is 10 s long.
        ([(2, 100), (5, 160), (8, 220)], 200),
        # The exporter measures every 4 s, and is scraped every 2 s.
        ([(1, 100), (3, 100), (5, 180), (7, 180), (9, 260)], 200),
        # The pod ran in the second half of the run only.
        ([(5, 0), (6, 20), (7, 40), (8, 60), (9, 80), (10, 100)], 110),
    ],
)
def test_energy_between_scrapes_is_extended_to_the_run(points: list[tuple[float, float]], joules: float) -> None:
    energy = build(servers=(COUNTER,), cpu_energy=(scraped(*points),), cpu_energy_source="Kepler's counter")
    assert energy.cpu.value == pytest.approx(joules)


def test_a_counter_of_idle_energy_may_stand_still() -> None:
    counters = scraped((0, 100), (10, 300), labels="dynamic"), scraped((0, 0), (10, 0), labels="idle")
    assert build(cpu_energy=counters).cpu.value == 200
    assert "stands still" in build(cpu_energy=counters[1:], cpu_energy_source="Kepler").cpu.reason


def test_energy_that_was_scraped_once_is_not_measured() -> None:
    energy = build(cpu_energy=(scraped((4, 100)),), cpu_energy_source="Kepler's counter")
    assert energy.cpu.value is None
    assert (
        energy.cpu.reason
        == "Prometheus scraped Kepler's counter less than twice in the run; for example --duration 60s"
    )


ABSENT = {
    "no page": (
        {"servers": (Readings("a", (), "http://a:8002/metrics doesn't answer: refused"),)}, "doesn't answer: refused"
    ),
    "no GPU": ({"servers": (Readings("a", (ServerSample(0.0), ServerSample(1.0))),)}, "neither energy nor power"),
    "backwards": ({"servers": (server(GpuSample(energy_j=9), GpuSample(energy_j=4)),)}, "ran backwards at 1 s, from 9"),
    "still": ({"servers": (server(GpuSample(energy_j=9), GpuSample(energy_j=9)),)}, "stands still at 9"),
    "no Prometheus": ({"no_gpu_energy": "http://p:9090 doesn't answer: timed out"}, "http://p:9090 doesn't answer"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ABSENT)
def test_absent_energy_is_not_measured_and_has_its_reason(kind: str) -> None:
    seen, reason = ABSENT[kind]
    energy = build(Prices(g_per_kwh=400), **seen)  # type: ignore[arg-type]  # fields of the class
    for figure in (energy.gpu, energy.per_inference, energy.net_per_inference, energy.carbon_per_inference):
        assert figure.value is None
        assert reason in figure.reason


def test_power_stands_in_for_a_counter_that_stands_still() -> None:
    energy = build(servers=(server(*(GpuSample(energy_j=9, power_w=100) for _ in range(3))),))
    assert energy.gpu.value == 200
    assert "stands still at 9: not believed" in energy.gpu.reason


def test_missing_carbon_intensity_is_named() -> None:
    energy = build(servers=(COUNTER,))
    assert "--carbon-intensity 380" in energy.carbon_per_inference.reason
    assert "--price-per-hour" in energy.cost_per_thousand.reason


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 5000])
def test_impossible_carbon_intensities_are_refused(value: float) -> None:
    with pytest.raises(SettingError, match=r"carbon-intensity is .*; it must be 0 to 2000 g/kWh, for example"):
        Prices(g_per_kwh=value).check()


@pytest.mark.parametrize("value", [-0.5, math.nan, 1e6])
def test_impossible_prices_are_refused(value: float) -> None:
    with pytest.raises(SettingError, match=r"price-per-hour is .*; it must be 0 to 10000 an hour, for example"):
        Prices(per_hour=value).check()
