"""Rows of section 2, on real HAProxys, their agents and real Triton servers.

python -m benchmarks.right.concurrency [ROW...]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from benchmarks import rows as bench_rows
from benchmarks.dataplane import results, tritons, ways
from benchmarks.dataplane.tritons import HTTP_PORT
from benchmarks.quality.rows import Row, record
from e2e.cluster.progress import say
from halcyon.api.documents.balancer_plan import BalancerPlan
from halcyon.api.spec.parse import parse
from halcyon.render.server_maxconn import finds_concurrency, server_connections

BALANCERS = 2
BURST, PODS = 30, 4
RESTED_S = 3.0
_SOURCE = {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}}
STAND_INS = "the API server and the collector of the integration tests; pods are Triton processes on loopback"
_SLOW = """import time
import uuid

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.who = str(uuid.uuid4()).encode()

    def execute(self, requests):
        responses = []
        for _ in requests:
            time.sleep(5)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("who", np.array([self.who], object))]))
        return responses
"""
_ENGINE = """import threading
import time

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.room = threading.Semaphore(256)

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            threading.Thread(target=self.answer, args=(request.get_response_sender(), x), daemon=True).start()

    def answer(self, sender, x):
        with self.room:
            time.sleep(1)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("who", x)]), flags=FINAL)
"""
_CONFIG = """backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "who" data_type: %s dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
%s
"""


@dataclass(frozen=True)
class Sleeper:
    """A model that computes nothing: one request of 5 s at a time, or, as an engine, 256 of 1 s at once."""

    name: str
    engine: bool = False

    @property
    def files(self) -> Mapping[str, str]:
        """Return the files of the model as path -> content, with paths relative to the model's folder."""
        decoupled = "model_transaction_policy { decoupled: true }" if self.engine else ""
        config = _CONFIG % ("TYPE_FP32" if self.engine else "TYPE_STRING", decoupled)
        return {"config.pbtxt": config, "1/model.py": _ENGINE if self.engine else _SLOW}


@dataclass
class Answers:
    """Answers to one burst."""

    statuses: Counter[int] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    ends_s: list[float] = field(default_factory=list)
    """Time of each answer since the burst began, in seconds."""


def plan(model: str, **changes: Any) -> BalancerPlan:
    """Return the plan of a model with the defaults of the spec, and with these changes."""
    spec = parse(model, _SOURCE)
    return replace(
        ways.plan(model),
        max_connections=server_connections(spec),
        finds_concurrency=finds_concurrency(spec),
        balancers=BALANCERS,
        queue_limit=200,
        queue_timeout_ms=60000,
        response_timeout_ms=60000,
        drain_ms=30000,
        **changes,
    )


async def burst(addresses: Sequence[str], model: Sleeper, count: int) -> Answers:
    """Send requests at once, each over a connection of its own, to the addresses (host:port) in turn; wait for all answers."""
    answers, began = Answers(), time.monotonic()
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
    verb, payload = ("generate", {"x": 1.0}) if model.engine else ("infer", body)

    async def send(number: int) -> None:
        url = f"http://{addresses[number % len(addresses)]}/v2/models/{model.name}/{verb}"
        try:
            async with session.post(url, json=payload) as response:
                answers.statuses[response.status] += 1
                answer = await response.json()
                if response.status == 200 and not model.engine:
                    answers.pods[answer["outputs"][0]["data"][0]] += 1
        except aiohttp.ClientError:
            answers.statuses[0] += 1
        answers.ends_s.append(round(time.monotonic() - began, 3))

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*(send(number) for number in range(count)))
    return answers


def _place(balancers: Sequence[ways.Balancer], pods: Sequence[str], leaving: Sequence[str] = ()) -> None:
    for balancer in balancers:
        balancer.endpoints(pods, leaving=leaving)


