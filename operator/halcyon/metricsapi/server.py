"""external.metrics.k8s.io over HTTP: discovery, one value per request, and a Status for everything else.

A missing value is a 404 with the reason, never an empty list and never 0. The HPA then shows ScalingActive=False,
FailedGetExternalMetric, and the reason in its message; it doesn't scale down. 404 and not 503: both reach the HPA with
their message, but the API server counts our 503s as its own failures, and a model without values is not one.
If it can't be determined whether there is a value (a review that fails), the response is a 503.

Out of scope: certificates (`tls`, `certificates`), access control (`auth`), the values (the caller's `MetricSource`).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry

from halcyon.api.types import GROUP as OUR_GROUP
from halcyon.api.types import NAME_PATTERN
from halcyon.kube.auth.callers import Forbidden, Unauthenticated
from halcyon.metricsapi import documents
from halcyon.metricsapi.auth import Gate, TooOften
from halcyon.metricsapi.listener import Listener, ListeningPorts
from halcyon.metricsapi.tls import ServingTLS
from halcyon.monitoring import instruments, operator_metrics
from halcyon.scaling.hpa.algorithm import milli
from halcyon.scaling.hpa.metrics import GPU_UTILIZATION, QUEUE_DEPTH, WINDOW_S, RulesReading
from halcyon.scaling.observations import Missing, Value

DESIRED_REPLICAS = "desiredReplicas"
"""Metric of the policy Planner; the other two belong to Rules."""
METRICS = (QUEUE_DEPTH, GPU_UTILIZATION, DESIRED_REPLICAS)
_BY_RESOURCE = {metric.lower(): metric for metric in METRICS}
"""Metrics by lower-case name: Kubernetes clients put a resource into the URL in lower case; the HPA requests `queuedepth`."""
LABEL = f"{OUR_GROUP}/model-deployment"
PORT = 10250
_SELECTOR = re.compile(re.escape(LABEL) + "=(?P<name>.+)")
_NAME = re.compile(NAME_PATTERN)
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricSource(Protocol):
    """Source of a model's current values. Both methods raise if they can't be determined now."""

    async def reading(self, namespace: str, name: str) -> RulesReading | Missing:
        """Return the values of the policy Rules, or why there are none at all."""

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        """Return the replicas that the policy Planner desires, or why there are none."""


class MetricsApi:
    """The API's handlers. `monotonic` is the clock of the readings, `utcnow` the one that callers see."""

    def __init__(
        self,
        source: MetricSource,
        gate: Gate,
        *,
        monotonic: Callable[[], float],
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
        ready: Callable[[], bool] = lambda: True,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._source, self._gate, self._ready = source, gate, ready
        self._monotonic, self._utcnow = monotonic, utcnow
        self.requests = instruments.counter(operator_metrics.METRIC_REQUESTS, registry or CollectorRegistry())

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the operator's TLS site."""
        return [
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/apis", self._guarded(lambda _: documents.groups())),
            web.get(f"/apis/{documents.GROUP}", self._guarded(lambda _: documents.group())),
            web.get(documents.ROOT, self._guarded(lambda _: documents.resources(_BY_RESOURCE))),
            web.get(f"{documents.ROOT}/namespaces/{{namespace}}/{{metric}}", self._value),
            web.get("/apis/{rest:.*}", self._not_found),
        ]

    async def _healthz(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok")

    async def _readyz(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok") if self._ready() else web.Response(status=503, text="not ready")

    def _guarded(self, document: Callable[[web.Request], dict[str, Any]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            rejection = await self._rejection(request)
            return rejection if isinstance(rejection, web.Response) else _json(200, document(request))

        return handle

    async def _not_found(self, request: web.Request) -> web.Response:
        rejection = await self._rejection(request)
        if isinstance(rejection, web.Response):
            return rejection
        return _fail(
            404, f"{request.path} is not served; for example, {documents.ROOT}/namespaces/NAMESPACE/{QUEUE_DEPTH} is"
        )

    async def _value(self, request: web.Request) -> web.Response:
        response = await self._value_response(request)
        metric = _BY_RESOURCE.get(request.match_info["metric"].lower(), "other")
        self.requests.labels(metric, str(response.status)).inc()
        return response

    async def _value_response(self, request: web.Request) -> web.Response:
        namespace, resource = request.match_info["namespace"], request.match_info["metric"]
        rejection = await self._rejection(request, namespace=namespace, metric=resource)
        if isinstance(rejection, web.Response):
            return rejection
        metric = _BY_RESOURCE.get(resource.lower())
        if metric is None:
            return _fail(404, f"metric {resource[:100]} does not exist; the metrics are {' and '.join(METRICS)}")
        name = _selected(request.query.getall("labelSelector", []))
        if name is None:
            selector = ", ".join(request.query.getall("labelSelector", [])) or "empty"
            return _fail(400, f"labelSelector is {selector[:200]}; it must name one model: {LABEL}=NAME")
        subject = f"{metric} of ModelDeployment {namespace}/{name}"
        try:
            value = await self._current_value(metric, namespace, name)
        except Exception:  # noqa: BLE001  # whatever the source raises, the HPA must get an error and no number
            _log.exception("no reading of %s/%s", namespace, name)
            return _fail(503, f"{subject} could not be read now; retry later")
        if value is None:
            return _fail(404, f"{subject} is not measured: the model has no GPU, or the metric has no target")
        if isinstance(value, Missing):
            return _fail(404, f"{subject} is unknown: {value.reason}")
        try:
            thousandths = milli(value.value)
        except ValueError as error:
            return _fail(404, f"{subject} is unknown: {error}")
        taken_at = self._utcnow() - timedelta(seconds=max(self._monotonic() - value.at, 0.0))
        window_s = 0 if metric == DESIRED_REPLICAS else int(WINDOW_S)
        return _json(
            200,
            documents.values(metric=metric, labels={LABEL: name}, milli=thousandths, at=taken_at, window_s=window_s),
        )

    async def _current_value(self, metric: str, namespace: str, name: str) -> Value | Missing | None:
        """Return the metric's value, why it isn't known, or None if it isn't measured."""
        if metric == DESIRED_REPLICAS:
            return await self._source.desired(namespace, name)
        reading = await self._source.reading(namespace, name)
        if isinstance(reading, Missing):
            return reading
        return reading.queue_depth if metric == QUEUE_DEPTH else reading.gpu_utilization

    async def _rejection(self, request: web.Request, *, namespace: str = "", metric: str = "") -> web.Response | None:
        """Return None for a caller that may send this request, else the response for it."""
        try:
            caller = await self._gate.caller(request, self._utcnow())
            if metric:
                await self._gate.may_list(caller, namespace=namespace, metric=metric)
        except Unauthenticated as error:
            response = _fail(401, str(error))
            response.headers["WWW-Authenticate"] = "Bearer"
            # A client whose certificate's CA was replaced does a new handshake with its next request.
            response.force_close()
            return response
        except Forbidden as error:
            return _fail(403, str(error))
        except TooOften as error:
            response = _fail(429, str(error))
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_s))
            return response
        except Exception:  # noqa: BLE001  # whatever the reviews raise, it admits no caller
            _log.exception("a caller of %s could not be reviewed", request.path)
            return _fail(503, "your permission could not be checked now; retry later")
        return None


def build_app(api: MetricsApi, *, more: Iterable[web.AbstractRouteDef] = ()) -> web.Application:
    """Build the application of the operator's TLS site: the metrics API, and the other routes (`Collector.routes()`)."""
    app = web.Application(client_max_size=64 * 1024)
    # `/apis/{rest}` is the last of the API's routes; no other route may be below /apis.
    app.add_routes([*api.routes(), *more])
    return app


async def start_site(
    app: web.Application,
    tls: ServingTLS,
    *,
    host: str | None = None,
    port: int = PORT,
    ports: ListeningPorts | None = None,
) -> Listener:
    """Serve `app` over TLS; the caller ends it by `cleanup()`. No host means every address; port 0 takes a free one."""
    opened = ports or ListeningPorts()
    return await opened.open(app, name="https", host=host, port=port, tls=tls.context)


def _selected(selectors: list[str]) -> str | None:
    """Return the one model that the selectors name, or None."""
    match = _SELECTOR.fullmatch(selectors[0]) if len(selectors) == 1 else None
    return match["name"] if match and _NAME.fullmatch(match["name"]) else None


def _json(code: int, document: dict[str, Any]) -> web.Response:
    return web.Response(status=code, body=orjson.dumps(document), content_type="application/json")


def _fail(code: int, message: str) -> web.Response:
    return _json(code, documents.status(code, message))
