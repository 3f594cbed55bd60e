"""HTTP handlers of the API external.metrics.k8s.io: discovery, one metric value per request, and Status documents for errors.

If a value is missing, the response is a 404 with the reason, never an empty list or 0. The HPA then does not scale
down, and its ScalingActive condition is False, with the reason FailedGetExternalMetric and this response's message. The
API server counts a 503 as a failure of the API, and a missing value is not a failure, so the status is 404. If a value
or a permission cannot be determined (for example because a review fails), the response is a 503.

Out of scope: certificates (`tls`, `certificates`), access control (`auth`), the values (`MetricSource` of the caller).
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
from halcyon.monitoring import instruments, operator_metrics
from halcyon.scaling.hpa.algorithm import milli
from halcyon.scaling.hpa.metrics import CONCURRENCY, GPU_UTILIZATION, METRIC, QUEUE_DEPTH, WINDOW_S, RulesReading
from halcyon.scaling.observations import Missing, Value

DESIRED_REPLICAS = "desiredReplicas"
"""Name of the metric for models with the Planner policy. The other metrics are for the Rules policy."""
METRICS = (QUEUE_DEPTH, GPU_UTILIZATION, CONCURRENCY, METRIC, DESIRED_REPLICAS)
_BY_RESOURCE = {metric.lower(): metric for metric in METRICS}
"""Metrics by their names in lower case. Kubernetes clients write resources in URLs in lower case, for example
`queuedepth`."""
LABEL = f"{OUR_GROUP}/model-deployment"
_SELECTOR = re.compile(re.escape(LABEL) + "=(?P<name>.+)")
_NAME = re.compile(NAME_PATTERN)
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricSource(Protocol):
    """Interface to the current values of a model's metrics.

    Both methods raise an error if the values cannot be determined now.
    """

    async def reading(self, namespace: str, name: str) -> RulesReading | Missing:
        """Return the metric values for the Rules policy, or the reason why they are missing."""

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        """Return the desired replicas for the Planner policy, or the reason why they are missing."""


class MetricsApi:
    """Handlers of the requests to the API.

    `monotonic` is the clock for the age of values, and `utcnow` is the clock for the timestamps in responses.
    """

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
        """Return the routes of the API, for the operator's TLS port."""
        return [
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/apis", self._guarded(lambda _: documents.groups())),
            web.get(f"/apis/{documents.GROUP}", self._guarded(lambda _: documents.group())),
            web.get(documents.ROOT, self._guarded(lambda _: documents.resources(_BY_RESOURCE))),
            web.get(f"{documents.ROOT}/namespaces/{{namespace}}/{{metric}}", self._value),
            web.get("/apis/{rest:.*}", self._unserved),
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

    async def _unserved(self, request: web.Request) -> web.Response:
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
        except Exception:  # noqa: BLE001  # on any error, the HPA must receive an error and not a number
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
        measured_at = self._utcnow() - timedelta(seconds=max(self._monotonic() - value.at, 0.0))
        window_s = 0 if metric == DESIRED_REPLICAS else int(WINDOW_S)
        labels = {LABEL: name}
        document = documents.values(metric=metric, labels=labels, milli=thousandths, at=measured_at, window_s=window_s)
        return _json(200, document)

    async def _current_value(self, metric: str, namespace: str, name: str) -> Value | Missing | None:
        """Return the value of a metric, or the reason why the value is missing.

        Return None if this metric is not measured for the model.
        """
        if metric == DESIRED_REPLICAS:
            return await self._source.desired(namespace, name)
        reading = await self._source.reading(namespace, name)
        if isinstance(reading, Missing):
            return reading
        if metric in {CONCURRENCY, METRIC}:
            return reading.concurrency if metric == CONCURRENCY else reading.metric
        return reading.queue_depth if metric == QUEUE_DEPTH else reading.gpu_utilization

    async def _rejection(self, request: web.Request, *, namespace: str = "", metric: str = "") -> web.Response | None:
        """Return None if the caller may send this request, else the error response."""
        try:
            caller = await self._gate.caller(request, self._utcnow())
            if metric:
                await self._gate.may_list(caller, namespace=namespace, metric=metric)
        except Unauthenticated as error:
            response = _fail(401, str(error))
            response.headers["WWW-Authenticate"] = "Bearer"
            # Close the connection, so that a client whose CA was replaced starts its next request with a new TLS handshake.
            response.force_close()
            return response
        except Forbidden as error:
            return _fail(403, str(error))
        except TooOften as error:
            response = _fail(429, str(error))
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_s))
            return response
        except Exception:  # noqa: BLE001  # an error in a review must never admit a caller
            _log.exception("a caller of %s could not be reviewed", request.path)
            return _fail(503, "your permission could not be checked now; retry later")
        return None


def build_app(api: MetricsApi, *, more: Iterable[web.AbstractRouteDef] = ()) -> web.Application:
    """Build the application of the operator's TLS port, with the metrics API and the routes in `more` (`Collector.routes()`)."""
    app = web.Application(client_max_size=64 * 1024)
    # The last route of the API is `/apis/{rest}`, so no later route may be below /apis.
    app.add_routes([*api.routes(), *more])
    return app


def _selected(selectors: list[str]) -> str | None:
    """Return the name of the model that the label selectors select.

    Return None unless they select exactly one model.
    """
    match = _SELECTOR.fullmatch(selectors[0]) if len(selectors) == 1 else None
    return match["name"] if match and _NAME.fullmatch(match["name"]) else None


def _json(code: int, document: dict[str, Any]) -> web.Response:
    return web.Response(status=code, body=orjson.dumps(document), content_type="application/json")


def _fail(code: int, message: str) -> web.Response:
    return _json(code, documents.status(code, message))
