"""Canaries of the digits model on the embedded cluster under 150 requests/s: how soon each fault ends its canary."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from demo import models, setup
from demo.kube import Kube, wait_for
from demo.models import GRPC_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load

CLUSTER, NAME = "canaries", "digits"
RATE_RPS, PAUSE_S = 150.0, 60
FAULTS: dict[str, dict[str, str]] = {
    "p95 x 8": {"gpu_ms": "60"},
    "p95 x 2": {"gpu_ms": "16"},
    "every answer fails": {"failing": "1"},
    "5 % fail": {"failing": "0.05"},
}
"""Parameters of the model by fault; its other parameters are those of the stable revision."""
_GOOD = {"gpu_ms": "5", "gpu_ms_per_row": "0.5", "failing": "0.001"}
_FAILING = """

import random

_Answers = TritonPythonModel


class TritonPythonModel(_Answers):
    def initialize(self, args):
        super().initialize(args)
        self._failing = float(json.loads(args["model_config"])["parameters"]["failing"]["string_value"])

    def execute(self, requests):
        error = pb_utils.TritonError("this revision knows no answer")
        return [
            pb_utils.InferenceResponse(error=error) if random.random() < self._failing else answer
            for answer in super().execute(requests)
        ]
"""
"""Addition to the model's file: a share of the requests is answered with an error, which Triton counts as a success."""


@dataclass(frozen=True)
class CanaryResult:
    """Result of a canary on the cluster."""

    fault: str
    seconds: float | None
    """Time from the canary's first answer to the end of its part of the requests; None: it didn't end in time."""
    phase: str
    why: str


def model(parameters: dict[str, str]) -> dict[str, Any]:
    """Return the ModelDeployment with these parameters: five pods, and a canary of one step."""
    deployment = models.variant(NAME, replicas=5, gpus=1)
    deployment["spec"]["model"]["parameters"] = _GOOD | parameters
    steps = [{"weight": 20, "pause": {"duration": f"{PAUSE_S}s"}}]
    deployment["spec"]["rollout"] = {"strategy": "Canary", "canary": {"steps": steps}}
    return deployment


def serve_stable_revision(kube: Kube) -> None:
    """Serve the good revision."""
    files = models.documents()["ConfigMap"]
    files["data"]["model.py"] += _FAILING
    kube.apply(files, model({}))
    models.wait_until_served(kube, NAME, replicas=5)
    wait_for(lambda: _rollout(kube).get("phase") == "Complete", goal="the first rollout", limit_s=60)


def canary(kube: Kube, fault: str, parameters: dict[str, str], *, limit_s: float) -> CanaryResult:
    """Roll out a canary with these parameters, and return how it ended."""
    kube.apply(model(parameters))
    wait_for(lambda: "canary" in _rollout(kube), goal="a canary", limit_s=30, every_s=0.05)
    first_s: float | None = None
    until = time.monotonic() + 60 + limit_s
    rollout: dict[str, Any] = {}
    while time.monotonic() < until:
        rollout = _rollout(kube)
        if first_s is None and _answered(kube):
            first_s = time.monotonic()
            until = first_s + limit_s
        if "canary" not in rollout:
            seconds = None if first_s is None else time.monotonic() - first_s
            why = str((rollout.get("failed") or {}).get("message") or rollout.get("message") or "")
            return CanaryResult(fault, seconds, str(rollout.get("phase")), why)
        time.sleep(0.1)
    return CanaryResult(fault, None, str(rollout.get("phase")), str(rollout.get("message")))


def run(faults: Iterable[str], *, equal: int) -> list[CanaryResult]:
    """Return how these canaries ended on a cluster of their own, and then this number of canaries without a fault."""
    installation = setup.install(CLUSTER, step=lambda title: print(title, flush=True))
    ended: list[CanaryResult] = []
    try:
        serve_stable_revision(installation.kube)
        load = Load(
            address=installation.kube.must_address(NAME, GRPC_PORT),
            model=NAME,
            rate_rps=RATE_RPS,
            clients=2048,
            duration_s=3000,
        )
        with RunningLoad(load) as running:
            running.began_s()
            time.sleep(10)
            for fault in faults:
                ended.append(canary(installation.kube, fault, FAULTS[fault], limit_s=150))
                print(ended[-1], flush=True)
                installation.kube.apply(model({}))
                wait_for(lambda: _settled(installation.kube), goal="the way back", limit_s=120)
                time.sleep(5)
            for number in range(equal):
                ended.append(canary(installation.kube, "equal", {"number": str(number)}, limit_s=PAUSE_S + 90))
                print(ended[-1], flush=True)
                wait_for(lambda: _settled(installation.kube), goal="the promotion", limit_s=120)
                time.sleep(5)
            print(running.stop(), flush=True)
    finally:
        setup.remove(CLUSTER, step=lambda title: print(title, flush=True))
    return ended


def _rollout(kube: Kube) -> dict[str, Any]:
    return dict(((kube.model(NAME) or {}).get("status") or {}).get("rollout") or {})


def _settled(kube: Kube) -> bool:
    return _rollout(kube).get("phase") in {"Complete", "RolledBack"} and models.ready_servers(kube, NAME) == 5


def _answered(kube: Kube) -> bool:
    """Return whether a pod of the canary has completed a request, by Triton's own counters."""
    revision = str(((kube.model(NAME) or {}).get("status") or {}).get("revision", {}).get("target", ""))
    for pod in kube.pods(NAME, "server"):
        if not revision.endswith(pod["metadata"]["labels"].get("serving.halcyon.dev/revision", "?")):
            continue
        page = kube.metrics(pod, models.TRITON_METRICS_PORT) or ()
        if sum(s.value for s in page if s.name in {"nv_inference_request_success", "nv_inference_request_failure"}) > 0:
            return True
    return False


if __name__ == "__main__":
    run(sys.argv[2:] or FAULTS, equal=int(sys.argv[1]))
