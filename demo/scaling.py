"""Loads that make the HPA scale: a long queue, a busy GPU, the planner; then none. A probe counts failures."""

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
"""Number of clients. 16 requests are in the batch, so about 80 wait: five times the target of 16 per replica."""
GPU_RATE_RPS = 200.0
"""Request rate that keeps one replica about two thirds busy (target: 50 %), in batches of two, without a queue. The
rate is fixed (an open loop), so that two replicas are below the target. Closed-loop clients would keep any number of
replicas busy."""
PLANNED_LATENCY = "60ms"
"""Latency target of the planner. With 96 clients, one replica responds after 100 ms."""
AT_REST_S = 30.0
"""Time in seconds for which a new planner observes the idle load. In its first seconds, it keeps the running replicas
and trusts its measurements little."""
PROBE_RPS = 5.0
_LONGEST_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One load, and how the HPA scaled for it."""

    to_scale_s: float
    """Seconds from the first request until the replicas changed in /scale."""
    change: Change
    reason: str
    """The decision's reason, in the words of the HPA (the metric values that it used) or of the planner."""
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
    tell: Callable[[Report], None] | None = None,
    says: Callable[[Kube, str, int], str] | None = None,
) -> Step:
    """Load the watched model until the HPA has added replicas and they are ready, and for `hold_s` seconds more.

    `says` returns the reason for the scaling; by default, the HPA's.

    Raises:
        DemoError: the load ended before this.
    """
    before = models.triton_counts(kube, watch.name)
    with RunningLoad(load, watch=tell) as running:
        began_s = running.began_s()
        limit_s = load.duration_s

        def changed() -> bool:
            return watch.first_change(since_s=began_s, up=True) is not None

        try:
            wait_for(changed, what="the HPA adds replicas", limit_s=limit_s, every_s=0.1)
        except DemoError as error:
            raise DemoError(f"{error}\n{models.said(kube, watch.name)}\n{hpa_says(kube, watch.name)}") from None
        change = watch.first_change(since_s=began_s, up=True)
        if change is None:
            raise DemoError("a change was seen, and then not")
        since_s = time.time() - (time.monotonic() - began_s)
        reason = (
            says(kube, watch.name, change.after)
            if says
            else hpa_rescaled(kube, watch.name, change.after, since_s=since_s)
        )
        wait_for(
            lambda: watch.latest is not None and watch.latest.ready >= watch.latest.wanted,
            what="the new replicas are ready",
            limit_s=60,
        )
        time.sleep(hold_s)
        after = models.triton_counts(kube, watch.name)
        report = running.stop()
    return Step(
        to_scale_s=round(change.look.at_s - began_s, 1),
        change=change,
        reason=reason,
        report=report,
        mean_batch=models.mean_batch(before, after),
    )


def step_down(watch: Watch, *, to: int = 1, limit_s: float = 240) -> float:
    """Wait until the HPA has removed the added replicas, and return the seconds that this took."""

    def down() -> bool:
        look = watch.latest
        return look is not None and look.wanted == to and look.pods == to and look.ready == to

    return round(wait_for(down, what=f"the HPA goes back to {to}", limit_s=limit_s), 1)


def hpa_says(kube: Kube, name: str) -> str:
    """Return the HPA's description of the metric with the highest desired replicas in its last sync."""
    hpa: dict[str, Any] = (
        kube.json(f"/apis/autoscaling/v2/namespaces/{kube.namespace}/horizontalpodautoscalers/{name}") or {}
    )
    conditions = (hpa.get("status") or {}).get("conditions") or []
    said = next((c["message"] for c in conditions if c["type"] == "ScalingActive"), "the HPA says nothing")
    return str(said)


def hpa_rescaled(kube: Kube, name: str, size: int, *, since_s: float) -> str:
    """Return the reason for scaling to `size`, from the HPA's Event since `since_s` (seconds since the epoch).

    The HPA writes its status later, when it may already describe the next sync.

    Raises:
        DemoError: there is no such Event; the message contains the HPA's status.
    """
    chosen = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale"
    found: list[str] = []

    def told() -> bool:
        events = kube.items(f"/api/v1/namespaces/{kube.namespace}/events", fieldSelector=chosen)
        found.extend(
            event["message"]
            for event in events
            # Event times have a resolution of one second.
            if event["message"].startswith(f"New size: {size};")
            and _epoch_s(event.get("lastTimestamp") or event["eventTime"]) > since_s - 1
        )
        return bool(found)

    try:
        wait_for(told, what=f"the HPA's Event tells of {size} replicas", limit_s=10)
    except DemoError as error:
        raise DemoError(f"{error}; its status: {hpa_says(kube, name)}") from None
    return found[0]


def _epoch_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def planner_says(kube: Kube, name: str, wanted: int) -> str:
    """Return the planner's reason for at least `wanted` replicas. The status is written after the replicas."""
    wait_for(
        lambda: _told(kube, name).get("desired", 0) >= wanted, what=f"the status says why {wanted} replicas", limit_s=10
    )
    return str(_told(kube, name).get("why"))


def let_plan(kube: Kube, name: str) -> None:
    """Switch the model to the planner, which doesn't change the replicas, and let it observe the idle load."""
    _scale_by(kube, name, {"policy": "Planner", "targets": {"latency": PLANNED_LATENCY}})

    def knows() -> bool:
        told = _told(kube, name)
        return told.get("policy") == "Planner" and "learning" not in (told.get("limitedBy") or [])

    wait_for(knows, what=f"{name} is planned", limit_s=30)
    time.sleep(AT_REST_S)


def let_rules_decide(kube: Kube, name: str) -> None:
    """Switch the model back to the HPA rules of digits.yaml."""
    _scale_by(kube, name, models.digits()["spec"]["scaling"])


def _scale_by(kube: Kube, name: str, scaling: dict[str, Any]) -> None:
    now = ((kube.model(name) or {}).get("spec") or {}).get("scaling") or {}
    # A merge patch keeps the fields that it doesn't contain.
    targets = dict.fromkeys(now.get("targets") or {}) | scaling["targets"]
    patch = {"spec": {"scaling": {"behavior": None} | scaling | {"targets": targets}}}
    kube("patch", "modeldeployment", name, "--type=merge", "-p", json.dumps(patch))


def _told(kube: Kube, name: str) -> dict[str, Any]:
    return ((kube.model(name) or {}).get("status") or {}).get("scaling") or {}


class Probes:
    """A light, steady load over both protocols while this context is open, to count the failures of requests."""

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
