"""Overload by default: rows 4.2, 4.3 and 4.5 on real Triton and HAProxy processes with their agents, without a cluster.

    python -m benchmarks.right.overload [4.2|4.3|4.5] [--seconds N] [--case TEXT]

The balancers have the plan that the controller writes for a model with `targets.latency` and no field of `traffic`.
"""

import argparse
import asyncio
import contextlib
import math
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
from tritonclient.grpc import service_pb2, service_pb2_grpc

from benchmarks import open_loop
from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.open_loop import Sent
from benchmarks.profile import Phase, Profile
from benchmarks.quality import rows
from benchmarks.rows import quantile
from e2e.cluster.progress import say
from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.api.spec import Spec
from halcyon.render.server_maxconn import server_connections

MODEL = "sleeps"
_TIMES = 3.0
_DEADLINE_S = 10.0
_STARTS_S = 6.0
"""Time in seconds after which two loads begin together: longer than the start of a process on a busy machine."""
_STAND_INS = (
    "Triton's Python backend on CPU, whose execution is a sleep; the agents' API server and collector are those of the "
    "integration tests; no cluster"
)


@dataclass(frozen=True)
class Law:
    """An execution time of t0_ms + a_ms x rows, and the latency objective of its model."""

    t0_ms: float
    a_ms: float
    max_batch: int
    objective_ms: int

    @property
    def text(self) -> str:
        """Return the law in words."""
        return f"{self.t0_ms:g} + {self.a_ms:g} b ms, batch {self.max_batch}, objective {self.objective_ms} ms"

    @property
    def peak_rps(self) -> float:
        """Return the requests per second of one pod with full batches."""
        return 1000 * self.max_batch / (self.t0_ms + self.a_ms * self.max_batch)


LAWS = (Law(80, 6, 8, 500), Law(20, 2, 32, 300), Law(50, 0, 1, 500))


def plan(law: Law, balancers: int, mode: str = "Reject") -> BalancerPlan:
    """Return the controller's plan for the fifteen lines of README's manifest with this law."""
    traffic = {"balancerReplicas": balancers, "overload": {"mode": mode}}
    spec = Spec.model_validate(
        {
            "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
            "batching": {"maxBatchSize": law.max_batch},
            "scaling": {"maxReplicas": 8, "targets": {"latency": f"{law.objective_ms}ms"}},
            "traffic": traffic,
        }
    )
    return BalancerPlan(
        namespace="default",
        name="m",
        model=MODEL,
        slots=(Slot("a", "m-server-a", 100, 8),),
        max_connections=server_connections(spec),
        queue_limit=100_000 if mode == "Reject" else 200,
        queue_timeout_ms=60000,
        response_timeout_ms=60000,
        drain_ms=30000,
        objective_ms=law.objective_ms if mode == "Reject" else 0,
        max_batch=law.max_batch,
        balancers=balancers,
    )


@dataclass(frozen=True)
class Outcome:
    """Outcome of the requests of one load."""

    what: str
    offered: int
    in_time: int
    late: int
    refused: int
    failed: int
    goodput: float
    """Responses within the objective per second, divided by what the pods can do."""
    answered_p99_s: float
    refused_p50_s: float
    refused_p99_s: float
    late_sending_s: float


def _outcome(case: str, sent: Sequence[Sent], law: Law, *, capacity_rps: float, for_s: float) -> Outcome:
    """Return the outcome of the requests. The goodput counts the time in which all loads are sent."""
    objective_s = law.objective_ms / 1000
    begin_s, end_s = max(load.began_s for load in sent), min(load.began_s for load in sent) + for_s
    answered, good, refused, failed = [], 0, 0, 0
    for load in sent:
        for at_s, latency_s in zip(load.at_s, load.latency_s, strict=True):
            if latency_s is not None:
                answered.append(latency_s)
                good += latency_s <= objective_s and begin_s <= load.began_s + at_s + latency_s <= end_s
        for kind, count in load.failures.items():
            is_refusal = "RESOURCE_EXHAUSTED" in kind or "429" in kind
            refused, failed = refused + count * is_refusal, failed + count * (not is_refusal)
    in_time = sum(latency_s <= objective_s for latency_s in answered)
    took_s = [after_s for load in sent for after_s in load.failed_s]
    return Outcome(
        case,
        sum(len(load.at_s) for load in sent),
        in_time,
        len(answered) - in_time,
        refused,
        failed,
        round(good / (end_s - begin_s) / capacity_rps, 3),
        quantile(answered, 0.99) or math.nan,
        quantile(took_s, 0.5) or math.nan,
        quantile(took_s, 0.99) or math.nan,
        max(load.late_sending_s for load in sent),
    )


