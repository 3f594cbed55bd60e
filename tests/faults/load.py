"""Load on a model, as an agent would report it: more than its maximum of replicas can answer, until it is stopped.

The stand-in for the agent connects with a token of the balancer's pod, reports a Triton that computes a batch of b in 80 + 6 b ms, and
connects again after each failure, as the agent does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from contextlib import suppress
from typing import ClassVar

import aiohttp

from halcyon.api.documents.observation_report import (
    AUDIENCE,
    STREAM_PATH,
    AgentReport,
    BalancerSample,
    BatchStats,
    PodSample,
)
from halcyon.kube import kinds
from tests.integration.operator_space import Space

RATE_RPS = 600.0
BATCH = 8
_FULL_US = 128_000
_SINGLE = (1, 1, 86_000)
_BEAT_S = 0.25


class Load:
    """The load of one model, in a thread of its own."""

    running: ClassVar[dict[str, Load]] = {}
    """Loads that were started and not stopped, by namespace."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._stop = threading.Event()
        self._requests = 0.0
        self._counted = time.time()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    @classmethod
    def start(cls, space: Space) -> None:
        """Start the load of a namespace's model `m`."""
        load = cls.running[space.namespace] = cls(space)
        load._thread.start()

    @classmethod
    def stop(cls, space: Space) -> None:
        """Stop the load of a namespace."""
        load = cls.running.pop(space.namespace)
        load._stop.set()
        load._thread.join(30)

    async def _run(self) -> None:
        while not self._stop.is_set():
            # The operator was killed, or the model isn't complete.
            with suppress(aiohttp.ClientError, OSError, AssertionError, KeyError, ValueError):
                await self._stream()
            await asyncio.sleep(_BEAT_S)

    async def _stream(self) -> None:
        servers, balancer = self._pods()
        plan = json.loads(self._space.must(kinds.CONFIG_MAP, "m-balancer")["data"]["plan.json"])["collector"]
        tls = ssl.create_default_context(cadata=plan["ca_pem"])
        url = f"https://127.0.0.1:{plan['port']}{STREAM_PATH}"
        headers = {"Authorization": f"Bearer {self._token(balancer)}"}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, ssl=tls, server_hostname=plan["server_name"], headers=headers) as stream,
        ):
            sender = balancer
            while not self._stop.is_set() and not stream.closed and balancer == sender:
                await stream.send_str(self._record(servers, sender))
                with suppress(TimeoutError):
                    await stream.receive(_BEAT_S)
                servers, balancer = self._pods()

    def _token(self, balancer: str) -> str:
        path = kinds.SERVICE_ACCOUNT.path(self._space.namespace, "m-balancer", "token")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": balancer}
        token_spec = {"expirationSeconds": 600, "audiences": [AUDIENCE], "boundObjectRef": bound}
        answer = self._space.api.call("POST", path, {"spec": token_spec})
        assert answer.body is not None
        return str(answer.body["status"]["token"])

    def _pods(self) -> tuple[list[str], str]:
        """Return the names of the servers that run, and of the balancer."""
        pods = [p["metadata"] for p in self._space.every(kinds.POD) if p.get("status", {}).get("podIP")]
        names = [str(meta["name"]) for meta in pods if not meta.get("deletionTimestamp")]
        balancer = min(name for name in names if name.startswith("m-balancer-"))
        return [name for name in names if name.startswith("m-a-")], balancer

    def _record(self, pods: list[str], sender: str) -> str:
        now = time.time()
        self._requests += RATE_RPS * (now - self._counted)
        self._counted = now
        done = int(self._requests)
        ran = done // BATCH // max(len(pods), 1)
        stats = BatchStats(now, (_SINGLE, (BATCH, ran, ran * _FULL_US)) if ran else (_SINGLE,)) if done else None
        samples = tuple(
            # Without counters of rows and batches: their mean would stay in the status for a minute after the last report.
            PodSample(pod, "ready", now, pending=9, succeeded=done, failed=0, batches=stats)
            for pod in pods
        )
        balancer = BalancerSample(queued=100, inflight=120, requests=done, rejected=0, errors=0)
        return AgentReport(self._space.namespace, "m", sender, now, balancer, samples).to_json()
