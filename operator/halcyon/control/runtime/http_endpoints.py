"""Endpoints of the plain HTTP port: /healthz and /readyz for the kubelet, /metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

Check = Callable[[], str]
"""Check that returns an empty string if it passes, else a description of the problem."""


def build(
    registry: CollectorRegistry,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    of_models: Callable[[], Awaitable[str]],
) -> web.Application:
    """Build the web application.

    Args:
        registry: metrics of the operator.
        live: checks of /healthz, by name. The response lists the failed ones.
        ready: checks of /readyz, by name. The response lists the failed ones.
        of_models: function that returns the per-model metrics in the Prometheus text format; no metric may be in the registry too.
    """

    def probe(checks: Mapping[str, Check]) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            problems = [f"{name}: {said}" for name, check in checks.items() if (said := check())]
            return web.Response(status=503 if problems else 200, text="\n".join(problems) or "ok")

        return answer

    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(registry) + (await of_models()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.router.add_get("/healthz", probe(live))  # type: ignore[arg-type]  # aiohttp's handler type is wider
    app.router.add_get("/readyz", probe(ready))  # type: ignore[arg-type]
    app.router.add_get("/metrics", metrics)
    return app
