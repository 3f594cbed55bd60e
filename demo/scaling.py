"""Loads that make the HPA scale: a long queue, a busy GPU, the planner, then none. A probe counts failed requests."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from demo import models
from demo.errors import DemoError
from demo.kube import Kube, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from demo.watch import Change, Watch
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report

QUEUE_CLIENTS = 96
"""Number of clients. 16 of their requests are in the batch, so about 80 wait: five times the target of 16 per
replica."""
GPU_RATE_RPS = 200.0
"""Request rate that keeps one replica about two thirds busy (the target is 50 %), in batches of two, without a queue.
The rate is fixed (an open loop), so that two replicas are below the target. Closed-loop clients would keep any number
of replicas busy."""
PLANNED_LATENCY = "60ms"
"""Latency target for the planner. With 96 clients, one replica responds after 100 ms."""
AT_REST_S = 30.0
"""Time in seconds for which a new planner observes the idle load. In its first seconds, it keeps the current replicas
and gives little weight to its measurements."""
PROBE_RPS = 5.0
_LONGEST_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """Scaling step: one load, and the resulting scaling."""

    to_scale_s: float
    """Seconds from the first request until the replicas changed in the scale subresource."""
    change: Change
    reason: str
    """Reason for the decision, in the words of the HPA (with the metric values that it used) or of the planner."""
    report: Report
    mean_batch: float | None
    """Mean batch size over the whole load and all pods, from Triton's counters."""


def queue_load(kube: Kube, name: str, *, duration_s: float) -> Load:
    """Return a load that makes requests wait."""
    address = kube.must_address(name, GRPC_PORT)
    return Load(address=address, model=name, clients=QUEUE_CLIENTS, channels=8, duration_s=duration_s)


def gpu_load(kube: Kube, name: str, *, duration_s: float) -> Load:
    """Return a load that keeps the GPU busy and the queue short."""
    address = kube.must_address(name, GRPC_PORT)
    return Load(address=address, model=name, rate_rps=GPU_RATE_RPS, clients=4096, channels=8, duration_s=duration_s)


def step_up(
    kube: Kube,
    watch: Watch,
    load: Load,
    *,
    hold_s: float,
    on_report: Callable[[Report], None] | None = None,
    reason_of: Callable[[Kube, str, int], str] | None = None,
) -> Step:
    """Load the watched model until the HPA has added replicas and they are ready, and for `hold_s` seconds more.

    `reason_of` returns the reason for the scaling; by default, the HPA's.

    Raises:
        DemoError: the load ended before the replicas were added and ready.
    """
    before = models.triton_counts(kube, watch.name)
    with RunningLoad(load, on_report=on_report) as running:
        began_s = running.began_s()
        limit_s = load.duration_s

        def changed() -> bool:
            return watch.first_change(since_s=began_s, up=True) is not None

        try:
            wait_for(changed, goal="the HPA adds replicas", limit_s=limit_s, every_s=0.1)
        except DemoError as error:
            raise DemoError(
                f"{error}\n{models.condition_lines(kube, watch.name)}\n{hpa_message(kube, watch.name)}"
            ) from None
        change = watch.first_change(since_s=began_s, up=True)
        if change is None:
            raise DemoError("a change was seen, and then not")
        since_s = time.time() - (time.monotonic() - began_s)
        reason = (
            reason_of(kube, watch.name, change.after)
            if reason_of
            else rescale_message(kube, watch.name, change.after, since_s=since_s)
        )
        wait_for(
            lambda: watch.latest is not None and watch.latest.ready >= watch.latest.replicas,
            goal="the new replicas are ready",
            limit_s=60,
        )
        time.sleep(hold_s)
        after = models.triton_counts(kube, watch.name)
        report = running.stop()
    return Step(
        to_scale_s=round(change.sample.at_s - began_s, 1),
        change=change,
        reason=reason,
        report=report,
        mean_batch=models.mean_batch(before, after),
    )


def step_down(watch: Watch, *, to: int = 1, limit_s: float = 240) -> float:
    """Wait until the HPA has removed the added replicas, and return the seconds that this took."""

    def down() -> bool:
        sample = watch.latest
        return sample is not None and sample.replicas == to and sample.pods == to and sample.ready == to

    return round(wait_for(down, goal=f"the HPA goes back to {to}", limit_s=limit_s), 1)


