"""Benchmark of the pod deletion cost: does it help to report idle pods to Kubernetes before a scale-down?

Usage: `python -m benchmarks.drain`. When a Deployment scales down, it first removes the pods with the lowest annotation
`controller.kubernetes.io/pod-deletion-cost`. The benchmark scales models with five pods to three and back. Rounds
without the annotation alternate with rounds in which each pod's cost is set to its number of requests in flight
directly before. This is the best that Halcyon could do with the annotation. Everything is real except for the work of
the model, which sleeps.

case      load                                              requests in flight at a time
short     30 req/s of 86 ms                                 3, on any pod
low       long requests of 3 s, 0.6 per second              2 of 5 pods busy
busy      the same, 5 per second                            15, every pod busy
one       one request of 15 s, nothing else                 1
some      requests of 15 s, 0.13 per second                 2 of 5 pods busy
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Literal

from benchmarks import open_loop, pods
from benchmarks.counts import Counts
from benchmarks.errors import BenchError
from benchmarks.eyes import InflightReader
from benchmarks.plane import alone
from benchmarks.profile import Phase, Profile
from benchmarks.rows import FILE
from demo.errors import DemoError
from demo.kube import Kube
from e2e import interrupts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import say
from e2e.load.clients import Caller, Connections
from e2e.load.settings import Load
from halcyon.kube import kinds
from halcyon.render.server import PRE_STOP_S

OUT = FILE.with_name("drain.json")
COST = "controller.kubernetes.io/pod-deletion-cost"
MANY, FEW = 5, 3
_DEADLINE_S = 40.0
_ROUND_S = 60.0
"""Time limit of a round in seconds, after which it counts as failed."""
_TYPICAL_ROUND_S = 25.0
"""Typical duration of a round in seconds."""
_RESAMPLES = 4000

Way = Literal["as it is", "told"]


@dataclass(frozen=True)
class Case:
    """One load on one model."""

    name: str
    t0_ms: float
    """Duration of a batch in ms."""
    rate_rps: float
    """Rate of the open loop; 0 for a single request that begins one second before each scale-down."""


CASES = (
    Case("short", 80, 30),
    Case("low", 3000, 0.6),
    Case("busy", 3000, 5),
    Case("one", 15000, 0),
    Case("some", 15000, 0.13),
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One scale-down from MANY to FEW."""

    case: str
    pair: int
    """Number of the pair. The two rounds of a pair, with and without costs, follow each other."""
    way: Way
    drain_s: float
    """Time in seconds from the write of the replicas until the last removed pod is gone, minus the fixed preStop
    time."""
    draining_pod_s: float
    """Time in seconds from the deletion of a pod until it is gone, summed over the removed pods."""
    inflight: tuple[int, ...]
    """Requests in flight on each pod just before the write, with the removed pods first."""
    inflight_removed: int


