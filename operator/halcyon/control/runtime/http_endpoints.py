"""Endpoints of the operator's plain HTTP port: /healthz and /readyz for the kubelet, /metrics for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from halcyon.metricsapi.listener import PAGE

PAGE_AGE_S = 1.0
"""Time for which a rendered /metrics page is reused for other callers, in seconds."""
MAX_READERS = 16
"""Maximum number of callers that read the /metrics page at the same time. A site usually has two instances of
Prometheus."""
WRITE_TIMEOUT_S = 10.0
"""Maximum time that a caller may take to read the /metrics page, in seconds."""
_CHUNK_BYTES = 64 * 1024

Check = Callable[[], str]
"""Type of a health check: a function that returns an empty string if the check passes, else a description of the
problem."""


def build(
    registry: CollectorRegistry,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    model_metrics: Callable[[], Awaitable[str]],
) -> web.Application:
    """Build the web application with /healthz, /readyz and /metrics.

    `live` are the checks of /healthz and `ready` those of /readyz, by name. The response lists the failed ones.
    `model_metrics` is a function that returns the metrics of all models in the Prometheus text format.
    """

    def probe(checks: Mapping[str, Check]) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            problems = [f"{name}: {problem}" for name, check in checks.items() if (problem := check())]
            return web.Response(status=503 if problems else 200, text="\n".join(problems) or "ok")

        return answer

    page = _MetricsPage(registry, model_metrics)

    app = web.Application()
    app.router.add_get("/healthz", probe(live))  # type: ignore[arg-type]  # aiohttp's handler type is wider
    app.router.add_get("/readyz", probe(ready))  # type: ignore[arg-type]
    app.router.add_get("/metrics", page.respond)
    return app


class _MetricsPage:
    """Handler of the /metrics page. All callers that wait at the same time share one rendering.

    With 5,000 models the page takes 20 MB. It is written in parts, so that no copy is kept for a slow reader.
    """

    def __init__(self, registry: CollectorRegistry, model_metrics: Callable[[], Awaitable[str]]) -> None:
        self._registry, self._model_metrics = registry, model_metrics
        self._rendering: asyncio.Task[bytes] | None = None
        self._rendered_at = 0.0
        self._readers = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if self._readers >= MAX_READERS:
            return web.Response(
                status=503,
                headers={"Retry-After": "1"},
                text=f"{MAX_READERS} callers read this page now, which is the limit; retry later",
            )
        request[PAGE] = True
        self._readers += 1
        try:
            body = memoryview(await self._body())
            response = web.StreamResponse(
                headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Content-Length": str(len(body))}
            )
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await response.prepare(request)
                    for start in range(0, 0 if request.method == "HEAD" else len(body), _CHUNK_BYTES):
                        await response.write(body[start : start + _CHUNK_BYTES])
            except (ConnectionError, TimeoutError):
                if request.transport is not None:
                    request.transport.abort()
        finally:
            self._readers -= 1
        return response

    async def _body(self) -> bytes:
        task = self._rendering
        if task is None or (task.done() and time.monotonic() - self._rendered_at > PAGE_AGE_S):
            task = self._rendering = asyncio.create_task(self._render())
        # A caller that disconnects must not cancel the rendering for others.
        return await asyncio.shield(task)

    async def _render(self) -> bytes:
        self._rendered_at = float("inf")
        try:
            return generate_latest(self._registry) + (await self._model_metrics()).encode()
        finally:
            self._rendered_at = time.monotonic()