async def _offer(addresses: Sequence[str], rate_rps: float, for_s: float, **options: Any) -> list[Sent]:
    """Send an open loop with one mean rate to balancers, and return the results."""
    return await offer(addresses, Profile((Phase(0.0, rate_rps),), for_s), **options)


async def offer(
    addresses: Sequence[str],
    profile: Profile,
    *,
    seed: int = 1,
    split: Sequence[float] | None = None,
    deadline_s: float = _DEADLINE_S,
    model: str = MODEL,
    **options: Any,
) -> list[Sent]:
    """Send an open loop to balancers, each with its share of the rates (`split`), and return the results."""
    begin_s = time.monotonic() + _STARTS_S if len(addresses) > 1 else 0.0
    shares = split or [1 / len(addresses)] * len(addresses)
    with contextlib.ExitStack() as stack:
        starting = [
            asyncio.to_thread(
                stack.enter_context,
                open_loop.running(
                    address,
                    model,
                    profile.scaled(share),
                    deadline_s=deadline_s,
                    seed=seed + 100 * number,
                    begin_s=begin_s,
                    **options,
                ),
            )
            for number, (address, share) in enumerate(zip(addresses, shares, strict=True))
            if share > 0
        ]
        loads = await asyncio.gather(*starting)
        return [await asyncio.to_thread(load.result) for load in loads]


async def measure_overload(
    balancers: Sequence[ways.Balancer], law: Law, *, pods: int, for_s: float, name: str, **options: Any
) -> Outcome:
    """Offer three times what these pods can do to their balancers, and return the outcome of the requests."""
    capacity = pods * law.peak_rps
    is_http = options.get("protocol") == "http"
    addresses = [balancer.http if is_http else balancer.grpc for balancer in balancers]
    sent = await _offer(addresses, _TIMES * capacity, for_s, **options)
    case = f"{law.text}, {pods} pods, {len(balancers)} balancers, {name}"
    return _outcome(case, sent, law, capacity_rps=capacity, for_s=for_s)


