"""Rows of section 1: capacity by evidence.

Row 1.1 runs on real Triton servers behind real balancers and agents; the operator's store of reports and its planner run here.
Rows 1.2 and 1.3 run in the simulator.

python -m benchmarks.right.capacity [ROW...]
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import aiohttp

from benchmarks.background import in_background
from benchmarks.dataplane import tritons, ways
from benchmarks.quality.house import changed_bench_rows
from benchmarks.quality.rows import Row, record
from benchmarks.right.simulated_capacity import KINDS, LOADS, LOCKED, loop, result
from e2e.cluster.progress import say
from halcyon.api.documents.balancer_plan import BalancerPlan
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.loop import TICK_S
from halcyon.render.server_maxconn import finds_concurrency, server_connections
from halcyon.scaling.planner.capacity_source import source
from halcyon.scaling.planner.objectives import largest, objectives
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import plan, replica_of
from halcyon.scaling.planner.reading import PodReading
from halcyon.scaling.policy.decision import MAX_DECISION_INTERVAL_S, MIN_DECISION_INTERVAL_S
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import SignalMemory, reading

BALANCERS, MOST, START_S = 2, 10, 10.0
TAKES_S, AT_ONCE = 16.0, 32
FIRST_S, SECOND_S = 90.0, 150.0
FIRST_RPS, SECOND_RPS = 4.0, 12.0
STAND_IN = "the simulator's closed loop: requests, pods and their starts are simulated"
_SPEC = parse(
    "llm",
    {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}},
        "traffic": {"queueTimeout": "5m", "responseTimeout": "5m"},
        "scaling": {"minReplicas": 1, "maxReplicas": MOST},
    },
)
_MODEL = """import threading
import time

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.room = threading.Semaphore(%d)

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            threading.Thread(target=self.answer, args=(request.get_response_sender(), x), daemon=True).start()

    def answer(self, sender, x):
        with self.room:
            time.sleep(%g)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]), flags=FINAL)
"""
_CONFIG = """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


@dataclass(frozen=True)
class Decoupled:
    """A model that answers after `execute` has returned."""

    name: str = "llm"

    @property
    def files(self) -> Mapping[str, str]:
        """Return the files of the model as path -> content, with paths relative to the model's folder."""
        return {"config.pbtxt": _CONFIG, "1/model.py": _MODEL % (AT_ONCE, TAKES_S)}


def balancer_plan() -> BalancerPlan:
    """Return the plan of the model's balancers, as the operator renders it."""
    return replace(
        ways.plan("llm"),
        max_connections=server_connections(_SPEC),
        finds_concurrency=finds_concurrency(_SPEC),
        balancers=BALANCERS,
        queue_limit=1000,
        queue_timeout_ms=300_000,
        response_timeout_ms=300_000,
        drain_ms=30_000,
    )