class Model:
    """One case with its model, and its rounds."""

    def __init__(self, kube: Kube, counts: Counts, case: Case) -> None:
        self.name = f"drain-{case.name}"
        self.rounds: list[Round] = []
        self.failures: dict[str, int] = {}
        self._kube, self._counts, self._case = kube, counts, case

    def document(self) -> dict[str, Any]:
        """Return the ModelDeployment."""
        deployment = pods.model(
            self.name, start_s=0.0, replicas=MANY, queueTimeout="60s", responseTimeout="60s", queueLimit=200
        )
        deployment["spec"]["model"]["parameters"] |= {"t0_ms": f"{self._case.t0_ms:g}"}
        if self._case.t0_ms > 1000:
            deployment["spec"]["model"]["parameters"]["a_ms"] = "0"
            del deployment["spec"]["model"]["warmup"]  # its batches of 15 s would take longer than a round
        return deployment

    async def run(self, seconds: float, seed: int) -> None:
        """Run rounds for `seconds`, while the load continues."""
        address = pods.address(self._kube, self.name)
        async with AsyncExitStack() as stack:
            balancer = self._counts.balancer(self.name)
            reader = await stack.enter_async_context(InflightReader(self._kube, str(balancer)))
            load = Load(
                address=address, model=self.name, timeout_s=_DEADLINE_S, channels=1, input="x", shape=(1, 1),
                batch_output=None, who_output=None,
            )  # fmt: skip
            caller = (await stack.enter_async_context(Connections(load))).caller()
            end_s = time.monotonic() + seconds
            with self._load(address, seconds, seed) as running:
                pair = 0
                while time.monotonic() < end_s - 2 * _TYPICAL_ROUND_S:
                    ways: list[Way] = ["as it is", "told"]
                    # The order within a pair alternates, so that a trend over time favours neither way.
                    for way in ways if pair % 2 else ways[::-1]:
                        self.rounds.append(await self._round(reader, caller, pair, way))
                    pair += 1
                if running is not None:
                    self.failures = (await asyncio.to_thread(running.result)).failures

    @contextmanager
    def _load(self, address: str, seconds: float, seed: int) -> Iterator[open_loop.Running | None]:
        if not self._case.rate_rps:
            yield None
            return
        profile = Profile((Phase(0.0, self._case.rate_rps),), seconds)
        with open_loop.running(address, self.name, profile, deadline_s=_DEADLINE_S, seed=seed) as running:
            yield running

    async def _round(self, reader: InflightReader, caller: Caller, pair: int, way: Way) -> Round:
        by_address = await self._wait_until_settled(reader)
        request = None
        if not self._case.rate_rps:
            request = asyncio.create_task(caller(pair))
            await reader.until(lambda counts: any(counts.values()), limit_s=10)
            await asyncio.sleep(1)
        inflight = {by_address[address]: count for address, count in (await reader.read()).items()}
        await self._set_costs(inflight if way == "told" else dict.fromkeys(inflight))
        written_s = time.monotonic()
        await self._scale(FEW)
        terminating_s, deleted_s = await self._wait_until_removed(set(inflight))
        if request is not None:
            await request
        await self._scale(MANY)
        removed_inflight = [inflight[pod] for pod in deleted_s]
        scale_down = Round(
            case=self._case.name,
            pair=pair,
            way=way,
            drain_s=round(max(deleted_s.values()) - written_s - PRE_STOP_S, 3),
            draining_pod_s=round(sum(deleted_s[pod] - terminating_s[pod] for pod in deleted_s), 3),
            inflight=(*removed_inflight, *(count for pod, count in inflight.items() if pod not in deleted_s)),
            inflight_removed=sum(removed_inflight),
        )
        say(f"drain: {scale_down.case}, {way}: {scale_down.drain_s:.1f} s, in flight {scale_down.inflight}")
        return scale_down

    async def _wait_until_settled(self, reader: InflightReader) -> dict[str, str]:
        """Wait until all pods are ready and in use by the balancer and the load has run for 3 s more.

        Return the pod names by address.
        """
        await self._counts.until(
            lambda: len(self._counts.ready_servers(self.name)) == MANY == len(self._servers()),
            goal=f"{MANY} pods of {self.name}",
            limit_s=_ROUND_S,
        )
        servers = await asyncio.to_thread(self._kube.pods, self.name, "server")
        by_address = {str(pod["status"]["podIP"]): str(pod["metadata"]["name"]) for pod in servers}
        await reader.until(lambda counts: set(counts) == set(by_address), limit_s=_ROUND_S)
        await asyncio.sleep(3)
        return by_address

    async def _set_costs(self, costs: Mapping[str, int | None]) -> None:
        """Set every pod's deletion cost, or remove it."""
        await asyncio.gather(
            *(
                self._counts.client.patch(
                    kinds.POD,
                    self._kube.namespace,
                    pod,
                    {"metadata": {"annotations": {COST: None if cost is None else str(cost)}}},
                )
                for pod, cost in costs.items()
            )
        )

    async def _scale(self, count: int) -> None:
        body = {"spec": {"replicas": count}}
        await self._counts.client.patch(
            kinds.MODEL_DEPLOYMENT, self._kube.namespace, self.name, body, subresource="scale"
        )

    async def _wait_until_removed(self, before: set[str]) -> tuple[dict[str, float], dict[str, float]]:
        """Wait for the end of the surplus pods, and return when each began to terminate and when it was gone."""
        terminating_s: dict[str, float] = {}
        deleted_s: dict[str, float] = {}

        def are_deleted() -> bool:
            now, present = time.monotonic(), self._servers()
            for pod in before:
                if pod not in present or present[pod]["metadata"]["deletionTimestamp"] is not None:
                    terminating_s.setdefault(pod, now)
                if pod not in present:
                    deleted_s.setdefault(pod, now)
            return len(deleted_s) == MANY - FEW

        await self._counts.until(are_deleted, goal=f"pods of {self.name} go", limit_s=_ROUND_S)
        return terminating_s, deleted_s

    def _servers(self) -> dict[str, dict[str, Any]]:
        servers = self._counts.pods.find(self._kube.namespace, f"server/{self.name}")
        return {pod["metadata"]["name"]: pod for pod in servers}


