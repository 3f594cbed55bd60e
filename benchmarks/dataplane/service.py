"""Part `service`: a plain ClusterIP Service, and the balancers' Service, compared with a pod called directly. gRPC.

It runs on the embedded cluster. A ClusterIP Service is implemented in the kernel. It costs almost nothing, but a gRPC
channel always uses the same pod, even if other pods are idle.
"""

import time
from collections import defaultdict
from statistics import median
from typing import Any

from benchmarks.dataplane import h2load, stage, throughput, tritons
from benchmarks.dataplane.results import PartResults
from benchmarks.dataplane.throughput import Turn
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.dataplane.ways import DIRECT, HALCYON, HALCYON_2, Way
from demo.kube import COMPONENT_LABEL, OWNER_LABEL, Kube, is_ready
from demo.models import GRPC_PORT, TRITON_METRICS_PORT
from e2e.cluster.progress import say

_NAME, _PLAIN = "plain", "plain-service"
_WORK = Work(_NAME)
SERVICE = "service"


def run(kube: Kube, *, short: bool) -> PartResults:
    """Run the part. Full: 6 rounds of 1.5 s, 1 minute. Short: 2 rounds."""
    rounds, turn_s = (2, 1.0) if short else (6, 1.5)
    kube.apply(_files(), _service())
    document = stage.digits(_NAME, replicas=2, balancers=2)
    document["spec"] |= {
        "model": {
            "source": {
                "configMap": {
                    "name": _NAME,
                    "items": [
                        {"key": "config.pbtxt", "path": "config.pbtxt"},
                        {"key": "model.py", "path": "1/model.py"},
                    ],
                }
            }
        },
        "batching": {"maxBatchSize": 16},
    }
    turns: dict[str, list[Turn]] = defaultdict(list)
    with stage.served(kube, document, replicas=2), h2load.loader(tritons.request_body(_NAME)) as loader:
        servers = [Triton(pod["status"]["podIP"], _NAME, TRITON_METRICS_PORT) for pod in _ready(kube, "server")]
        balancers = [f"{pod['status']['podIP']}:{GRPC_PORT}" for pod in _ready(kube, "balancer")]
        ways = [
            Way(DIRECT, (f"{servers[0].address}:{GRPC_PORT}",)),
            Way(SERVICE, (kube.must_address(_PLAIN, GRPC_PORT),)),
            Way(HALCYON, (kube.must_address(_NAME, GRPC_PORT),)),
            Way(HALCYON_2, tuple(balancers)),
        ]
        time.sleep(1.0)  # each agent has polled its servers once
        rates = {way.name: throughput.run_turn(loader, way, servers, throughput.FIRST).per_s for way in ways}
        reached_pods = 0
        for number in range(rounds):
            for way in [*ways[number % len(ways) :], *ways[: number % len(ways)]]:
                before = [server.answered() for server in servers]
                turns[way.name].append(throughput.run_turn(loader, way, servers, round(rates[way.name] * turn_s)))
                if way.name == SERVICE:
                    after = [server.answered() for server in servers]
                    reached_pods = max(reached_pods, sum(b > a for a, b in zip(before, after, strict=True)))
            summary = ", ".join(f"{name} {way_turns[-1].per_s:.0f}/s" for name, way_turns in turns.items())
            say(f"bench: round {number + 1} of {rounds}: {summary}")
    kube("delete", "service", _PLAIN, "--ignore-not-found")
    shares = {
        name: round(median(a.per_s / b.per_s for a, b in zip(way_turns, turns[DIRECT], strict=True)), 3)
        for name, way_turns in turns.items()
    }
    return PartResults(
        figures={},
        details={"share": shares, "pods_that_one_channel_reaches": reached_pods, "rounds": rounds},
        stand_ins=("the pods run Triton on CPUs; the model does no work",),
    )


def _ready(kube: Kube, component: str) -> list[dict[str, Any]]:
    return [pod for pod in kube.pods(_NAME, component) if is_ready(pod)]


def _files() -> dict[str, Any]:
    data = {path.removeprefix("1/"): content for path, content in _WORK.files.items()}
    # The ModelDeployment configures batching.
    data["config.pbtxt"] = data["config.pbtxt"].replace("dynamic_batching { }", "")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NAME}, "data": data}


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _PLAIN},
        "spec": {
            "selector": {OWNER_LABEL: _NAME, COMPONENT_LABEL: "server"},
            "ports": [{"name": "grpc", "port": GRPC_PORT, "targetPort": GRPC_PORT}],
        },
    }