async def slow_burst() -> Row:
    """Measure 30 requests of 5 s at one pod, to which three come after a second, and a rollout while 20 wait."""
    model = Sleeper("slow")
    with tritons.running([model] * (2 * PODS)) as pods:
        addresses = [pod.address for pod in pods]
        async with ways.balancers(BALANCERS, plan("slow"), addresses[:1]) as balancers:
            await asyncio.sleep(RESTED_S)
            sent = asyncio.create_task(burst([balancer.http for balancer in balancers], model, BURST))
            await asyncio.sleep(1)
            _place(balancers, addresses[:PODS])
            spread = await sent
            sent = asyncio.create_task(burst([balancer.http for balancer in balancers], model, BURST))
            # A surge of one: an old pod leaves once a new one is ready.
            for number in range(PODS):
                await asyncio.sleep(1)
                _place(balancers, addresses[number : PODS + number + 1], addresses[:number])
                await asyncio.sleep(1)
                _place(balancers, addresses[number + 1 : PODS + number + 1], addresses[: number + 1])
            rolled = await sent
    value = {
        "answered": spread.statuses[200],
        "pods": len(spread.pods),
        "last_s": max(spread.ends_s),
        "lost_in_rollout": BURST - rolled.statuses[200],
    }
    return Row(
        "2.1",
        "unbatched model, 5 s a request: 30 at once at one pod, three more pods after 1 s; then a rollout of four pods while 20 wait",
        value,
        "30 answered, over 4 pods, last one <= 50 s; rollout: 0 lost",
        [("answered", BURST, "=="), ("pods", 4, "=="), ("last_s", 50, "<="), ("lost_in_rollout", 0, "==")],
        "python -m benchmarks.right.concurrency 2.1",
        STAND_INS + "; a rollout moves the endpoints from old pods to new ones, and ends no process",
        law="unbatched 5 s",
        load="twice 30 requests at once",
        raw=[vars(spread), vars(rolled)],
    )


async def engine_burst() -> Row:
    """Measure 200 requests of 1 s at once at a pod that takes 256, with the field and without it."""
    model, raw, value = Sleeper("llm", engine=True), [], dict[str, float | None]()
    with tritons.running([model]) as pods:
        direct = await burst([f"{pods[0].address}:{HTTP_PORT}"], model, 200)
        raw.append(vars(direct))
        value["directly_s"] = max(direct.ends_s) if direct.statuses[200] == 200 else None
        for name, balancer_plan in (
            ("with_field_s", plan("llm", max_concurrency=256)),
            ("without_field_second_burst_s", plan("llm")),
        ):
            async with ways.balancers(BALANCERS, balancer_plan, [pods[0].address]) as balancers:
                await asyncio.sleep(RESTED_S)
                for _ in range(1 if balancer_plan.max_concurrency else 2):
                    answers = await burst([balancer.http for balancer in balancers], model, 200)
                    raw.append(vars(answers))
                    say(f"bench: {name}: {dict(answers.statuses)}, last after {max(answers.ends_s):.2f} s")
                    await asyncio.sleep(RESTED_S)
                value[name] = max(answers.ends_s) if answers.statuses[200] == 200 else None
                if balancer_plan.max_concurrency:
                    # Those that were let in at once take as long as they would directly.
                    value["let_in_at_once"] = sum(end <= max(direct.ends_s) + 0.2 for end in answers.ends_s)
    late = (value["with_field_s"] or 0) > 1.6
    return Row(
        "2.2",
        "decoupled model, 256 at once, 1 s each: 200 requests at once",
        value,
        "<= 1.6 s with the field; <= 3 s without, at the second burst",
        [("with_field_s", 1.6, "<="), ("without_field_second_burst_s", 3, "<=")],
        "python -m benchmarks.right.concurrency 2.2",
        STAND_INS,
        "at rest, half of each balancer's share belongs to gRPC; the requests above the other half wait until its agent moves the shares, "
        "every 0.25 s, and HAProxy fills the grown share (docs/decisions/0056-clients-of-a-balancer.md)"
        if late
        else "",
        law="decoupled 1 s with 256 at once",
        load="200 requests at once",
        raw=raw,
    )


