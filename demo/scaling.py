"""Load that makes the HPA act: by a long queue, by a busy GPU, by the planner; then quiet; and a probe that counts what fails."""

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
"""Some 80 of them wait while 16 are in the batch: five times the target of 16 per replica."""
GPU_RATE_RPS = 200.0
"""Keeps one replica about two thirds busy (target 50 %) in batches of two, and nobody waits. An open loop: with two replicas
each is then below the target, where closed-loop clients would keep any number of replicas busy."""
PLANNED_LATENCY = "60ms"
"""With 96 clients one replica answers in 100 ms."""
AT_REST_S = 30.0
"""Who plans anew takes what runs for right, and little of what it sees in the first seconds for certain."""
PROBE_RPS = 5.0
_LONGEST_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One load and the HPA's answer to it."""

    to_scale_s: float
    """From the first request until /scale had another count."""
    change: Change
    reason: str
    """Who decided, in its own words: what the HPA says it counted with, or the planner."""
    report: Report
    mean_batch: float | None
    """By Triton's counters, over the whole load and all pods."""


def queue_load(kube: Kube, name: str, *, duration_s: float) -> Load:
    """A load under which requests wait."""
    address = kube.must_address(name, GRPC_PORT)
    return Load(address=address, model=name, clients=QUEUE_CLIENTS, channels=8, duration_s=duration_s)


def gpu_load(kube: Kube, name: str, *, duration_s: float) -> Load:
    """A load that keeps the GPU busy and the queue short."""
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
    """Put a load on the watched model until the HPA adds replicas, those are ready, and `hold_s` more seconds.

    `says` tells why; it is the HPA where it's left out.

    Raises:
        DemoError: the load's time was over before.
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
    """Wait until the HPA has taken the replicas back; return after how many seconds."""

    def down() -> bool:
        look = watch.latest
        return look is not None and look.wanted == to and look.pods == to and look.ready == to

    return round(wait_for(down, what=f"the HPA goes back to {to}", limit_s=limit_s), 1)


def hpa_says(kube: Kube, name: str) -> str:
    """What the HPA counted with last, in its own words: the metric that asked for most."""
    hpa: dict[str, Any] = (
        kube.json(f"/apis/autoscaling/v2/namespaces/{kube.namespace}/horizontalpodautoscalers/{name}") or {}
    )
    conditions = (hpa.get("status") or {}).get("conditions") or []
    said = next((c["message"] for c in conditions if c["type"] == "ScalingActive"), "the HPA says nothing")
    return str(said)


def hpa_rescaled(kube: Kube, name: str, size: int, *, since_s: float) -> str:
    """Why the HPA went to this size, by the Event that it writes then; `since_s` in seconds since the epoch.

    Its status is written later, and may by then tell of the next look.

    Raises:
        DemoError: there is no such Event; the message has what its status says.
    """
    chosen = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale"
    found: list[str] = []

    def told() -> bool:
        events = kube.items(f"/api/v1/namespaces/{kube.namespace}/events", fieldSelector=chosen)
        found.extend(
            event["message"]
            for event in events
            # Whole seconds.
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
    """Why the planner wants so many, or more by now; the status is written after the count."""
    wait_for(
        lambda: _told(kube, name).get("desired", 0) >= wanted, what=f"the status says why {wanted} replicas", limit_s=10
    )
    return str(_told(kube, name).get("why"))


def let_plan(kube: Kube, name: str) -> None:
    """Give the count to the planner, which moves nothing, and let it see the load at rest."""
    _scale_by(kube, name, {"policy": "Planner", "targets": {"latency": PLANNED_LATENCY}})

    def knows() -> bool:
        told = _told(kube, name)
        return told.get("policy") == "Planner" and "learning" not in (told.get("limitedBy") or [])

    wait_for(knows, what=f"{name} is planned", limit_s=30)
    time.sleep(AT_REST_S)


def let_rules_decide(kube: Kube, name: str) -> None:
    """Scale by digits.yaml's rules again."""
    _scale_by(kube, name, models.digits()["spec"]["scaling"])


def _scale_by(kube: Kube, name: str, scaling: dict[str, Any]) -> None:
    now = ((kube.model(name) or {}).get("spec") or {}).get("scaling") or {}
    # A merge keeps what isn't named.
    targets = dict.fromkeys(now.get("targets") or {}) | scaling["targets"]
    patch = {"spec": {"scaling": {"behavior": None} | scaling | {"targets": targets}}}
    kube("patch", "modeldeployment", name, "--type=merge", "-p", json.dumps(patch))


def _told(kube: Kube, name: str) -> dict[str, Any]:
    return ((kube.model(name) or {}).get("status") or {}).get("scaling") or {}


class Probes:
    """A light, steady load over both protocols for as long as this context is open: what it counts as failed, a client lost."""

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
