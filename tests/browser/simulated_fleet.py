"""A fleet of models under load for the dashboard, without a cluster: its numbers are those of simulated runs.

Each model follows one of a few runs of the simulator: a recorded or drawn load, a service law and Halcyon's planner. Requests, latency,
queue and replicas are the run's; the utilisation and the batch size follow from its rates and its service law. The ModelDeployments, pods
and reasons around them are written here. Nothing is measured on a GPU, so every use says that it is simulated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halcyon.dashboard.client_latency import Quantiles
from halcyon.dashboard.history import MAX_POINTS, STEP_S, ChartHistory, ReplicaCounts
from halcyon.dashboard.ports import UNKNOWN, DashboardPod, Event, ModelNumbers, Name, Past, StoredRevision
from halcyon.scaling.planner.whatif import Known
from halcyon.signals.prometheus.client import QueryRange
from halcyon_cli.bench.records import history as bench_history
from halcyon_simulator.engine import load, traces
from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.registry import Named
from tests.bench_documents import bench_document

Object = dict[str, Any]
RUN_S = 4200
"""Length of a run in seconds. Its last hour is shown; before that, the planner learns."""
WINDOW_S = 15
GROUP = "serving.halcyon.dev"
ADVICE: Object = {
    "rule": "GPUIdle",
    "field": "spec.runtime.instancesPerGPU",
    "value": "2",
    "evidence": "instances execute 97 % of the time while the GPU is used 41 %, and 24 requests wait for each replica",
    "gain": "up to 100 % more requests per second from a replica, as long as its GPU isn't saturated",
    "gainPercent": 50,
    "since": "2026-11-19T10:00:00Z",
}


@dataclass(frozen=True)
class Run:
    """One simulated load with its service law and limits."""

    key: str
    trace: str
    peak_rps: float
    law: ServiceLaw
    slo_s: float
    high: int
    start_s: float = 60.0
    queue_limit: int = 200

    def case(self) -> Case:
        """Return the case, with the same arrivals each time."""
        rng = np.random.default_rng(sum(map(ord, self.key)))
        times = load.arrivals(_profile(self.trace).scaled(self.peak_rps), rng=rng)
        return Case(
            self.key, times, RUN_S, self.law, self.slo_s, self.start_s, high=self.high, queue_limit=self.queue_limit
        )


RUNS: Mapping[str, Run] = {
    run.key: run
    for run in (
        Run("crowd", "worldcup", 70, ServiceLaw(0.08, 0.012, 8), 0.5, 8),
        Run("short", "worldcup", 90, ServiceLaw(0.08, 0.012, 8), 0.4, 2, queue_limit=60),
        Run("code", "azure", 45, ServiceLaw(0.05, 0.02, 8), 0.6, 6),
        Run("synthetic", "mooncake", 30, ServiceLaw(0.2, 0.03, 8), 1.5, 8),
        Run("waves", "aibrix", 60, ServiceLaw(0.04, 0.01, 16), 0.3, 6),
        Run("calm", "flat", 12, ServiceLaw(0.06, 0.01, 8), 0.4, 4),
    )
}


@lru_cache(maxsize=8)
def _profile(trace: str) -> load.Profile:
    """Return the shape of a recorded load over the run, with a peak of one request per second."""
    if trace == "flat":
        return load.Profile.steps((RUN_S, 0.8), (1.0, 1.0))
    if trace == "worldcup":
        counts = np.array(traces.worldcup_minutes()[:70], dtype=float)
    else:
        name = {"azure": "azure_code", "mooncake": "mooncake_synthetic", "aibrix": "aibrix_up_and_down"}[trace]
        times = traces.bundled(name)
        counts = np.histogram(times, bins=70)[0].astype(float)
    return load.Profile.steps(*((RUN_S / 70, count / counts.max()) for count in counts))


@dataclass(frozen=True)
class Played:
    """A finished run, with its values by second."""

    run: Run
    trajectory: Trajectory
    p: NDArray[np.float64]
    """Quantiles p50, p95 and p99 in milliseconds by ten seconds; NaN without responses."""

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, key: str) -> Played:
        """Return the run of this key."""
        run = RUNS[key]
        case = run.case()
        trajectory = simulate(case, Named("halcyon").build(case))
        steps = RUN_S // STEP_S
        ended = trajectory.arrivals + trajectory.latency_s
        p = np.full((steps + 1, 3), np.nan)
        place = np.where(np.isfinite(ended), ended // STEP_S, -1).astype(int)
        for step in range(steps + 1):
            inside = trajectory.latency_s[place == step]
            if len(inside):
                p[step] = np.quantile(inside, (0.5, 0.95, 0.99)) * 1000
        return cls(run, trajectory, p)

    def rate(self, counter: NDArray[np.float64], second: int) -> float:
        """Return the growth of a counter per second over the window that ends at this second."""
        first = max(second - WINDOW_S, 0)
        return float(counter[second] - counter[first]) / max(second - first, 1)

    def numbers(self, second: int, *, scale: float = 1.0) -> ModelNumbers:
        """Return the numbers at a second of the run; `scale` multiplies what is counted in requests."""
        trajectory, law = self.trajectory, self.run.law
        ready = float(trajectory.ready[second])
        answered = self.rate(trajectory.answered, second)
        per_pod = answered / ready if ready else 0.0
        batch = min(max(per_pod * law.t0_s / max(1 - per_pod * law.a_s, 0.05), 1.0), law.max_batch)
        waiting = float(trajectory.waiting[max(second - WINDOW_S, 0) : second + 1].mean())
        median = self.p[second // STEP_S][0]
        return ModelNumbers(
            rate=self.rate(trajectory.arrived, second) * scale,
            waiting=waiting * scale,
            latency_ms=None if math.isnan(median) else float(min(median, law.seconds(law.max_batch) * 1500)),
            batch=batch if answered else None,
            gpu=min(per_pod * law.seconds(max(int(batch), 1)) / batch * 100, 100.0) if ready else None,
            rejected=self.rate(trajectory.refused, second) * scale,
            lost=0.0,
            failed=0.0,
        )

    def quantiles(self, second: int) -> Quantiles:
        """Return the clients' latency in the ten seconds before this second."""
        row = self.p[min(second // STEP_S, len(self.p) - 1)]
        return Quantiles(*(None if math.isnan(value) else float(value) for value in row))


@dataclass
class Model:
    """One model of the fleet."""

    namespace: str
    name: str
    run: str = "calm"
    gpus: int = 1
    price: float | None = 1.32
    """Price of one GPU per hour."""
    scale: float = 1.0
    story: str = "ready"
    latency: str = "500ms"
    image: str = "nvcr.io/nvidia/tritonserver:26.07-py3"
    failed_per_s: float = 0.0
    events: tuple[tuple[int, str, str, str], ...] = ()
    rollout: Object = field(default_factory=dict)


def _condition(kind: str, status: str, reason: str, message: str, at: float) -> Object:
    stamp = _stamp(at)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}


def _template(image: str, level: str) -> Object:
    env = [{"name": "LOG_LEVEL", "value": level}]
    server = {"name": "triton", "image": image, "env": env, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {"spec": {"containers": [server], "terminationGracePeriodSeconds": 60}}


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


LOAD_FAILED = (
    "model can't be loaded: failed to load 'intent' version 4: ONNX Runtime: model.onnx has IR version 11, the image supports 10. "
    "Set runtime.image to a newer release"
)
NO_GPU = "0/14 nodes are available: 14 Insufficient nvidia.com/gpu. Free up GPUs, or lower maxReplicas"
CANARY = Model(
    "vision",
    "detector",
    "waves",
    story="canary",
    rollout={
        "phase": "Progressing",
        "strategy": "Canary",
        "canary": {"step": 2, "weight": 25, "pods": 1, "paused": True},
        "message": (
            "revision 7c41d2e9 is a canary: step 2 of 4, 25 % of the requests for 6m; p95 212 ms against 208 ms, no more errors. For the "
            "next step, run halcyon promote detector --step"
        ),
    },
)
MODELS: tuple[Model, ...] = (
    Model(
        "assistants",
        "intent",
        "calm",
        story="load-failed",
        rollout={
            "phase": "RolledBack",
            "strategy": "Surge",
            "failed": {"reason": "LoadFailed", "message": LOAD_FAILED},
            "message": "revision 90be11f2 failed and was rolled back to revision 5d2a7c10. LoadFailed: " + LOAD_FAILED,
        },
    ),
    Model("speech", "diarizer", "calm", gpus=2, story="unschedulable", price=2.48),
    Model("search", "ranker", "short", story="limited", latency="300ms"),
    CANARY,
    Model("search", "embedder", "crowd", latency="500ms"),
    Model("search", "query-rewriter", "code", latency="600ms"),
    Model("speech", "whisper-large", "synthetic", gpus=2, price=2.48, latency="1500ms"),
    Model("speech", "speaker-id", "calm"),
    Model("speech", "punctuation", "calm", scale=0.4),
    Model("vision", "segmenter", "waves", scale=0.7, latency="300ms"),
    Model("vision", "ocr", "code", latency="600ms"),
    Model("vision", "nsfw-filter", "crowd", latency="500ms", failed_per_s=0.06),
    Model("vision", "product-match", "calm", story="zero"),
    Model("assistants", "moderation", "code", latency="600ms", scale=1.2),
    Model("assistants", "reranker", "waves", latency="300ms"),
    Model("assistants", "summarizer", "synthetic", gpus=2, price=2.48, latency="1500ms"),
    Model("fraud", "card-scoring", "crowd", latency="500ms", scale=2.1),
    Model("fraud", "device-graph", "calm", scale=0.8),
    Model("fraud", "chargeback", "calm", story="zero"),
    Model("fraud", "merchant-risk", "calm", story="silent"),
    Model("ads", "ctr", "crowd", latency="500ms", scale=3.0),
    Model("ads", "bid-shading", "code", latency="600ms", scale=0.9),
    Model("ads", "creative-tagger", "calm", story="zero"),
    Model("ads", "lookalike", "waves", latency="300ms"),
)
_NO_RESPONSES = {"unschedulable", "zero", "silent"}


class SimulatedFleet:
    """Implementation of the dashboard's `DashboardSource` by simulated runs, at the end of their last hour."""

    def __init__(self, models: Sequence[Model] = MODELS, *, now: float | None = None) -> None:
        self.now = time.time() if now is None else now
        self.by_name = {Name(model.namespace, model.name): model for model in models}
        self._objects = {name: self._object(number, model) for number, (name, model) in enumerate(self.by_name.items())}
        self.changes, self.synced = 1, True

    # What the dashboard reads

    def names(self) -> Collection[Name]:
        """Return the names of all models."""
        return list(self.by_name)

    def version(self, name: Name) -> object:
        """Return the resourceVersion of the ModelDeployment."""
        return self._objects[name]["metadata"]["resourceVersion"]

    def model(self, name: Name) -> Object | None:
        """Return the ModelDeployment."""
        return self._objects.get(name)

    async def measured(self, name: Name) -> Object | None:
        """Return the ConfigMap with results of `halcyon bench`, which the detector alone has."""
        if name.name != "detector":
            return None
        model, stored = self._objects[name], None
        for seed, failures in ((1, 0), (2, 30)):
            document = bench_document(model=name.name, seed=seed, failures=failures, sections=True)
            reasons = ("the client limits (cores): it waited for a core 40% of the time",) if failures else ()
            facts = {"valid": not reasons, "invalid_because": reasons}
            document = document.model_copy(update={"run": document.run.model_copy(update=facts)})
            if failures and document.place is not None:
                # The served model was loaded a minute ago.
                live = document.place.model_copy(update={"kind": "live", "ended": "p95 was above its bound"})
                stamp = datetime.fromtimestamp(self.now - 60, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                document = document.model_copy(update={"place": live, "made_at": stamp})
            stored = bench_history.extended(model, stored, document)
            stored["metadata"]["resourceVersion"] = str(seed)
        return stored

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the server pods."""
        return self._servers(self.by_name[name])

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the balancer pods."""
        return [self._pod(self.by_name[name], f"balancer-7d9c6-{end}", 40 * 3600) for end in ("k2x8p", "r7v4m")]

    def events(self, name: Name) -> Sequence[Event]:
        """Return the events."""
        model = self.by_name[name]
        scaled = [
            Event(self._at(write.at_s), "Normal", "Scaled", f"{write.before} to {write.after} replicas")
            for write in self._recent(model)[:6]
        ]
        if model.story == "load-failed":
            scaled.insert(0, Event(self.now - 540, "Warning", "LoadFailed", LOAD_FAILED))
        if model.story == "unschedulable":
            scaled.insert(0, Event(self.now - 400, "Warning", "Unschedulable", NO_GPU))
        return scaled

    def revisions(self, name: Name) -> Sequence[StoredRevision]:
        """Return three revisions: with another image, and with another value of a variable."""
        model = self.by_name[name]
        return [
            StoredRevision(f"{model.name}-{key}", number, _template(image, level), self.overlay(name))
            for number, (key, image, level) in enumerate(
                (
                    ("31f0c88e", "nvcr.io/nvidia/tritonserver:26.05-py3", "info"),
                    ("5d2a7c10", model.image, "info"),
                    ("7c41d2e9" if model.story != "load-failed" else "90be11f2", model.image, "debug"),
                ),
                1,
            )
        ][: 3 if model.story in {"canary", "load-failed"} else 2]

    def overlay(self, name: Name) -> str:
        """Return the settings that Halcyon adds."""
        law = Played.of(self.by_name[name].run).run.law
        return f'{{"model_name": "{name.name}", "max_batch_size": {law.max_batch}, "dynamic_batching": {{}}}}'

    def reading(self, name: Name) -> ModelNumbers:
        """Return the numbers at the end of the run."""
        model = self.by_name[name]
        return self._numbers(model, RUN_S - 1)

    def past(self, name: Name) -> Past | None:
        """Return fifteen days of arrivals: the run's load within a day, less at night and at weekends."""
        model, played = self.by_name[name], Played.of(self.by_name[name].run)
        mean = float(played.trajectory.arrived[-1]) / RUN_S * model.scale
        end = self.now // 300 * 300
        days = [(end - 300 * back) / 86400 for back in range(15 * 288, 0, -1)]
        shape = [(1 + 0.6 * math.sin(2 * math.pi * (day - 0.3))) * (0.6 if int(day + 3) % 7 > 4 else 1) for day in days]
        wobble = np.random.default_rng(3).normal(1, 0.05, len(days))
        return Past(300.0, end, [round(float(mean * s * max(w, 0.1)), 3) for s, w in zip(shape, wobble, strict=True)])

    def known(self, name: Name) -> Known | None:
        """Return None: nothing is learnt here."""
        del name

    # How it is made

    def history(self, points: int = MAX_POINTS) -> ChartHistory:
        """Return the last points of all models."""
        kept = ChartHistory()
        for name, model in self.by_name.items():
            for back in range(points - 1, -1, -1):
                second = RUN_S - 1 - back * STEP_S
                desired, ready = self._counts(model, second)
                numbers = self._numbers(model, second)
                quantiles = Quantiles() if model.story in _NO_RESPONSES else Played.of(model.run).quantiles(second)
                counts = ReplicaCounts(replicas=desired, ready=ready, desired=desired)
                kept.add(name, self.now - back * STEP_S, counts, numbers, quantiles)
        return kept

    def _at(self, second: float) -> float:
        return self.now - RUN_S + second

    def _recent(self, model: Model) -> list[Any]:
        if model.story in {"zero", "silent"}:
            return []
        return [write for write in reversed(Played.of(model.run).trajectory.writes) if write.at_s > RUN_S - 3600]

    def _counts(self, model: Model, second: int) -> tuple[int, int]:
        trajectory = Played.of(model.run).trajectory
        if model.story == "zero":
            return 0, 0
        if model.story == "unschedulable":
            return 2, 0
        return int(trajectory.written[second]), int(trajectory.ready[second])

    def _numbers(self, model: Model, second: int) -> ModelNumbers:
        if model.story == "silent":
            return UNKNOWN
        if model.story == "zero":
            return ModelNumbers(rate=0.0, waiting=0.0, rejected=0.0, lost=0.0, failed=0.0)
        if model.story == "unschedulable":
            return ModelNumbers(rate=2.4, waiting=12.0, rejected=2.4, lost=0.0, failed=0.0)
        numbers = Played.of(model.run).numbers(second, scale=model.scale)
        values = {name: getattr(numbers, name) for name in numbers.__dataclass_fields__}
        return ModelNumbers(**(values | {"failed": model.failed_per_s}))

    def _object(self, number: int, model: Model) -> Object:
        desired, ready = self._counts(model, RUN_S - 1)
        played, created = Played.of(model.run), self.now - (3 + number * 5) * 86400
        numbers = self._numbers(model, RUN_S - 1)
        why = {
            "zero": "0 replicas: no request for 30 minutes",
            "limited": f"{desired} replicas: {numbers.rate or 0:.0f} requests/s at {model.latency} need more, spec.scaling.maxReplicas is {desired}",
            "unschedulable": "2 replicas: 2.4 requests/s wait for the first server",
        }.get(model.story, f"{desired} replicas: {numbers.rate or 0:.1f} requests/s at {model.latency} need {desired}")
        decisions = [
            {
                "time": _stamp(self._at(w.at_s)),
                "before": w.before,
                "after": w.after,
                "why": f"{w.after} replicas are needed at this rate",
            }
            for w in self._recent(model)[:10]
        ]
        high = played.run.high if model.story != "limited" else desired
        state, conditions = self._conditions(model, desired, ready)
        held = (desired if model.story not in {"unschedulable", "zero"} else 0) * model.gpus
        price = {"perHour": f"{held * model.price:.2f}"} if model.price else {}
        current = f"{model.name}-5d2a7c10"
        target = f"{model.name}-7c41d2e9" if model.story == "canary" else current
        status: Object = {
            "observedGeneration": 4,
            "conditions": conditions,
            "replicas": desired,
            "readyReplicas": ready,
            "pods": {"total": desired, "ready": ready, "updated": desired if model.story != "canary" else 1},
            "summary": {"state": state, "queue": f"{numbers.waiting or 0:.0f}/{16 * max(ready, 1)}"},
            "scaling": {
                "actuator": "Direct",
                "policy": "Planner",
                "mode": "Active",
                "desired": desired,
                "current": desired,
                "why": why,
                "signals": [{"name": "queueDepth", "target": "16"}]
                if model.story != "silent"
                else [{"name": "requestRate", "missing": "no report from a balancer for 92 s"}],
                "decisions": decisions,
                **({"limitedBy": ["max"]} if model.story == "limited" else {}),
            },
            "runtimeImage": model.image,
            "revision": {"current": current, "target": target},
            "rollout": model.rollout or {"phase": "Complete", "strategy": "Surge"},
            "address": {"url": f"http://{model.name}.{model.namespace}.svc:8000"},
            **({"advice": [ADVICE]} if model.story == "limited" else {}),
            "cost": {"gpus": held, "currency": "USD", **price},
        }
        spec: Object = {
            "model": {"source": {"uri": f"s3://models/{model.name}/4"}},
            "runtime": {"image": model.image, "gpu": {"count": model.gpus}},
            "batching": {"maxBatchSize": played.run.law.max_batch},
            "replicas": desired,
            "scaling": {
                "minReplicas": 0 if model.story == "zero" else 1,
                "maxReplicas": high,
                "targets": {"latency": model.latency},
            },
            "traffic": {"accessLog": "Errors"},
        }
        metadata = {
            "namespace": model.namespace,
            "name": model.name,
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "generation": 4,
            "creationTimestamp": _stamp(created),
        }
        return {"metadata": metadata, "spec": spec, "status": status}

    def _conditions(self, model: Model, desired: int, ready: int) -> tuple[str, list[Object]]:
        ago = self.now - 540
        good = [
            _condition("Accepted", "True", "Accepted", "the spec is valid", self.now - 86400),
            _condition("BalancerReady", "True", "BalancersReady", "2 of 2 balancers are ready", self.now - 86400),
        ]
        servers = _condition("ServersReady", "True", "ServersReady", f"{ready} of {desired} servers are ready", ago)
        ready_condition = _condition(
            "Ready", "True", "Ready", f"{ready} of {desired} servers are ready", self.now - 86400
        )
        match model.story:
            case "load-failed":
                stalled = _condition("Stalled", "True", "LoadFailed", LOAD_FAILED, ago)
                return "LoadFailed", [ready_condition, stalled, servers, *good]
            case "unschedulable":
                return "Unschedulable", [
                    _condition("Ready", "False", "NoServersReady", f"no server is ready: {NO_GPU}", ago),
                    _condition("ServersReady", "False", "Unschedulable", NO_GPU, ago),
                    *good,
                ]
            case "canary":
                text = str(model.rollout["message"])
                return "Canary", [
                    ready_condition,
                    _condition("Reconciling", "True", "Canary", text, self.now - 360),
                    servers,
                    *good,
                ]
            case "zero":
                return "ScaledToZero", [
                    ready_condition | {"message": "scaled to 0; the first request starts a server"},
                    *good,
                ]
            case "silent":
                silent = _condition(
                    "ScalingActive", "False", "MetricMissing", "no report from a balancer for 92 s", self.now - 92
                )
                return "MetricMissing", [ready_condition, silent, servers, *good]
        return "Ready", [ready_condition, servers, *good]

    def _servers(self, model: Model) -> list[DashboardPod]:
        desired, ready = self._counts(model, RUN_S - 1)
        if model.story == "unschedulable":
            return [
                self._pod(model, f"a-{n}", 400, state="pending", reason="Unschedulable", message=NO_GPU)
                for n in range(desired)
            ]
        pods = [self._pod(model, f"a-{n}", 2400 * (n + 1)) for n in range(min(ready, desired))]
        pods += [self._pod(model, f"a-{n}", 38, state="loading") for n in range(ready, desired)]
        if model.story == "canary":
            pods.append(self._pod(model, "b-0", 380, revision="7c41d2e9"))
        if model.story == "load-failed":
            pods.append(
                self._pod(
                    model,
                    "b-0",
                    545,
                    state="failed",
                    reason="LoadFailed",
                    message=LOAD_FAILED,
                    revision="90be11f2",
                    restarts=3,
                )
            )
        return pods

    def _pod(
        self, model: Model, end: str, age_s: float, *, revision: str = "5d2a7c10", restarts: int = 0, **stage: str
    ) -> DashboardPod:
        state = stage.pop("state", "ready")
        created, start_s = self.now - age_s, Played.of(model.run).run.start_s
        labels = {f"{GROUP}/slot": end[0], f"{GROUP}/revision": revision} if "balancer" not in end else {}
        conditions = (
            []
            if stage.get("reason") == "Unschedulable"
            else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _stamp(created + 2)}]
        )
        if state == "ready":
            conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": _stamp(created + start_s)})
        running = {"running": {"startedAt": _stamp(created + 14)}}
        waiting = stage.get("reason") == "Unschedulable"
        server = {"name": "triton", "restartCount": restarts, "lastState": {}, "state": {} if waiting else running}
        return DashboardPod(
            {
                "metadata": {
                    "namespace": model.namespace,
                    "name": f"{model.name}-{end}",
                    "uid": end,
                    "labels": labels,
                    "creationTimestamp": _stamp(created),
                    "deletionTimestamp": None,
                },
                "spec": {},
                "status": {
                    "phase": "Running",
                    "podIP": None,
                    "conditions": conditions,
                    "initContainerStatuses": [],
                    "containerStatuses": [server],
                },
            },
            state,
            **stage,
        )


def crowd(size: int) -> SimulatedFleet:
    """Return a fleet of this many ready models, whose rows are those of `MODELS` again and again."""
    stories = [model for model in MODELS if model.story == "ready"]
    return SimulatedFleet(
        [
            Model(f"team-{number % 20:02}", f"{model.name}-{number:04}", model.run, scale=model.scale)
            for number in range(size)
            for model in [stories[number % len(stories)]]
        ]
    )


class SimulatedPrometheus:
    """The site's Prometheus as far as the fleet's page needs it: GPUs of the cluster, and no series of models."""

    async def value(self, query: str) -> float | None:
        """Return the GPUs of the cluster."""
        del query
        return 48.0

    async def rows(self, query: str, over: QueryRange) -> Sequence[Mapping[str, Any]]:
        """Return no series."""
        del query, over
        return []