async def _measure(kube: Kube, cases: Sequence[Case], seconds: float, seed: int, models: list[Model]) -> None:
    """Run the cases and add their rounds to `models`, so that these are kept if a later round fails."""
    async with Counts(str(kube.kubeconfig), lambda _: kube.namespace) as counts:
        models += [Model(kube, counts, case) for case in cases]
        await asyncio.to_thread(kube.apply, *(model.document() for model in models))
        await counts.until_served([model.name for model in models], limit_s=180)
        # The cases run in parallel: they only sleep, and their scale-downs coincide only by chance.
        await asyncio.gather(*(model.run(seconds, seed) for model in models))


def summary(rounds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, by case, the figures of both ways, and the differences within pairs with the 95 % interval of their mean.

    A difference is the value without costs minus the value with costs.
    """
    rows = []
    for case in dict.fromkeys(str(entry["case"]) for entry in rounds):
        ways: dict[str, list[Mapping[str, Any]]] = {"as it is": [], "told": []}
        pairs: dict[tuple[Any, Any], dict[str, Mapping[str, Any]]] = {}
        for entry in rounds:
            if entry["case"] == case:
                ways[entry["way"]].append(entry)
                pairs.setdefault((entry["run"], entry["pair"]), {})[entry["way"]] = entry
        complete_pairs = [pair for pair in pairs.values() if len(pair) == len(ways)]
        row: dict[str, Any] = {"case": case, "pairs": len(complete_pairs)}
        for figure in ("drain_s", "draining_pod_s", "inflight_removed"):
            gains = [pair["as it is"][figure] - pair["told"][figure] for pair in complete_pairs]
            row[figure] = {
                **{way: _spread([entry[figure] for entry in entries]) for way, entries in ways.items()},
                "gain": _spread(gains) | {"mean_interval_95": _interval(gains)},
            }
        rows.append(row)
    return rows


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"median": None, "mean": None, "max": None}
    return {"median": round(median(values), 2), "mean": round(fmean(values), 2), "max": round(max(values), 2)}


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the confidence interval of the mean by resampling."""
    if not values:
        return None
    draw = random.Random(1)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return round(means[int(0.025 * _RESAMPLES)], 2), round(means[int(0.975 * _RESAMPLES)], 2)


def _write(models: Sequence[Model], *, fresh: bool, seed: int) -> list[dict[str, Any]]:
    """Add the rounds to those of earlier runs, and write the summary."""
    earlier = json.loads(OUT.read_text()) if OUT.exists() and not fresh else {"rounds": [], "failures": []}
    rounds = earlier["rounds"] + [{"run": seed} | asdict(scale_down) for model in models for scale_down in model.rounds]
    failures = earlier["failures"] + [
        {"run": seed, "case": model.name, "kind": kind, "count": count}
        for model in models
        for kind, count in model.failures.items()
    ]
    content = {
        "what": f"{MANY} to {FEW} pods, real Triton, preStop of {PRE_STOP_S} s not counted; gain = as it is - told, by pair",
        "stand_ins": pods.STAND_INS,
        "cases": (cases := summary(rounds)),
        "failures": failures,
        "rounds": rounds,
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    new = OUT.with_name(f".{OUT.name}.{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(OUT)
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write build/bench/drain.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="of rounds")
    parser.add_argument(
        "--case", action="append", choices=[case.name for case in CASES], help="this one alone; repeatable"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the loads; names the run in the file")
    parser.add_argument("--fresh", action="store_true", help="forget the rounds of earlier runs")
    parser.add_argument("--beside", action="store_true", help="measure although another cluster is up")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    interrupts.heed()  # the cluster and the loads end with this process
    models: list[Model] = []
    exit_status = 0
    try:
        with alone(beside=options.beside), pods.cluster() as kube:
            asyncio.run(_measure(kube, cases, options.seconds, options.seed, models))
    except (BenchError, ClusterError, DemoError, TimeoutError, KeyboardInterrupt) as error:
        print(f"drain: {str(error) or 'stopped'}", file=sys.stderr)
        exit_status = 1
    for row in _write(models, fresh=options.fresh, seed=options.seed):
        say(f"drain: {row['case']}: {row['pairs']} pairs, drain {json.dumps(row['drain_s'])}")
    return exit_status


if __name__ == "__main__":
    sys.exit(main())
