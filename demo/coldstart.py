"""Time from `kubectl apply` to the first response of a model, and its breakdown into steps."""

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from demo.errors import DemoError
from demo.kube import Kube, is_ready
from demo.models import GRPC_PORT, condition_lines

_POLL_INTERVAL_S = 0.05
_RETRY_INTERVAL_S = 0.03
# After a refused connection, retry at once: gRPC's default backoff is one second, then two.
_EAGER = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 50),
]


@dataclass(frozen=True)
class ColdStart:
    """Seconds from the start of `kubectl apply` until each step, up to the first response through the Service.

    The steps are observed by polling every 50 ms: pod created, scheduled, model fetched, Triton started, model ready
    (the model pod is Ready), balancer ready (the balancer pod is Ready).
    """

    first_answer_s: float
    phases: dict[str, float]


def cold_start(kube: Kube, name: str, *, manifest: str, limit_s: float = 60) -> ColdStart:
    """Apply the manifest of a model that doesn't exist yet, and send requests until one succeeds.

    Raises:
        DemoError: there was no response within `limit_s` seconds; the message contains the model's conditions.
    """
    stop = threading.Event()
    phases: dict[str, float] = {}
    began_s = time.monotonic()
    watch = threading.Thread(target=_watch, args=(kube, name, began_s, phases, stop), daemon=True)
    watch.start()
    try:
        kube("apply", "-f", "-", stdin=manifest)
        phases["applied"] = _elapsed_s(began_s)
        address = None
        while address is None:
            _check(kube, name, began_s, limit_s)
            time.sleep(_RETRY_INTERVAL_S)
            address = kube.address(name, GRPC_PORT)
        _wait_for_answer(kube, name, address, began_s, limit_s)
        first_s = _elapsed_s(began_s)
        # The kubelet reports readiness slightly later than the model can respond.
        watch.join(15.0)
    finally:
        stop.set()
        watch.join()
    phases["first answer"] = first_s
    return ColdStart(first_s, dict(sorted(phases.items(), key=lambda phase: phase[1])))


def _wait_for_answer(kube: Kube, name: str, address: str, began_s: float, limit_s: float) -> None:
    with grpc_client.InferenceServerClient(address, channel_args=_EAGER) as client:
        pixels = grpc_client.InferInput("pixels", [1, 64], "FP32")
        pixels.set_data_from_numpy(np.zeros((1, 64), np.float32))
        while True:
            try:
                client.infer(name, [pixels], client_timeout=limit_s)
            except InferenceServerException:
                _check(kube, name, began_s, limit_s)
                time.sleep(_RETRY_INTERVAL_S)
            else:
                return


def _check(kube: Kube, name: str, began_s: float, limit_s: float) -> None:
    if _elapsed_s(began_s) > limit_s:
        raise DemoError(f"{name} gave no answer within {limit_s:g} s of kubectl apply\n{condition_lines(kube, name)}")


def _watch(kube: Kube, name: str, began_s: float, phases: dict[str, float], stop: threading.Event) -> None:
    while not stop.wait(_POLL_INTERVAL_S) and not {"model ready", "balancer ready"} <= phases.keys():
        for pod in kube.pods(name, "server"):
            for phase in _reached(pod):
                phases.setdefault(phase, _elapsed_s(began_s))
        if any(is_ready(pod) for pod in kube.pods(name, "balancer")):
            phases.setdefault("balancer ready", _elapsed_s(began_s))


def _reached(pod: dict[str, Any]) -> list[str]:
    status = pod.get("status") or {}
    reached = ["pod created"]
    if any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions") or []):
        reached.append("scheduled")
    if any(c["name"] == "fetch" and "terminated" in c["state"] for c in status.get("initContainerStatuses") or []):
        reached.append("model fetched")
    if any(c["name"] == "triton" and "running" in c["state"] for c in status.get("containerStatuses") or []):
        reached.append("triton started")
    if is_ready(pod):
        reached.append("model ready")
    return reached


def _elapsed_s(began_s: float) -> float:
    return round(time.monotonic() - began_s, 2)