@dataclass
class Autoscaler:
    """The operator's path from reports to replicas. Pods become endpoints `start_s` after they are ordered."""

    balancers: Sequence[ways.Balancer]
    addresses: Sequence[str]
    began: float
    spec: Spec = _SPEC
    start_s: float = START_S
    replicas: int = 1
    counts: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, replicas) at each change."""
    ready: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, number of endpoints) at each change."""
    sources: list[tuple[float, str]] = field(default_factory=list)
    why: str = ""
    _created: dict[str, float] = field(default_factory=dict)
    _hub: ObservationStore = field(default_factory=ObservationStore)
    _signals: SignalMemory = field(default_factory=SignalMemory)
    _memory: PlannerMemory = field(default_factory=PlannerMemory)
    _received: list[int] = field(default_factory=list)
    _serving: tuple[str, ...] = ()
    _has_report: bool = False
    _confirmed: bool = False

    def __post_init__(self) -> None:
        self._created = {self.addresses[0]: self.began - 60.0}
        self._received = [0] * len(self.balancers)
        self._hub.subscribe(lambda _namespace, _name, confirms: self._add_report(confirms=confirms))

    async def run(self) -> None:
        """Decide as often as the operator's loop does, until cancelled.

        A decision follows a new report, but at most one every `MIN_DECISION_INTERVAL_S`, unless a report confirms growth.
        """
        decided = -math.inf
        while True:
            now = time.monotonic()
            self._receive(now)
            waited_s = now - decided
            is_due = self._confirmed or (self._has_report and waited_s >= MIN_DECISION_INTERVAL_S)
            if is_due or waited_s >= MAX_DECISION_INTERVAL_S:
                self._confirmed = self._has_report = False
                self.decide()
                decided = now
            await asyncio.sleep(TICK_S)

    def decide(self) -> None:
        """Receive the new reports, and apply the planner's replicas."""
        now = time.monotonic()
        self._receive(now)
        observation = self._hub.snapshot("default", "m", now)
        if observation is None:
            return
        pods = tuple(
            PodReading(ways.pod_name(address), "ready", at, at + self.start_s)
            if address in self._serving
            else PodReading(ways.pod_name(address), "starting", at)
            for address, at in self._created.items()
        )
        reading_result = reading(
            observation, replicas=self.replicas, pods=pods, epoch=WallClock(0.0), memory=self._signals
        )
        self._signals = reading_result.memory
        aims = objectives(self.spec, largest_seen=largest(reading_result.reading.batches), start_s=self.start_s)
        decision = plan(now, aims, reading_result.reading, self._memory)
        self._memory = decision.memory
        line = decision.memory.capacity.line
        capacity = source(
            decision.memory.evidence,
            None if line is None else replica_of(aims, line, reading_result.reading.rows_per_request),
        )
        if not self.sources or self.sources[-1][1] != capacity.name:
            self.sources.append((round(now - self.began, 1), capacity.name))
            say(f"bench: {now - self.began:.0f} s: {capacity.name}: {capacity.why}")
        if decision.count != self.replicas:
            say(f"bench: {now - self.began:.0f} s: {decision.describe()}")
            self.counts.append((round(now - self.began, 1), decision.count))
            self.replicas = decision.count
            for address in [a for a in self.addresses if a not in self._created][: decision.count - len(self._created)]:
                self._created[address] = now
            for address in list(self._created)[decision.count :]:
                del self._created[address]
        self.why = capacity.why

    def _add_report(self, *, confirms: bool) -> None:
        self._has_report = True
        self._confirmed |= confirms

    def _receive(self, now: float) -> None:
        """Store the new reports, and make pods endpoints whose start is over."""
        for number, balancer in enumerate(self.balancers):
            records = balancer.agent.collectors[0].records
            for _, report in records[self._received[number] :]:
                self._hub.receive(report, now)
            self._received[number] = len(records)
        serving = tuple(address for address, at in self._created.items() if now - at >= self.start_s)
        if serving != self._serving:
            self._serving = serving
            self.ready.append((round(now - self.began, 2), len(serving)))
            for balancer in self.balancers:
                balancer.endpoints(serving)

    def reached_s(self, count: int, begin: float) -> float | None:
        """Return the seconds after `begin` at which there were at least `count` replicas; None if never."""
        return next((round(at - begin, 1) for at, replicas in self.counts if at >= begin and replicas >= count), None)


async def decoupled() -> Row:
    """Measure row 1.1."""
    answered: list[tuple[float, float, int]] = []
    with tritons.running([Decoupled()] * MOST) as servers:
        addresses = [server.address for server in servers]
        async with ways.balancers(BALANCERS, balancer_plan(), addresses[:1]) as balancers:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            timeout = aiohttp.ClientTimeout(total=300)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                began = time.monotonic()
                scaler = Autoscaler(balancers, addresses, began)

                async def send(number: int, due: float) -> None:
                    url = f"http://{balancers[number % BALANCERS].http}/v2/models/llm/generate"
                    try:
                        async with session.post(url, json={"x": 1.0}) as response:
                            await response.read()
                            status = response.status
                    except (aiohttp.ClientError, TimeoutError):
                        status = 0
                    answered.append((due, time.monotonic() - began - due, status))

                sent = []
                async with in_background(_decide(scaler)):
                    for number in itertools.count():
                        first = int(FIRST_S * FIRST_RPS)
                        due = number / FIRST_RPS if number < first else FIRST_S + (number - first) / SECOND_RPS
                        if due >= FIRST_S + SECOND_S:
                            break
                        await asyncio.sleep(max(began + due - time.monotonic(), 0))
                        sent.append(asyncio.create_task(send(number, due)))
                    await asyncio.gather(*sent)
    late = [took for due, took, status in answered if due >= FIRST_S + 60 and status == 200]
    value = {
        "three_after_s": scaler.reached_s(3, 0.0),
        "seven_after_s": scaler.reached_s(7, FIRST_S),
        "p50_s": round(median(late), 2) if late else None,
        "not_answered": sum(status != 200 for _, _, status in answered),
        "names_the_source": int(scaler.sources[-1][1] in {"TimeInPods", "Answers"}),
    }
    return Row(
        "1.1",
        f"decoupled Python model, {TAKES_S:g} s a request, {AT_ONCE} at once, maxReplicas {MOST}, 4/s then 12/s",
        value,
        "3 replicas within 20 s, 7 within 30 s of the second step; p50 from 60 s after it on <= 1.2 x an empty pod's; explain names the source",
        [
            ("three_after_s", 20, "<="),
            ("seven_after_s", 30, "<="),
            ("p50_s", 1.2 * TAKES_S, "<="),
            ("not_answered", 0, "=="),
            ("names_the_source", 1, "=="),
        ],
        "python -m benchmarks.right.capacity 1.1",
        "the API server and the collector of the integration tests; pods are Triton processes on loopback that become endpoints "
        f"{START_S:g} s after they are ordered; the operator's store and planner run in the measuring process, and explain's source is theirs",
        n=len(answered),
        law=f"decoupled {TAKES_S:g} s with {AT_ONCE} at once",
        load=f"{FIRST_RPS:g}/s for {FIRST_S:g} s, {SECOND_RPS:g}/s for {SECOND_S:g} s",
        raw={
            "replicas": scaler.counts,
            "sources": scaler.sources,
            "why": scaler.why,
            "answers": answered,
            "statuses": Counter(status for _, _, status in answered),
        },
    )