BEFORE: Mapping[str, float] = {
    "share_of_haproxy": 0.846,
    "cpu_of_haproxy": 34.1 / 25.4,
    "unequal_p99_ratio": 1.007,
    "goodput_at_3x": 1.048,
    "step_to_scale_p50_s": 1.31,
    "step_to_scale_p99_s": 2.179,
}
"""Figures of docs/benchmarks at a528a11. Those of the data plane are ratios of turns side by side, so the machine matters little."""
_MORE_IS_BETTER = {"share_of_haproxy", "goodput_at_3x"}
_MAX_RATIO = 1.05
"""Maximum ratio of a figure to that of a528a11. The rounds of one run differ by as much."""


def worse(now: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return how many times as bad each figure is as at a528a11; None if it is not measured."""
    ratios: dict[str, float | None] = {}
    for name, value in now.items():
        before = BEFORE[name]
        is_better = name in _MORE_IS_BETTER
        ratios[name] = None if not value else round(before / value if is_better else value / before, 3)
    return ratios


def dataplane_figures(content: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of build/bench/dataplane.json that are compared."""
    details = ((content.get("parts") or {}).get("throughput") or {}).get("details") or {}
    cpu_us = details.get("cpu_us_per_request") or {}
    own_us, alone_us = cpu_us.get(ways.HALCYON), cpu_us.get(ways.HAPROXY)
    return {
        "share_of_haproxy": details.get("share_of_haproxy"),
        "cpu_of_haproxy": own_us / alone_us if own_us and alone_us else None,
        "unequal_p99_ratio": content.get("unequal_p99_ratio"),
        "goodput_at_3x": content.get("goodput_at_3x"),
    }


def reaction_figures(content: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the figures of build/bench/reaction.json that are compared."""
    entry: Mapping[str, Any] = next((row for row in content if row["part"] == "one"), {})
    return {name: entry.get(name) for name in ("step_to_scale_p50_s", "step_to_scale_p99_s")}


def worst(figures: Mapping[str, float | None]) -> float | None:
    """Return the worst of these ratios; None if one of them is not measured."""
    measured = [value for value in figures.values() if value is not None]
    return max(measured) if len(measured) == len(figures) else None


async def batching() -> Row:
    """Compare the limits of batching models, and the two benchmarks, with those of the release before the bound.

    The figures are those that the benchmarks have last written on this machine, so they run first.
    """
    same_limits = {}
    for batch, before in ((8, 16), (32, 64)):
        spec = parse("m", _SOURCE | {"batching": {"maxBatchSize": batch}})
        same_limits[f"batch_{batch}"] = float(server_connections(spec) == before and not finds_concurrency(spec))
    dataplane = worse(dataplane_figures(results.read()))
    reaction = worse(reaction_figures(bench_rows.read()))
    value = same_limits | {"bench_dataplane": worst(dataplane), "bench_reaction": worst(reaction)}
    lacking = [name for name, ratio in (dataplane | reaction).items() if ratio is None]
    fallen = [f"{name} {ratio:g}" for name, ratio in (dataplane | reaction).items() if ratio and ratio > _MAX_RATIO]
    return Row(
        "2.3",
        "batching models: limits of a server as before; figures of the benchmarks, as multiples of those of a528a11",
        value,
        "bench-dataplane and bench-reaction none worse (at most 1.05 times as bad)",
        [
            ("batch_8", 1, "=="),
            ("batch_32", 1, "=="),
            ("bench_dataplane", _MAX_RATIO, "<="),
            ("bench_reaction", _MAX_RATIO, "<="),
        ],
        'make bench-dataplane ONLY="throughput unequal overload"; make bench-reaction ONLY=one; '
        "python -m benchmarks.right.concurrency 2.3",
        why="; ".join(
            [
                *([f"not measured on this machine: {', '.join(lacking)}"] if lacking else []),
                *([f"worse: {', '.join(fallen)}"] if fallen else []),
            ]
        ),
        raw={"dataplane": dataplane, "reaction": reaction},
    )


ROWS: Mapping[str, Callable[[], Awaitable[Row]]] = {"2.1": slow_burst, "2.2": engine_burst, "2.3": batching}


async def main(rows: Sequence[str]) -> None:
    """Measure these rows, or all, and record each at once."""
    for name in rows or ROWS:
        row = await ROWS[name]()
        say(f"bench: {row.id}: {row.value}")
        record("right", [row])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
