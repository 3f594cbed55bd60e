"""GPU utilisation of the site's Prometheus as the operator uses it: in its decision and, with source and time, in the status.

Real: Prometheus, the operator's process, the API server. What Prometheus scrapes is a page with the names and labels of NVIDIA's DCGM
exporter, the agent is imitated, and the pods are KWOK's.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from email.message import Message

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.observation_report import AUDIENCE
from tests.integration.autoscaling.test_direct_scaling import Agent, record, servers
from tests.integration.operator.test_leader_election import token
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space
from tests.integration.real_prometheus import prometheus, served

pytestmark = pytest.mark.more

AIM = 50
SCALING = {"maxReplicas": 4, "policy": "Rules", "actuator": "Direct", "targets": {"gpuUtilization": AIM}}
LIMIT_S = 150.0
"""Prometheus is asked every ten seconds."""


@dataclass
class Exporter:
    """A DCGM exporter's page: the share of each pod's GPU that works."""

    active: dict[tuple[str, str], float] = field(default_factory=dict)
    """By namespace and pod."""

    def __call__(self, _path: str, _headers: Message) -> tuple[int, str]:
        return 200, "".join(
            f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="GPU-{pod}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="1",'
            f'container="server",namespace="{namespace}",pod="{pod}"}} {share}\n'
            for (namespace, pod), share in self.active.items()
        )


@pytest.fixture(scope="module")
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture(scope="module")
def operator(cluster: Cluster, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    labels = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x"}  # so that the pod's own become exported_pod
    with served(exporter) as address:
        scraped = [{"job_name": "dcgm", "static_configs": [{"targets": [address], "labels": labels}]}]
        with prometheus(scraped) as server:
            site = (f"--prometheus-url=http://{server.address}",)
            with running(cluster, tmp_path_factory.mktemp("operator"), more=site) as started:
                started.wait_ready()
                yield started


async def test_gpu_utilization_of_prometheus_is_scaled_for_and_shown_with_its_source(
    operator: Operator, space: Space, exporter: Exporter
) -> None:
    space.serve(runtime={"gpu": {"count": 1}}, scaling=SCALING)
    (server,) = servers(space)
    exporter.active[space.namespace, server] = 0.9
    began_at, end_s = time.time(), time.monotonic() + LIMIT_S
    async with Agent(operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
        while space.replicas() != 2:
            assert time.monotonic() < end_s, space.status().get("scaling")
            await stream.send_str(record(space))
            await asyncio.sleep(0.5)
        signal = next(s for s in space.status()["scaling"]["signals"] if s["name"] == "gpuUtilization")
        assert (signal["source"], signal["target"]) == ("prometheus", str(AIM))
        # Two by now, and the second one isn't known: it counts by what is.
        assert float(signal["value"]) in [pytest.approx(90), pytest.approx(100)]
        assert began_at - 2 <= datetime.fromisoformat(signal["observedAt"]).timestamp() <= time.time()
    del exporter.active[space.namespace, server]
