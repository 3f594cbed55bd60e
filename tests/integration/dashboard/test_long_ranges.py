"""Longer ranges of the charts and the GPUs of the cluster, from a real Prometheus with a day of series."""

import time
from collections.abc import Iterator

import pytest

from halcyon.dashboard.history import FIELDS, MAX_POINTS
from halcyon.dashboard.ports import Name
from halcyon.dashboard.site import SiteMetrics
from halcyon.signals.prometheus.client import PrometheusSite
from halcyon.signals.prometheus.source import PrometheusSource
from tests.integration.real_prometheus import Prometheus, prometheus

STEP_S = 60
DAY_S = 86400
LABELS = 'namespace="team-a",model_deployment="digits",pod="p"'
GAUGES = {
    "halcyon_model_spec_replicas": 3,
    "halcyon_model_replicas_ready": 2,
    "halcyon_model_replicas_desired": 4,
    "halcyon_model_gpu_utilization_ratio": 0.5,
    "halcyon_model_queue_requests": 7,
}
RATES = {
    # A fifth of the requests repeat rejected ones.
    "halcyon_agent_requests_total": 25.0,
    "halcyon_agent_client_retries_total": 5.0,
    "halcyon_agent_rejected_total": 6.0,
    "halcyon_agent_errors_total": 0.4,
    "halcyon_agent_server_rejected_total": 0.6,
    "nv_inference_queue_duration_us_total": 40_000.0,
    "nv_inference_compute_infer_duration_us_total": 60_000.0,
    "nv_inference_request_success_total": 20.0,
    "nv_inference_count_total": 40.0,
    "nv_inference_exec_count_total": 10.0,
}
"""Growth of each counter per second."""


def series(end: int) -> str:
    """A day of the model's series, as OpenMetrics. Triton's counters have no suffix, so they are written as gauges."""
    times = range(end - DAY_S, end, STEP_S)
    lines = ["# TYPE kube_node_status_allocatable gauge"]
    for resource, gpus in (
        ("nvidia_com_gpu", 8),
        ("nvidia_com_gpu_shared", 16),
        ("nvidia_com_mig_1g_10gb", 7),
        ("amd_com_gpu", 4),
    ):
        lines += [f'kube_node_status_allocatable{{resource="{resource}",node="n"}} {gpus} {at}' for at in times]
    lines += [f'kube_node_status_allocatable{{resource="memory",node="n"}} 1e12 {at}' for at in times]
    for name, value in GAUGES.items():
        lines += [f"# TYPE {name} gauge", *(f"{name}{{{LABELS}}} {value} {at}" for at in times)]
    for name, rate in RATES.items():
        shown = name.removesuffix("_total") if name.startswith("nv_") else name
        # Beside the served model, the pods have a step of it.
        of = {f'{LABELS},model="scan"': rate, f'{LABELS},model="step"': 100} if shown != name else {LABELS: rate}
        lines.append(f"# TYPE {shown} gauge")
        lines += [f"{shown}{{{labels}}} {each * (at - times[0])} {at}" for labels, each in of.items() for at in times]
    failure = "nv_inference_request_failure"
    lines.append(f"# TYPE {failure} gauge")
    for reason, rate in (("BACKEND", 0.2), ("CANCELED", 9.0)):
        labels = f'{LABELS},model="scan",reason="{reason}"'
        lines += [f"{failure}{{{labels}}} {rate * (at - times[0])} {at}" for at in times]
    for name, reasons in (("nv_inference_request_success", ("",)), (failure, ("BACKEND",))):
        rate = 19.0 if name.endswith("success") else 1.0
        lines += [
            f'{name}{{{LABELS.replace("digits", "bare")},model="bare",reason="{reason}"}} {rate * (at - times[0])} {at}'
            for reason in reasons
            for at in times
        ]
    # One model of this name in each of two clusters; another Prometheus adds the label to the series of this one.
    for name, each in (("halcyon_agent_requests_total", 7.0), ("halcyon_agent_rejected_total", 0.7)):
        lines += [
            f'{name}{{{LABELS.replace("digits", "twin")},cluster="{cluster}"}} {each * factor * (at - times[0])} {at}'
            for cluster, factor in (("eu", 1), ("us", 10))
            for at in times
        ]
    bucket = "halcyon_agent_request_duration_seconds_bucket"
    lines.append(f"# TYPE {bucket} gauge")
    for le, share in (("0.1", 0.5), ("0.2", 1.0), ("+Inf", 1.0)):
        lines += [f'{bucket}{{{LABELS},le="{le}"}} {20 * share * (at - times[0])} {at}' for at in times]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def stored() -> Iterator[Prometheus]:
    with prometheus([], past=series(int(time.time()) // STEP_S * STEP_S)) as running:
        yield running


def site(running: Prometheus, cluster: str = "") -> SiteMetrics:
    source = PrometheusSource(PrometheusSite(f"http://{running.address}")).beside(15.0)
    return SiteMetrics(source, monotonic=time.monotonic, wall=time.time, cluster=cluster)


async def test_one_query_has_a_day_of_all_fields(stored: Prometheus) -> None:
    history = await site(stored).history(Name("team-a", "digits"), "scan", 24)
    middle = {field: history[field][MAX_POINTS // 2] for field in FIELDS}
    replicas = {
        "replicas": 3,
        "ready": 2,
        "desired": 4,
        "gpu": 50,
        "batch": 4,
        "waiting": 7,
        "rate": 20,
        "in_triton": 5,
    }
    # More requests are refused by servers, as balancers count, than Triton counts as failed.
    shares = {"rejected": 5, "lost": 2, "failed": 3, "errors": 10}
    expected = replicas | shares | {"p50": 100, "p95": 190, "p99": 198}
    assert middle == pytest.approx(expected, rel=0.01)
    assert history["step"] == 240


async def test_requests_of_a_model_without_balancers_are_those_in_triton(stored: Prometheus) -> None:
    history = await site(stored).history(Name("team-a", "bare"), "bare", 24)
    middle = {field: history[field][MAX_POINTS // 2] for field in ("rate", "rejected", "failed")}
    assert middle == {"rate": pytest.approx(20, rel=0.01), "rejected": None, "failed": pytest.approx(5, rel=0.01)}


@pytest.mark.parametrize(("cluster", "rate"), [("eu", 7.0), ("us", 70.0), ("", 77.0), ("e.", None)])
async def test_charts_show_the_model_of_their_own_cluster(cluster: str, rate: float | None, stored: Prometheus) -> None:
    history = await site(stored, cluster).history(Name("team-a", "twin"), "scan", 24)
    assert history["rate"][MAX_POINTS // 2] == (rate and pytest.approx(rate, rel=0.01))


async def test_another_model_has_no_points(stored: Prometheus) -> None:
    history = await site(stored).history(Name("team-a", "other"), "scan", 24)
    assert all(value is None for field in FIELDS for value in history[field])


async def test_gpus_of_nodes_are_added_up(stored: Prometheus) -> None:
    metrics = site(stored)
    metrics.allocatable()
    assert metrics._refresh is not None
    await metrics._refresh
    # Whole, shared and divided ones, as models may request them.
    assert metrics.allocatable()["gpus"] == 8 + 16 + 7 + 4
