"""Data from other tools of the site in the dashboard: links to these tools, and values from the site's Prometheus.

Without Prometheus, the number of allocatable GPUs is unknown, and the history of a model covers only one hour and the
planner's arrivals.

Out of scope: running a query (`signals.prometheus`), the history in memory (`history`).
"""

# | value                | query                                                    | without Prometheus                                |
# | -------------------- | -------------------------------------------------------- | ------------------------------------------------- |
# | allocatable GPUs     | kube-state-metrics' series of nodes, once a minute       | unknown: the operator may not read nodes          |
# | history of a model   | one query for all fields, for up to `MAX_HOURS`          | one hour, from memory, and the planner's arrivals |

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from halcyon.dashboard.history import FIELDS, MAX_POINTS
from halcyon.dashboard.ports import Name
from halcyon.signals.prometheus.arrival_history import cluster_pattern
from halcyon.signals.prometheus.client import PrometheusError, QueryRange
from halcyon.signals.prometheus.source import PrometheusSource

log = logging.getLogger(__name__)

MAX_HOURS = 720
"""Longest time range of a chart in hours: 30 days."""
ALLOCATABLE_TTL_S = 60.0
MIN_WINDOW_S = 300
"""Minimum window of a rate in a query, in seconds, which covers several scrapes at any usual interval."""
ALLOCATABLE: Final = (
    'sum(kube_node_status_allocatable{resource=~"(nvidia|amd)_com_(gpu|mig)(_.+)?",cluster=~"$cluster"})'
)
NO_PROMETHEUS = "no Prometheus is configured (prometheus.url in the chart's values)"
Clock = Callable[[], float]
_AGENT: Final = "halcyon_agent_"
_MODEL_LABELS: Final = 'namespace="$namespace",model_deployment="$name",cluster=~"$cluster"'
# A pod may load more models than the one that clients use: steps of an ensemble, for example.
_SERVED: Final = ',model="$served"'
_LATENCY: Final = f"1000 * histogram_quantile($share, sum by (le) (rate({_AGENT}request_duration_seconds_bucket{{{_MODEL_LABELS}}}[$window])))"


def _gauge(name: str) -> str:
    return f"max(halcyon_model_{name}{{{_MODEL_LABELS}}})"


def _rate(metric: str, matchers: str = "") -> str:
    return f"sum(rate({metric}{{{_MODEL_LABELS}{matchers}}}[$window]))"


_REPEATED: Final = f"({_rate(_AGENT + 'client_retries_total')} or vector(0))"
_FAILED: Final = _rate("nv_inference_request_failure", f'{_SERVED},reason!="CANCELED"')
_REFUSED: Final = f'label_replace({_rate(_AGENT + "server_rejected_total")}, "of", "balancers", "", "")'
QUERIES: Mapping[str, str] = {
    "replicas": _gauge("spec_replicas"),
    "ready": _gauge("replicas_ready"),
    "desired": _gauge("replicas_desired"),
    "gpu": f"100 * {_gauge('gpu_utilization_ratio')}",
    # The second part is for models without balancers.
    "rate": f"{_rate(_AGENT + 'requests_total')} - {_REPEATED} or {_rate('nv_inference_request_success', _SERVED)} + {_FAILED}",
    "waiting": _gauge("queue_requests"),
    "in_triton": (
        f"({_rate('nv_inference_queue_duration_us', _SERVED)} + {_rate('nv_inference_compute_infer_duration_us', _SERVED)})"
        f" / 1000 / ({_rate('nv_inference_request_success', _SERVED)} > 0)"
    ),
    "p50": _LATENCY.replace("$share", "0.5"),
    "p95": _LATENCY.replace("$share", "0.95"),
    "p99": _LATENCY.replace("$share", "0.99"),
    "batch": f"{_rate('nv_inference_count', _SERVED)} / ({_rate('nv_inference_exec_count', _SERVED)} > 0)",
    "rejected": f"clamp_min({_rate(_AGENT + 'rejected_total')} - {_REPEATED}, 0)",
    "lost": _rate(f"{_AGENT}errors_total"),
    "failed": f"max({_FAILED} or {_REFUSED})",
}
"""PromQL query for each field of the history, with the variables `$namespace`, `$name`, `$served`, `$cluster` and `$window`.
Errors are per second."""


@dataclass(frozen=True, slots=True)
class Links:
    """Base URLs of the site's other tools. An empty URL means that there is no link."""

    grafana: str = ""
    """Base URL of the Grafana that has the dashboards of the Helm chart."""
    alerts: str = ""
    """Base URL of the Alertmanager."""
    runbooks: str = ""
    """URL of the folder with the pages of docs/runbooks."""


LINKED = ("grafana", "alerts", "runbooks")
"""Names of the fields of `Links`."""
NO_LINKS = Links()