def warm_up(triton: Triton, law: Law) -> None:
    """Execute batches of 1 and of max_batch twice, as the warm-up of a pod does."""
    with grpc.insecure_channel(triton.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for count in (1, law.max_batch) * 2:
            request = service_pb2.ModelInferRequest(model_name=MODEL)
            request.inputs.add(name="x", datatype="FP32").shape.extend([count, 1])
            request.raw_input_contents.append(struct.pack(f"<{count}f", *[1.0] * count))
            stub.ModelInfer(request, timeout=60)


async def overload(law: Law, *, pods: int, for_s: float, case: str = "") -> list[Outcome]:
    """Measure three times the load of these pods: both protocols, one and two balancers, many channels and one.

    `case` is a part of the names of the cases to measure, for example `2 balancers, http`; empty for all.
    """
    outcomes = []
    with tritons.running([Work(MODEL, law.t0_ms, law.a_ms, law.max_batch)] * pods) as servers:
        for server in servers:
            warm_up(server, law)
        for count in (1, 2):
            single_channel: dict[str, Any] = {"channels": 1, "split": [1.0, *[0.0] * (count - 1)]}
            cases: dict[str, dict[str, Any]] = {"grpc": {}, "http": {"protocol": "http"}, "one channel": single_channel}
            chosen = [name for name in cases if case in f"{law.text}, {pods} pods, {count} balancers, {name}"]
            if not chosen:
                continue
            async with ways.balancers(count, plan(law, count), [server.address for server in servers]) as balancers:
                for name in chosen:
                    outcomes.append(
                        await measure_overload(balancers, law, pods=pods, for_s=for_s, name=name, **cases[name])
                    )
                    say(f"overload: {outcomes[-1]}")
                    await asyncio.sleep(3)
    return outcomes


async def normal(law: Law, *, pods: int, for_s: float, mode: str) -> list[Outcome]:
    """Measure 80 % of the load of these pods with Poisson arrivals, and 70 % with a variation of 3."""
    outcomes = []
    with tritons.running([Work(MODEL, law.t0_ms, law.a_ms, law.max_batch)] * pods) as servers:
        for server in servers:
            warm_up(server, law)
        capacity = pods * law.peak_rps
        async with ways.balancers(2, plan(law, 2, mode), [server.address for server in servers]) as balancers:
            addresses = [balancer.grpc for balancer in balancers]
            for share, variation in ((0.8, 1.0), (0.7, 3.0)):
                sent = await _offer(addresses, share * capacity, for_s, variation=variation)
                case = f"{law.text}, {pods} pods, {share:.0%}, CV {variation:g}, {mode}"
                outcomes.append(_outcome(case, sent, law, capacity_rps=capacity, for_s=for_s))
                say(f"overload: {outcomes[-1]}")
    return outcomes


def row_2(*, for_s: float, laws: Sequence[Law] = LAWS) -> rows.Row:
    """Measure row 4.2."""
    outcomes = [outcome for law in laws for outcome in asyncio.run(overload(law, pods=1, for_s=for_s))]
    goodputs = {outcome.what: outcome.goodput for outcome in outcomes}
    single_channel = {case: goodput for case, goodput in goodputs.items() if case.endswith("one channel")}
    behind = [goodputs[case.replace("one channel", "grpc")] - goodput for case, goodput in single_channel.items()]
    many_channels = [outcome for outcome in outcomes if not outcome.what.endswith("one channel")]
    least = min(many_channels, key=lambda outcome: outcome.goodput)
    p99s_s = [(outcome.what, outcome.answered_p99_s) for outcome in outcomes]
    return rows.Row(
        id="4.2",
        what="3x overload, HTTP and gRPC, 1 and 2 balancers, and all requests on one channel",
        value={
            "goodput_min": least.goodput,
            "one_channel_behind_many": round(max(behind), 3),
            "refused_p99_s": max(outcome.refused_p99_s for outcome in outcomes),
            "answered_p99_per_objective": round(
                max(p99_s / law.objective_ms * 1000 for law in laws for case, p99_s in p99s_s if law.text in case), 3
            ),
            "cases": len(outcomes),
        },
        target="goodput within the objective >= 90 % of what the pods can do (one channel: within 5 points of many); "
        "refused at once (p99 <= 20 ms)",
        limits=[
            ("goodput_min", 0.9, ">="),
            ("one_channel_behind_many", 0.05, "<="),
            ("refused_p99_s", 0.02, "<="),
        ],
        command="python -m benchmarks.right.overload 4.2",
        stand_ins=_STAND_INS,
        why=f"lowest goodput: {least.what}",
        n=sum(outcome.offered for outcome in outcomes),
        law="; ".join(law.text for law in laws),
        load=f"Poisson, 3 x the peak rate, {for_s:g} s each",
        raw=[asdict(outcome) for outcome in outcomes],
    )


def row_3(*, for_s: float, laws: Sequence[Law] = LAWS[:1]) -> rows.Row:
    """Measure row 4.3. The default of 600 s takes 80 minutes."""
    outcomes: dict[str, list[Outcome]] = {}
    for law in laws:
        for pods in (1, 4):
            for mode in ("Reject", "Wait"):
                outcomes.setdefault(mode, []).extend(asyncio.run(normal(law, pods=pods, for_s=for_s, mode=mode)))
    value: dict[str, Any] = {}
    for variation in ("1", "3"):
        rejecting = [outcome for outcome in outcomes["Reject"] if f"CV {variation}," in outcome.what]
        share = max(outcome.refused / outcome.offered for outcome in rejecting)
        value[f"refused_share_cv_{variation}"] = round(share, 6)
    value["more_lost_than_with_wait"] = max(
        (a.late + a.refused + a.failed) - (b.late + b.refused + b.failed)
        for a, b in zip(outcomes["Reject"], outcomes["Wait"], strict=True)
    )
    return rows.Row(
        id="4.3",
        what="80 % of capacity (Poisson) and 70 % (CV 3), 1 and 4 pods, two balancers",
        value=value,
        target="refused <= 0.01 % and <= 0.1 %; never more late + refused than with mode Wait",
        limits=[
            ("refused_share_cv_1", 0.0001, "<="),
            ("refused_share_cv_3", 0.001, "<="),
            ("more_lost_than_with_wait", 0, "<="),
        ],
        command="python -m benchmarks.right.overload 4.3",
        stand_ins=_STAND_INS,
        why="a burst that lasts is rejected as an overload: docs/decisions/0123-late-requests.md"
        if value["refused_share_cv_3"] > 0.001
        else "",
        n=sum(outcome.offered for mode_outcomes in outcomes.values() for outcome in mode_outcomes),
        law="; ".join(law.text for law in laws),
        load=f"80 % Poisson and 70 % gamma with CV 3 between arrivals, {for_s:g} s each",
        raw={mode: [asdict(outcome) for outcome in mode_outcomes] for mode, mode_outcomes in outcomes.items()},
    )


async def measure_wake(law: Law, *, held: int, rate_rps: float) -> tuple[Outcome, Outcome]:
    """Hold requests at zero pods, start one, and send more until the held ones are answered; return the outcomes of both."""
    with tritons.running([Work(MODEL, law.t0_ms, law.a_ms, law.max_batch)]) as [server]:
        warm_up(server, law)
        async with ways.balancers(2, plan(law, 2), []) as balancers:
            addresses = [balancer.grpc for balancer in balancers]
            for_s = 3.0
            first = asyncio.create_task(_offer(addresses, held / for_s, for_s, deadline_s=60.0))
            await asyncio.sleep(_STARTS_S + for_s + 1)
            reading = [await balancer.balanced.haproxy.runtime.read() for balancer in balancers]
            say(f"overload: held {[state.held for state in reading]}")
            for balancer in balancers:
                balancer.endpoints([server.address])
            more_s = 2 * held / law.peak_rps
            more = asyncio.create_task(_offer(addresses[:1], rate_rps, more_s, seed=2, deadline_s=60.0))
            results = [await first, await more]
            outcomes = [
                _outcome(case, sent, law, capacity_rps=law.peak_rps, for_s=time_s)
                for case, sent, time_s in zip(("held", "after them"), results, (for_s, more_s), strict=True)
            ]
            return outcomes[0], outcomes[1]


def row_5() -> rows.Row:
    """Measure row 4.5."""
    law = LAWS[0]
    held, after = asyncio.run(measure_wake(law, held=300, rate_rps=20.0))
    return rows.Row(
        id="4.5",
        what="300 held at zero, 20/s more while they are answered",
        value={
            "held": held.offered,
            "more": after.offered,
            "refused": held.refused + after.refused,
            "failed": held.failed + after.failed,
        },
        target="0 refused",
        limits=[("refused", 0, "=="), ("failed", 0, "=="), ("held", 250, ">=")],
        command="python -m benchmarks.right.overload 4.5",
        stand_ins=_STAND_INS + "; a pod that is ready stands in for one that starts",
        n=held.offered + after.offered,
        law=law.text,
        load="Poisson, 300 in 3 s at zero pods, then 20/s, two balancers",
        raw=[asdict(held), asdict(after)],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows, and record them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.right.overload", description=__doc__)
    parser.add_argument("rows", nargs="*", default=["4.2", "4.3", "4.5"])
    parser.add_argument("--seconds", type=float, help="duration of each load (default: 30 for 4.2, 600 for 4.3)")
    parser.add_argument(
        "--case", help="cases of row 4.2 to measure, a part of their names: `2 balancers, http`; nothing is recorded"
    )
    parser.add_argument("--laws", type=int, default=len(LAWS), help="number of laws of row 4.2")
    options = parser.parse_args(arguments)
    if options.case is not None:
        for law in LAWS[: options.laws]:
            asyncio.run(overload(law, pods=1, for_s=options.seconds or 30.0, case=options.case))
        return 0
    for name in options.rows:
        if name == "4.2":
            row = row_2(for_s=options.seconds or 30.0, laws=LAWS[: options.laws])
        elif name == "4.5":
            row = row_5()
        else:
            row = row_3(for_s=options.seconds or 600.0)
        rows.record("right", [row])
        say(f"overload: {row.id}: {row.value}; holds: {rows.holds(row)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
