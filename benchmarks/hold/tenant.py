"""Deeds of a hostile tenant beside 20 models under load: row 1.1.1 of docs/quality/hold.md.

    python -m benchmarks.hold.tenant [DEED...] [--seconds N] [--minutes N] [--again]
    python -m benchmarks.hold.tenant --report

The tenant may edit one namespace, has the tokens of its own agents and reaches all ports (`tests.adversary.tenant.wire_deeds`). Each deed
is done over the wire, in turns against a plain server with ConfigMaps without a reader, and against the operator with its models. The
operator is a process with a real API server; the other models' agents report a steady load. What the others wait for: values of the metrics
API through the API server, as the HPA asks for them, and the operator's probes.

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
class Met:
    """What others met during the turns of one deed at one aim."""

    took_s: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    ages_s: list[float] = field(default_factory=list)
    moved: int = 0
    streams_lost: int = 0
    most_mib: float = 0.0

    def within_ms(self, what: str, share: float = 0.99) -> float | None:
        """Return the time within which this share of the requests was answered, in milliseconds."""
        found = quantile(self.took_s.get(what, []), share)
        return None if found is None else round(1000 * found, 1)


def _namespace_of(name: str) -> str:
    return NAMESPACE if name.startswith("t") else namespace_of(name)


class Bench:
    """The others, whose requests are measured, and the tenant."""

    def __init__(self, there: Plane, counts: Counts, agents: Agents, session: aiohttp.ClientSession) -> None:
        """Keep the parts; nothing is created."""
        self._there, self._counts, self._agents, self._session = there, counts, agents, session
        self.victims = [f"m{number:04}" for number in range(VICTIMS)]
        self.own = [f"t{number}" for number in range(MODELS)]
        self._metric = ""

    async def begin(self) -> None:
        """Create the models, start the other models' agents, and find the metric that they have."""
        api = self._there.cluster.api
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
        api = self._there.cluster.api
        files = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        api.call("DELETE", f"{files}/model")
        api.create(files, {"metadata": {"name": "model"}, "data": {"config.pbtxt": "max_batch_size: 8"}})
        path = kinds.MODEL_DEPLOYMENT.path(NAMESPACE)
        found = await asyncio.to_thread(api.call, "GET", path)
        known = [item["metadata"]["name"] for item in (found.body or {}).get("items", ())]
        for name in known:
            if name not in self.own:
                await asyncio.to_thread(api.call, "DELETE", f"{path}/{name}")
        for name in self.own:
            if name not in known:
                with contextlib.suppress(Exception):
                    await self._counts.client.create(kinds.MODEL_DEPLOYMENT, self._model(name), namespace=NAMESPACE)

    async def aim(self, plain: tuple[int, int] | None) -> Aim:
        """Return the tenant's aim: the operator, or the plain server with these ports."""
        api, operator, first = self._there.cluster.api, self._there.operator, self.own[0]
        await self._counts.until_served(self.own, limit_s=120)
        tokens = {}
        for pod in self._counts.balancers(first):
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod}
            wish = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}}
            path = kinds.SERVICE_ACCOUNT.path(NAMESPACE, names.balancer(first), "token")
            found = await asyncio.to_thread(api.call, "POST", path, wish)
            tokens[pod] = (found.body or {})["status"]["token"]
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

    async def under(self, deed: str, seconds: float, aim: Aim, met: Met) -> None:
        """Do a deed in a process of its own, and add what the others meet meanwhile."""
        operator = self._there.operator
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
            await asyncio.wait_for(self._meanwhile(process, met), seconds + 60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode:
            met.failures[f"the deed ended with {process.returncode}"] += 1
        after = await asyncio.to_thread(operator.metrics)
        age = histogram_quantile(before, after, _DECISION_AGE, 0.99)
        met.ages_s += [] if age is None else [age]
        met.moved += sum(len(self._counts.replicas[name]) - known for name, known in replicas.items())
        self._agents.check()

    async def _meanwhile(self, process: asyncio.subprocess.Process, met: Met) -> None:
        pid, all_streams = self._there.operator.pid, 2 * VICTIMS

        async def repeated(what: str, send: Callable[[], Awaitable[str]], pause_s: float, after_s: float) -> None:
            await asyncio.sleep(after_s)
            while process.returncode is None:
                began = time.monotonic()
                try:
                    failure = await send()
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    failure = type(error).__name__
                met.took_s.setdefault(what, []).append(time.monotonic() - began)
                if failure:
                    met.failures[f"{what}: {failure}"] += 1
                await asyncio.sleep(pause_s)

        async def look() -> None:
            while process.returncode is None:
                met.most_mib = max(met.most_mib, rss_mib(pid))
                met.streams_lost = max(met.streams_lost, all_streams - self._agents.connected)
                await asyncio.sleep(0.5)

        values = [
            repeated("metrics API", lambda name=name: self._value(name, self._metric), 0.5, number / (2 * VICTIMS))  # type: ignore[misc]
            for number, name in enumerate(self.victims)
        ]
        probes = [repeated("probe", lambda path=path: self._probe(path), 0.2, 0.0) for path in ("/readyz", "/healthz")]  # type: ignore[misc]
        await asyncio.gather(*values, *probes, look(), process.wait())

    async def _value(self, name: str, metric: str) -> str:
        url = self._there.cluster.api.identity.url + _METRIC.format(_namespace_of(name), metric, name)
        async with self._session.get(url) as answer:
            await answer.read()
            return "" if answer.status == 200 else str(answer.status)

    async def _probe(self, path: str) -> str:
        async with self._session.get(f"http://127.0.0.1:{self._there.operator.http_port}{path}") as answer:
            await answer.read()
            return "" if answer.status == 200 else str(answer.status)


@asynccontextmanager
async def _session(there: Plane) -> AsyncIterator[aiohttp.ClientSession]:
    identity = there.cluster.api.identity
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


def _figures(beside: Met, met: Met, *, restarts: int) -> dict[str, Any]:
    growth = {}
    for what in met.took_s:
        mine, plain = met.within_ms(what), beside.within_ms(what)
        growth[what] = None if not mine or not plain else round(100 * (mine / plain - 1), 1)
    return {
        "requests": sum(map(len, met.took_s.values())),
        "failures": dict(met.failures),
        "failures_beside": dict(beside.failures),
        "p99_ms": {what: met.within_ms(what) for what in met.took_s},
        "p99_beside_ms": {what: beside.within_ms(what) for what in met.took_s},
        "p50_ms": {what: met.within_ms(what, 0.5) for what in met.took_s},
        "p50_beside_ms": {what: beside.within_ms(what, 0.5) for what in met.took_s},
        "growth_percent": growth,
        "decision_age_p99_s": round(max(met.ages_s, default=0.0), 2),
        "decision_age_beside_p99_s": round(max(beside.ages_s, default=0.0), 2),
        "counts_moved": met.moved,
        "counts_moved_beside": beside.moved,
        "streams_lost": met.streams_lost,
        "restarts": restarts,
        "memory_percent": round(100 * met.most_mib / limit_mib(_EXPECTED_MODELS), 1),
    }


async def _run(there: Plane, chosen: Sequence[str], seconds: float, code: str, until_s: float) -> None:
    async with (
        _session(there) as session,
        Counts(there.kubeconfig, _namespace_of) as counts,
        Agents(there, counts) as agents,
    ):
        bench = Bench(there, counts, agents, session)
        await bench.begin()
        await asyncio.sleep(20)
        with _plain_server() as ports:
            for deed in chosen:
                if time.monotonic() + 2 * (seconds + REST_S) > until_s:
                    print(f"the time is over before {deed!r}; the same command goes on")
                    return
                beside, met, restarts = Met(), Met(), 0
                for turn in range(TURNS):
                    for is_plain in (True, False) if turn % 2 == 0 else (False, True):
                        await bench.restore()
                        aim = await bench.aim(ports if is_plain else None)
                        await bench.under(deed, seconds / TURNS, aim, beside if is_plain else met)
                        process = there.operator.process
                        if process is None or process.poll() is not None:
                            restarts += 1
                            there.operator.start()
                            there.operator.wait_ready(60)
                        await asyncio.sleep(REST_S)
                figures = _figures(beside, met, restarts=restarts)
                print(deed, json.dumps(figures), flush=True)
                save(NAME, load(NAME) | {deed: measured(seconds, code, figures)})


def row(results: Mapping[str, DeedResult], costs: Mapping[str, DeedResult], code: str) -> Row:
    """Return the row of these results."""
    found = {deed: result.figures for deed, result in results.items()}
    worst = {
        deed: max((g for g in one["growth_percent"].values() if g is not None), default=None)
        for deed, one in found.items()
    }
    growths = [growth for growth in worst.values() if growth is not None]
    falls = sorted(
        (deed for deed, growth in worst.items() if growth is None or growth > 10), key=lambda d: -(worst[d] or 1e9)
    )
    failed = [deed for deed, one in found.items() if one["failures"]]
    moved = [deed for deed, one in found.items() if one["counts_moved"]]
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
            "deeds": len(found),
            "failed_requests": sum(sum(one["failures"].values()) for one in found.values()),
            "p99_growth_percent": max(growths),
            "p99_growth_percent_median": round(statistics.median(growths), 1),
            "deeds_within_10_percent": len(found) - len(falls),
            "counts_moved": sum(one["counts_moved"] for one in found.values()),
            "streams_lost": sum(one["streams_lost"] for one in found.values()),
            "decision_age_p99_s": max(one["decision_age_p99_s"] for one in found.values()),
            "restarts": sum(one["restarts"] for one in found.values()),
            "memory_percent": max(one["memory_percent"] for one in found.values()),
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
        n=sum(one["requests"] for one in found.values()),
        law="80 + 6 b ms, batch 8",
        load=f"{RATE_RPS:g}/s on each of {VICTIMS} models with two balancers and two servers; 40 values/s and 10 probes/s at most",
        raw=found,
    )


def main(argv: list[str]) -> int:
    """Measure deeds, and record the row of all results so far."""
    code = code_of(tenant_costs.ENTRY)

    def measure(chosen: Sequence[str], seconds: float, until_s: float) -> None:
        name = f"tenant-{os.getpid()}"
        try:
            with plane(hpa_sync_s=15, pods=5 * (VICTIMS + MODELS) + 200, name=name) as there:
                asyncio.run(_run(there, chosen, seconds, code, until_s))
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