class SiteMetrics:
    """Values from the site's Prometheus. All methods must be called in the same event loop."""

    def __init__(
        self, prometheus: PrometheusSource | None, *, monotonic: Clock, wall: Clock, cluster: str = ""
    ) -> None:
        """Create the source. `prometheus` is None if the site has no Prometheus, `cluster` empty if it has one cluster."""
        self._prometheus, self._monotonic, self._wall, self._cluster = prometheus, monotonic, wall, cluster
        self._allocatable: float | None = None
        self._why = NO_PROMETHEUS if prometheus is None else "Prometheus was not queried yet"
        self._queried_at = -math.inf
        self._refresh: asyncio.Task[None] | None = None

    def allocatable(self) -> dict[str, Any]:
        """Return the number of allocatable GPUs of the cluster's nodes; None with the reason if it is unknown.

        If the stored number is outdated, a query is started in the background.
        """
        if self._prometheus is not None and self._monotonic() - self._queried_at >= ALLOCATABLE_TTL_S:
            self._queried_at = self._monotonic()
            self._refresh = asyncio.get_running_loop().create_task(self._read_allocatable(self._prometheus))
        return {"gpus": self._allocatable, "why": f"The GPUs of the cluster are unknown: {self._why}."}

    async def _read_allocatable(self, prometheus: PrometheusSource) -> None:
        try:
            self._allocatable = await prometheus.value(ALLOCATABLE.replace("$cluster", cluster_pattern(self._cluster)))
            self._why = "Prometheus has no series kube_node_status_allocatable of GPUs; kube-state-metrics exports it"
        except PrometheusError as error:
            self._allocatable, self._why = None, str(error)

    async def history(self, name: Name, served: str, hours: int) -> dict[str, Any]:
        """Return a model's history of the last `hours` hours, in the form of `model_page.series`.

        `served` is the name of the model in Triton. The history has at most `MAX_POINTS` points. If there is no history, the
        document has only the field `why` with the reason.
        """
        if self._prometheus is None:
            return {"why": f"Only the last hour is in memory, and {NO_PROMETHEUS}."}
        over = span(self._wall(), hours)
        try:
            rows = await self._prometheus.rows(query(name, served, over, cluster=self._cluster), over)
            return parse(rows, over)
        except PrometheusError as error:
            return {"why": f"{error}."}
        except (ValueError, KeyError, TypeError, AttributeError):
            log.exception("a response of Prometheus can't be shown", extra={"key": f"{name.namespace}/{name.name}"})
            return {"why": "The response of Prometheus can't be used; the operator's log has the details."}


def span(now: float, hours: int) -> QueryRange:
    """Return the time range of a query in whole steps, so that a chart doesn't change its shape as time passes."""
    step_s = math.ceil(hours * 3600 / MAX_POINTS / 10) * 10
    end = now // step_s * step_s
    return QueryRange(end - (MAX_POINTS - 1) * step_s, end, step_s)


def query(name: Name, served: str, over: QueryRange, *, cluster: str = "") -> str:
    """Return a query that covers all fields of a model. The series in its result have the label `field`."""
    window = f"{max(over.step_s, MIN_WINDOW_S):.0f}s"
    filled = {"$namespace": name.namespace, "$name": name.name, "$served": served, "$window": window}
    filled["$cluster"] = cluster_pattern(cluster)
    parts = []
    for field, template in QUERIES.items():
        for variable, text in filled.items():
            template = template.replace(variable, text)  # noqa: PLW2901  # filled step by step
        parts.append(f'label_replace({template}, "field", "{field}", "", "")')
    return "\nor ".join(parts)


def parse(rows: Sequence[Mapping[str, Any]], over: QueryRange) -> dict[str, Any]:
    """Return the result of a range query as a list of values for each field; None for a point without a sample.

    Raises:
        ValueError, KeyError or TypeError: the rows are not those of the query.
    """
    columns: dict[str, list[float | None]] = {field: [None] * MAX_POINTS for field in FIELDS}
    for row in rows:
        column = columns[row["metric"]["field"]]
        for at, text in row["values"]:
            index, value = round((float(at) - over.begin) / over.step_s), float(text)
            if 0 <= index < MAX_POINTS and math.isfinite(value):
                column[index] = float(f"{value:.4g}")
    for name in ("rejected", "lost", "failed"):
        pairs = zip(columns[name], columns["rate"], strict=True)
        columns[name] = [
            round(min(100 * part / rate, 100.0), 4) if part is not None and rate else None for part, rate in pairs
        ]
    shares = zip(columns["rejected"], columns["lost"], columns["failed"], strict=True)
    columns["errors"] = [sum(known) if (known := [s for s in point if s is not None]) else None for point in shares]
    return {"end": over.end, "step": over.step_s} | columns
