"""Deeds of a hostile tenant beside 20 models under load: row 1.1.1 of docs/quality/hold.md.

    python -m benchmarks.hold.tenant [DEED...] [--seconds N] [--minutes N] [--again]
    python -m benchmarks.hold.tenant --report

The tenant may edit one namespace, has the tokens of its own agents and reaches all ports (`tests.adversary.tenant.wire_deeds`). Each deed
is done over the wire, in turns against a plain server with ConfigMaps without a reader, and against the operator with its models. The
operator is a process with a real API server; the other models' agents report a steady load. The others request values of the metrics API
through the API server, as the HPA does, and the operator's probes. Their waiting times are measured.

Each call measures deeds that have no result for this code and time. The results are in docs/quality/data/adversary, so the same command
resumes the campaign.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.agents import Agents
from benchmarks.cost import histogram_quantile, rss_mib
from benchmarks.counts import Counts
from benchmarks.fleet import MAX_REPLICAS
from benchmarks.hold import tenant_costs
from benchmarks.hold.deed_results import DeedResult, code_of, load, measured, run, save
from benchmarks.hold.size_page import limit_mib
from benchmarks.plane import STAND_INS, Plane, model, namespace_of, plane
from benchmarks.quality.rows import Row
from benchmarks.rows import quantile
from e2e.cluster import cluster as clusters
from e2e.cluster.progress import say
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from halcyon.render import names
from tests.adversary.tenant.wire_deeds import DEEDS, Aim

NAME = "tenant"
VICTIMS, MODELS = 20, 4
NAMESPACE = "tenant"
SECONDS, TURNS, REST_S = 60.0, 2, 5.0
RATE_RPS = 35.0
TIMEOUT_S = 10.0
_EXPECTED_MODELS = 200
"""Default of the chart's value `expectedModels`, from which the operator's memory limit follows."""
_DECISION_AGE = "halcyon_decision_age_seconds"
_METRIC = (
    "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}?labelSelector=serving.halcyon.dev%2Fmodel-deployment%3D{}"
)


@dataclass
class Impact:
    """Effect of one deed on the others, over its turns at one aim."""

    took_s: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    ages_s: list[float] = field(default_factory=list)
    moved: int = 0
    streams_lost: int = 0
    most_mib: float = 0.0

    def within_ms(self, kind: str, share: float = 0.99) -> float | None:
        """Return the time within which this share of the requests was answered, in milliseconds."""
        seconds = quantile(self.took_s.get(kind, []), share)
        return None if seconds is None else round(1000 * seconds, 1)


def _namespace_of(name: str) -> str:
    return NAMESPACE if name.startswith("t") else namespace_of(name)


class Bench:
    """The others, whose requests are measured, and the tenant."""

    def __init__(self, plane: Plane, counts: Counts, agents: Agents, session: aiohttp.ClientSession) -> None:
        """Keep the parts; nothing is created."""
        self._plane, self._counts, self._agents, self._session = plane, counts, agents, session
        self.victims = [f"m{number:04}" for number in range(VICTIMS)]
        self.own = [f"t{number}" for number in range(MODELS)]
        self._metric = ""

    async def begin(self) -> None:
        """Create the models, start the other models' agents, and find the metric that they have."""
        api = self._plane.cluster.api
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self.restore()
        for name in self.victims:
            await self._counts.client.create(kinds.MODEL_DEPLOYMENT, self._model(name), namespace=_namespace_of(name))
        await self._counts.until_served([*self.victims, *self.own], limit_s=300)
        await self._agents.begin(self.victims, balancers=2)
        for name in self.victims:
            self._agents.set_rate(name, RATE_RPS)
        for _ in range(60):
            for metric in ("desiredreplicas", "queuedepth", "concurrency"):
                if not self._metric and not await self._value(self.victims[0], metric):
                    self._metric = metric
            if self._metric:
                break
            await asyncio.sleep(1)
        say(f"tenant: the others' metric is {self._metric or 'missing'}")

    @staticmethod
    def _model(name: str) -> dict[str, Any]:
        document = model(name, most=MAX_REPLICAS, balancers=2, targets={"latency": "500ms"}, minReplicas=2)
        return document | {"metadata": {"name": name, "namespace": _namespace_of(name)}}

    async def restore(self) -> None:
        """Create what the tenant needs and an earlier deed may have deleted, and wait until its models are served."""
        api = self._plane.cluster.api
        files = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        api.call("DELETE", f"{files}/model")
        api.create(files, {"metadata": {"name": "model"}, "data": {"config.pbtxt": "max_batch_size: 8"}})
        path = kinds.MODEL_DEPLOYMENT.path(NAMESPACE)
        response = await asyncio.to_thread(api.call, "GET", path)
        existing = [item["metadata"]["name"] for item in (response.body or {}).get("items", ())]
        for name in existing:
            if name not in self.own:
                await asyncio.to_thread(api.call, "DELETE", f"{path}/{name}")
        for name in self.own:
            if name not in existing:
                with contextlib.suppress(Exception):
                    await self._counts.client.create(kinds.MODEL_DEPLOYMENT, self._model(name), namespace=NAMESPACE)

    async def aim(self, plain: tuple[int, int] | None) -> Aim:
        """Return the tenant's aim: the operator, or the plain server with these ports."""
        api, operator, first = self._plane.cluster.api, self._plane.operator, self.own[0]
        await self._counts.until_served(self.own, limit_s=120)
        tokens = {}
        for pod in self._counts.balancers(first):
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod}
            token_request = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}}
            path = kinds.SERVICE_ACCOUNT.path(NAMESPACE, names.balancer(first), "token")
            response = await asyncio.to_thread(api.call, "POST", path, token_request)
            tokens[pod] = (response.body or {})["status"]["token"]
        identity = api.identity
        https, http = plain or (operator.port, operator.http_port)
        return Aim(
            https,
            http,
            NAMESPACE,
            self.own,
            tokens,
            self._counts.ready_servers(first),
            identity.url,
            str(identity.ca),
            str(identity.certificate),
            str(identity.key),
            self._model("any") | {"metadata": {}},
            plain is not None,
        )

    async def under(self, deed: str, seconds: float, aim: Aim, impact: Impact) -> None:
        """Do a deed in a process of its own, and add its effect on the others."""
        operator = self._plane.operator
        before = await asyncio.to_thread(operator.metrics)
        replicas = {name: len(self._counts.replicas[name]) for name in self.victims}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.adversary.tenant.wire_deeds", deed, str(seconds)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        process.stdin.write(aim.to_json().encode())
        process.stdin.close()
        try:
            await asyncio.wait_for(self._meanwhile(process, impact), seconds + 60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode:
            impact.failures[f"the deed ended with {process.returncode}"] += 1
        after = await asyncio.to_thread(operator.metrics)
        age = histogram_quantile(before, after, _DECISION_AGE, 0.99)
        impact.ages_s += [] if age is None else [age]
        impact.moved += sum(len(self._counts.replicas[name]) - count for name, count in replicas.items())
        self._agents.check()

    async def _meanwhile(self, process: asyncio.subprocess.Process, impact: Impact) -> None:
        pid, all_streams = self._plane.operator.pid, 2 * VICTIMS

        async def repeated(kind: str, send: Callable[[], Awaitable[str]], pause_s: float, after_s: float) -> None:
            await asyncio.sleep(after_s)
            while process.returncode is None:
                began = time.monotonic()
                try:
                    failure = await send()
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    failure = type(error).__name__
                impact.took_s.setdefault(kind, []).append(time.monotonic() - began)
                if failure:
                    impact.failures[f"{kind}: {failure}"] += 1
                await asyncio.sleep(pause_s)

        async def sample() -> None:
            while process.returncode is None:
                impact.most_mib = max(impact.most_mib, rss_mib(pid))
                impact.streams_lost = max(impact.streams_lost, all_streams - self._agents.connected)
                await asyncio.sleep(0.5)

        values = [
            repeated("metrics API", lambda name=name: self._value(name, self._metric), 0.5, number / (2 * VICTIMS))  # type: ignore[misc]
            for number, name in enumerate(self.victims)
        ]
        probes = [repeated("probe", lambda path=path: self._probe(path), 0.2, 0.0) for path in ("/readyz", "/healthz")]  # type: ignore[misc]
        await asyncio.gather(*values, *probes, sample(), process.wait())

    async def _value(self, name: str, metric: str) -> str:
        url = self._plane.cluster.api.identity.url + _METRIC.format(_namespace_of(name), metric, name)
        async with self._session.get(url) as answer:
            await answer.read()
            return "" if answer.status == 200 else str(answer.status)

    async def _probe(self, path: str) -> str:
        async with self._session.get(f"http://127.0.0.1:{self._plane.operator.http_port}{path}") as answer:
            await answer.read()
            return "" if answer.status == 200 else str(answer.status)


@asynccontextmanager
async def _session(plane: Plane) -> AsyncIterator[aiohttp.ClientSession]:
    identity = plane.cluster.api.identity
    context = ssl.create_default_context(cafile=str(identity.ca))
    context.load_cert_chain(identity.certificate, identity.key)
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session:
        yield session


@contextmanager
def _plain_server() -> Iterator[tuple[int, int]]:
    process = subprocess.Popen([sys.executable, "-m", "tests.adversary.tenant.plain_server"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    https, http = json.loads(process.stdout.readline())
    try:
        yield https, http
    finally:
        process.kill()
        process.wait()


def _figures(beside: Impact, impact: Impact, *, restarts: int) -> dict[str, Any]:
    growth = {}
    for kind in impact.took_s:
        mine, plain = impact.within_ms(kind), beside.within_ms(kind)
        growth[kind] = None if not mine or not plain else round(100 * (mine / plain - 1), 1)
    return {
        "requests": sum(map(len, impact.took_s.values())),
        "failures": dict(impact.failures),
        "failures_beside": dict(beside.failures),
        "p99_ms": {kind: impact.within_ms(kind) for kind in impact.took_s},
        "p99_beside_ms": {kind: beside.within_ms(kind) for kind in impact.took_s},
        "p50_ms": {kind: impact.within_ms(kind, 0.5) for kind in impact.took_s},
        "p50_beside_ms": {kind: beside.within_ms(kind, 0.5) for kind in impact.took_s},
        "growth_percent": growth,
        "decision_age_p99_s": round(max(impact.ages_s, default=0.0), 2),
        "decision_age_beside_p99_s": round(max(beside.ages_s, default=0.0), 2),
        "counts_moved": impact.moved,
        "counts_moved_beside": beside.moved,
        "streams_lost": impact.streams_lost,
        "restarts": restarts,
        "memory_percent": round(100 * impact.most_mib / limit_mib(_EXPECTED_MODELS), 1),
    }


async def _run(plane: Plane, chosen: Sequence[str], seconds: float, code: str, until_s: float) -> None:
    async with (
        _session(plane) as session,
        Counts(plane.kubeconfig, _namespace_of) as counts,
        Agents(plane, counts) as agents,
    ):
        bench = Bench(plane, counts, agents, session)
        await bench.begin()
        await asyncio.sleep(20)
        with _plain_server() as ports:
            for deed in chosen:
                if time.monotonic() + 2 * (seconds + REST_S) > until_s:
                    print(f"the time is over before {deed!r}; the same command goes on")
                    return
                beside, impact, restarts = Impact(), Impact(), 0
                for turn in range(TURNS):
                    for is_plain in (True, False) if turn % 2 == 0 else (False, True):
                        await bench.restore()
                        aim = await bench.aim(ports if is_plain else None)
                        await bench.under(deed, seconds / TURNS, aim, beside if is_plain else impact)
                        process = plane.operator.process
                        if process is None or process.poll() is not None:
                            restarts += 1
                            plane.operator.start()
                            plane.operator.wait_ready(60)
                        await asyncio.sleep(REST_S)
                figures = _figures(beside, impact, restarts=restarts)
                print(deed, json.dumps(figures), flush=True)
                save(NAME, load(NAME) | {deed: measured(seconds, code, figures)})


def row(results: Mapping[str, DeedResult], costs: Mapping[str, DeedResult], code: str) -> Row:
    """Return the row of these results."""
    by_deed = {deed: result.figures for deed, result in results.items()}
    worst = {
        deed: max((g for g in figures["growth_percent"].values() if g is not None), default=None)
        for deed, figures in by_deed.items()
    }
    growths = [growth for growth in worst.values() if growth is not None]
    falls = sorted(
        (deed for deed, growth in worst.items() if growth is None or growth > 10), key=lambda d: -(worst[d] or 1e9)
    )
    failed = [deed for deed, figures in by_deed.items() if figures["failures"]]
    moved = [deed for deed, figures in by_deed.items() if figures["counts_moved"]]
    reasons = (
        [f"{len(falls)} deeds grow by more than 10 %, the most {', '.join(map(repr, falls[:5]))}"] if falls else []
    )
    reasons += [f"requests failed under {', '.join(map(repr, failed))}"] if failed else []
    reasons += [f"counts moved under {', '.join(map(repr, moved))}"] if moved else []
    cost = {name: value for result in costs.values() for name, value in result.figures.items()}
    return Row(
        "1.1.1",
        f"deeds of a tenant over the wire, beside {VICTIMS} models under load, and what some cost the operator",
        {
            "deeds": len(by_deed),
            "failed_requests": sum(sum(figures["failures"].values()) for figures in by_deed.values()),
            "p99_growth_percent": max(growths),
            "p99_growth_percent_median": round(statistics.median(growths), 1),
            "deeds_within_10_percent": len(by_deed) - len(falls),
            "counts_moved": sum(figures["counts_moved"] for figures in by_deed.values()),
            "streams_lost": sum(figures["streams_lost"] for figures in by_deed.values()),
            "decision_age_p99_s": max(figures["decision_age_p99_s"] for figures in by_deed.values()),
            "restarts": sum(figures["restarts"] for figures in by_deed.values()),
            "memory_percent": max(figures["memory_percent"] for figures in by_deed.values()),
            "seconds_per_deed": min(result.seconds for result in results.values()),
            "on this code": sum(result.code == code for result in results.values()),
        }
        | cost,
        "others: 0 failed requests, p99 at most 10 % above that under the same deed at a plain server, no count moved, decision age p99 <= 5 s; "
        "0 restarts, memory below 80 %; 60 s a deed; a connection <= 40 KiB, idle ones closed within 30 s; a record of any size <= 5 ms of the "
        "loop; pages <= 20 ms",
        [
            ("deeds", len(DEEDS), ">="),
            ("failed_requests", 0, "=="),
            ("p99_growth_percent", 10, "<="),
            ("counts_moved", 0, "=="),
            ("decision_age_p99_s", 5, "<="),
            ("restarts", 0, "=="),
            ("memory_percent", 80, "<="),
            ("seconds_per_deed", 60, ">="),
            *tenant_costs.LIMITS,
        ],
        command="python -m benchmarks.hold.tenant_costs; python -m benchmarks.hold.tenant",
        stand_ins="; ".join(STAND_INS)
        + "; one operator process, in place of two replicas; the tenant writes with an administrator's "
        "certificate, in its own namespace only; for the costs, reviews of the API server are functions",
        why="; ".join(reasons),
        n=sum(figures["requests"] for figures in by_deed.values()),
        law="80 + 6 b ms, batch 8",
        load=f"{RATE_RPS:g}/s on each of {VICTIMS} models with two balancers and two servers; 40 values/s and 10 probes/s at most",
        raw=by_deed,
    )


def main(argv: list[str]) -> int:
    """Measure deeds, and record the row of all results so far."""
    code = code_of(tenant_costs.ENTRY)

    def measure(chosen: Sequence[str], seconds: float, until_s: float) -> None:
        name = f"tenant-{os.getpid()}"
        try:
            with plane(hpa_sync_s=15, pods=5 * (VICTIMS + MODELS) + 200, name=name) as control_plane:
                asyncio.run(_run(control_plane, chosen, seconds, code, until_s))
        finally:
            clusters.down(name)

    return run(
        argv,
        name=NAME,
        prog="benchmarks.hold.tenant",
        deeds=list(DEEDS),
        seconds=SECONDS,
        code=code,
        measure=measure,
        row=lambda results: row(results, load(tenant_costs.NAME), code),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