def hpa_message(kube: Kube, name: str) -> str:
    """Return the HPA's description of the metric that required the most replicas in its last sync."""
    hpa: dict[str, Any] = (
        kube.json(f"/apis/autoscaling/v2/namespaces/{kube.namespace}/horizontalpodautoscalers/{name}") or {}
    )
    conditions = (hpa.get("status") or {}).get("conditions") or []
    message = next((c["message"] for c in conditions if c["type"] == "ScalingActive"), "the HPA says nothing")
    return str(message)


def rescale_message(kube: Kube, name: str, size: int, *, since_s: float) -> str:
    """Return the reason for scaling to `size`, from an Event of the HPA after `since_s` (in seconds since the epoch).

    The HPA's status isn't used, because it is written later, when it may already describe the next sync.

    Raises:
        DemoError: there is no such Event; the message contains the HPA's status.
    """
    selector = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale"
    messages: list[str] = []

    def has_event() -> bool:
        events = kube.items(f"/api/v1/namespaces/{kube.namespace}/events", fieldSelector=selector)
        messages.extend(
            event["message"]
            for event in events
            # Event times have a resolution of one second.
            if event["message"].startswith(f"New size: {size};")
            and _epoch_s(event.get("lastTimestamp") or event["eventTime"]) > since_s - 1
        )
        return bool(messages)

    try:
        wait_for(has_event, goal=f"the HPA's Event tells of {size} replicas", limit_s=10)
    except DemoError as error:
        raise DemoError(f"{error}; its status: {hpa_message(kube, name)}") from None
    return messages[0]


def _epoch_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def planner_reason(kube: Kube, name: str, replicas: int) -> str:
    """Return the planner's reason for at least `replicas` replicas.

    Wait until the status has it, because the status is written after the replicas.
    """
    wait_for(
        lambda: _scaling_status(kube, name).get("desired", 0) >= replicas,
        goal=f"the status says why {replicas} replicas",
        limit_s=10,
    )
    return str(_scaling_status(kube, name).get("why"))


def use_planner(kube: Kube, name: str) -> None:
    """Switch the model to the planner, which doesn't change the replicas at first, and let it observe the idle load."""
    _scale_by(kube, name, {"policy": "Planner", "targets": {"latency": PLANNED_LATENCY}})

    def is_planned() -> bool:
        status = _scaling_status(kube, name)
        return status.get("policy") == "Planner" and "learning" not in (status.get("limitedBy") or [])

    wait_for(is_planned, goal=f"{name} is planned", limit_s=30)
    time.sleep(AT_REST_S)


def use_rules(kube: Kube, name: str) -> None:
    """Switch the model back to the HPA rules of digits.yaml."""
    _scale_by(kube, name, models.digits()["spec"]["scaling"])


def _scale_by(kube: Kube, name: str, scaling: dict[str, Any]) -> None:
    current = ((kube.model(name) or {}).get("spec") or {}).get("scaling") or {}
    # A merge patch keeps the fields that it doesn't contain.
    targets = dict.fromkeys(current.get("targets") or {}) | scaling["targets"]
    patch = {"spec": {"scaling": {"behavior": None} | scaling | {"targets": targets}}}
    kube("patch", "modeldeployment", name, "--type=merge", "-p", json.dumps(patch))


def _scaling_status(kube: Kube, name: str) -> dict[str, Any]:
    return ((kube.model(name) or {}).get("status") or {}).get("scaling") or {}


class Probes:
    """Light, steady load over both protocols while this context is open, which counts failed requests."""

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube, self._name = kube, name
        self._stack = ExitStack()
        self._running: list[RunningLoad] = []
        self.reports: list[Report] = []

    def __enter__(self) -> Self:
        for seed, (protocol, port) in enumerate((("grpc", GRPC_PORT), ("http", HTTP_PORT))):
            load = Load(
                address=self._kube.must_address(self._name, port),
                model=self._name,
                protocol="grpc" if protocol == "grpc" else "http",
                rate_rps=PROBE_RPS,
                clients=256,
                channels=1,
                duration_s=_LONGEST_S,
                seed=seed,
            )
            self._running.append(self._stack.enter_context(RunningLoad(load)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.reports = [running.stop() for running in self._running]
        finally:
            self._stack.__exit__(kind, error, trace)