async def _decide(scaler: Autoscaler) -> None:
    while True:
        scaler.decide()
        await asyncio.sleep(1.0)


async def kinds() -> Row:
    """Measure row 1.2."""
    raw: dict[str, Any] = {}
    right_runs = later_falls = 0
    for kind, load in itertools.product(KINDS, LOADS):
        early, true = result(KINDS[kind], load), result(replace(KINDS[kind], reported_s=None), load)
        raw[f"{kind}: {load}"] = {"early": vars(early), "true": vars(true)}
        right_runs += early.is_right
        later_falls += any(seconds > other for seconds, other in zip(early.fallen_s, true.fallen_s, strict=True))
    return Row(
        "1.2",
        "five kinds (decoupled, asynchronous, BLS, sleeps outside of batches, statistics all zero) under rising, falling and steady load",
        {"right": right_runs, "falls_later": later_falls},
        "right count +-1 within 30 s in 15 of 15; falling: no later than with true statistics",
        [("right", 15, "=="), ("falls_later", 0, "==")],
        "python -m benchmarks.right.capacity 1.2",
        STAND_IN + "; row 1.1 has the decoupled kind on real Triton",
        "BLS: with true statistics of requests that share a replica, capacity is overestimated and one replica too few is kept, which is earlier"
        if later_falls
        else "",
        n=15,
        law="; ".join(KINDS),
        load="Poisson; multiples of one replica's capacity: "
        + "; ".join(f"{name} {steps}" for name, steps in LOADS.items()),
        raw=raw,
    )


async def lock() -> Row:
    """Measure row 1.3."""
    raw, settled, turns, explained = {}, [], 0, 0
    for name, in_batches in itertools.product(LOCKED, (True, False)):
        law = replace(LOCKED[name], lock_reported=in_batches)
        run = loop(law, (60, law.peak_rps / 2), (900, 4 * law.peak_rps), queue_limit=400)
        counts = run.counts(360, 959)
        settled.append(counts[-1])
        turns += sum(a != b for a, b in itertools.pairwise(counts))
        explained += run.sources[-1][1].contradiction == "SharedLimit"
        raw[f"{name}, {'in' if in_batches else 'beside'} batch times"] = {
            "writes": [(write.at_s, write.after) for write in run.trajectory.writes],
            "why": run.sources[-1][1].why,
        }
    return Row(
        "1.3",
        "a model limited by a shared lock (4 pods answer no more than 2), three laws, with the wait in the batch times or beside them",
        {"least": min(settled), "most": max(settled), "turns": turns, "says_why": explained},
        "stops at 3, says why, 10 minutes without a turn",
        [("least", 3, "=="), ("most", 3, "=="), ("turns", 0, "=="), ("says_why", 6, "==")],
        "python -m benchmarks.right.capacity 1.3",
        STAND_IN,
        n=6,
        law="; ".join(LOCKED),
        load="Poisson, 0.5 x one replica's capacity for 60 s, then 4 x for 900 s",
        raw=raw,
    )


async def scaling() -> Row:
    """Return row 1.4. `make bench-scaling CHECK=1`, which takes 40 minutes, measures it."""
    changed = changed_bench_rows()
    return Row(
        "1.4",
        "models with true statistics: figures of bench-scaling's rows that differ from those of a528a11",
        {"changed": changed},
        "none worse",
        [("changed", 0, "==")],
        "make bench-scaling CHECK=1; python -m benchmarks.right.capacity 1.4",
        stand_ins="the simulator: requests, pods and their starts are simulated",
        why="" if changed is not None else "`make bench-scaling CHECK=1` was not run on this machine",
    )


ROWS: Mapping[str, Callable[[], Awaitable[Row]]] = {"1.1": decoupled, "1.2": kinds, "1.3": lock, "1.4": scaling}


async def main(rows: Sequence[str]) -> None:
    """Measure these rows, or all, and record each at once."""
    for name in rows or ROWS:
        row = await ROWS[name]()
        say(f"bench: {row.id}: {row.value}")
        record("right", [row])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
