"""The chart's query for CPU as a target: what Prometheus' own engine makes of cAdvisor's and kube-state-metrics' series."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from halcyon.control.autoscaling.sources.site_queries import SiteQueries
from tests.integration.real_prometheus import programs
from tests.unit.control.autoscaling.autoscaler_simulation import OperatorReplica, live

pytestmark = pytest.mark.more

VALUES = Path(__file__).parents[3] / "charts" / "halcyon" / "values.yaml"
NAME = "cpu-utilization"
MINUTES = 10
NAMES = {"namespace": "team", "container": "triton"}


def series(metric: str, values: str, **labels: str) -> dict[str, str]:
    shown = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{metric}{{{shown}}}", "values": values}


def used(pod: str, cores: float, **labels: str) -> dict[str, str]:
    """cAdvisor's counter of a container that uses this many cores, sampled every 30 s."""
    more = {"cpu": "total", "id": f"/{pod}", **NAMES, **labels}
    return series("container_cpu_usage_seconds_total", f"0+{30 * cores:g}x{2 * MINUTES}", pod=pod, **more)


def requested(pod: str, cores: float, **labels: str) -> dict[str, str]:
    more = {"resource": "cpu", "unit": "core", **NAMES, **labels}
    return series("kube_pod_container_resource_requests", f"{cores:g}x{2 * MINUTES}", pod=pod, **more)


def query() -> str:
    """Return the query as the operator sends it for the model digits."""
    sent: list[str] = []

    async def ask(text: str) -> float:
        sent.append(text)
        return 0.0

    async def scenario(world: OperatorReplica) -> None:
        world.model(targets={"metric": {"query": NAME, "value": 80}})
        queries = yaml.safe_load(VALUES.read_text())["prometheus"]["queries"]
        await SiteQueries(world.caches, world.specs, queries, (ask,), world.clock).poll()

    live(scenario)
    (text,) = sent
    return text


def check(folder: Path, expected: float | None, *series: dict[str, str]) -> None:
    """Evaluate the query with promtool after ten minutes of these series."""
    samples = [] if expected is None else [{"labels": "{}", "value": expected}]
    document = {
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": list(series),
                "promql_expr_test": [
                    {"expr": query(), "eval_time": f"{MINUTES}m", "exp_samples": samples},
                ],
            }
        ],
    }
    file = folder / "cpu.yaml"
    file.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [str(programs() / "promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


A, B = "digits-a-7d9f8-x2x4z", "digits-b-55c6b-q9q9q"


def test_the_percentages_of_a_models_servers_are_summed(tmp_path: Path) -> None:
    others = [
        (used(pod, 4, **labels), requested(pod, 1, **labels))
        for pod, labels in (
            (A, {"namespace": "other"}),
            (A, {"container": "istio-proxy"}),
            ("digits-a-a-7d9f8-x2x4z", {}),  # of the model digits-a
            ("digits-balancer-7d9f8-x2x4z", {}),
        )
    ]
    check(
        tmp_path,
        75 + 25,
        *(used(A, 1.5), requested(A, 2), used(B, 0.5), requested(B, 2)),
        *(series for pair in others for series in pair),
    )


def test_a_restarted_container_and_a_second_exporter_count_once(tmp_path: Path) -> None:
    check(
        tmp_path,
        100,
        used(A, 0.5, id="/before"),
        used(A, 0.5, id="/after"),
        *(requested(A, 1, instance="one"), requested(A, 1, instance="two")),
    )


@pytest.mark.parametrize("known", [0, 1])
def test_a_pod_without_a_request_has_no_percentage(tmp_path: Path, known: int) -> None:
    pods = [used(A, 1.5), used(B, 1)] + [requested(B, 2)] * known
    check(tmp_path, 50 if known else None, *pods)
