"""Values of the site's Prometheus queries for models with `scaling.targets.metric`.

The site defines the queries, and a spec only names one of them. Otherwise a tenant could read the metrics of other
tenants. Both replicas of the operator run the queries, so that a new leader has values. Several queries run at a time,
so that a few slow ones don't delay the others until their values are too old.
"""

# | last result                | value                                                            |
# | -------------------------- | ---------------------------------------------------------------- |
# | finite number, at least 0  | that number, until it is `MAX_AGE_S` old                       |
# | no series, or an error     | the last valid number until it is `MAX_AGE_S` old, then missing  |

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from halcyon.control.acceptance.accepted_specs import SpecsInForce, with_scaling
from halcyon.control.rollout.canary_queries import QUERY_TIMEOUT_S, RunQuery
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.scaling.observations import Missing, Value
from halcyon.signals.prometheus import arrival_history
from halcyon.signals.prometheus.client import PrometheusError
from halcyon.signals.prometheus.source import PrometheusSource

INTERVAL_S = 15.0
"""Interval of the queries for one model, in seconds. It is the sync interval of an HPA."""
MAX_AGE_S = 60.0
MAX_AT_ONCE = 8
"""Maximum number of queries that run at the same time. By default, Prometheus runs 20 queries at a time."""
_MIN_PAUSE_S = 1.0


@dataclass(slots=True)
class _Result:
    query: str
    value: Value | None = None
    missing: str = "it has not been queried yet"


@dataclass
class SiteQueries:
    """Runner of the site's queries, with the last value of each model."""

    caches: ClusterState
    specs: SpecsInForce
    queries: Mapping[str, str]
    """Queries in PromQL, with the variables `$namespace`, `$name` and `$cluster`, by the query's name."""
    runners: tuple[RunQuery, ...]
    """Functions that run a query. Each runs one query at a time."""
    clock: Clock
    cluster: str = ""
    """Name of this cluster; empty if Prometheus has only the series of one."""
    _results: dict[Key, _Result] = field(default_factory=dict)

    @classmethod
    def create(
        cls, source: PrometheusSource | None, caches: ClusterState, specs: SpecsInForce, clock: Clock
    ) -> SiteQueries | None:
        """Create the runner of the site's queries; return None if the site has no Prometheus or no queries."""
        if source is None or not source.site.queries:
            return None
        runners = tuple(source.beside(QUERY_TIMEOUT_S, kind="metric").value for _ in range(MAX_AT_ONCE))
        return cls(caches, specs, source.site.queries, runners, clock, source.site.cluster)

    def value(self, key: Key, query: str) -> Value | Missing:
        """Return the last value of a query for a model, or the reason why there is no value."""
        if query not in self.queries:
            return Missing(f"this site has no query {query}")
        result = self._results.get(key)
        if result is None or result.query != query:
            return Missing(f"query {query}: it has not been queried yet")
        if result.value is None or self.clock.monotonic() - result.value.at > MAX_AGE_S:
            return Missing(f"query {query}: {result.missing}")
        return result.value

    async def run(self) -> None:
        """Run the site's Prometheus queries periodically, until cancelled."""
        while True:
            started = self.clock.monotonic()
            await self.poll()
            await asyncio.sleep(max(started + INTERVAL_S - self.clock.monotonic(), _MIN_PAUSE_S))

    async def poll(self) -> None:
        """Run the site's query for each model whose spec names one."""
        queries = {
            key: spec.scaling.targets.metric.query
            for key, spec in with_scaling(self.caches, self.specs)
            if spec.scaling is not None and spec.scaling.targets.metric is not None
        }
        for key in self._results.keys() - queries.keys():
            del self._results[key]
        due: list[tuple[Key, _Result]] = []
        for key, query in queries.items():
            result = self._results.get(key)
            if result is None or result.query != query:
                result = self._results[key] = _Result(query)
            if query in self.queries:
                due.append((key, result))
        pending = iter(due)
        async with asyncio.TaskGroup() as group:
            for run_query in self.runners:
                group.create_task(self._run_each(pending, run_query))

    async def _run_each(self, pending: Iterator[tuple[Key, _Result]], run_query: RunQuery) -> None:
        """Run the queries in `pending` one after the other. Several tasks take queries from `pending` at the same time."""
        for key, result in pending:
            await self._run(key, result, run_query)

    async def _run(self, key: Key, result: _Result, run_query: RunQuery) -> None:
        template, sent_at = self.queries[result.query], self.clock.monotonic()
        text = arrival_history.query(template, namespace=key.namespace, name=key.name, cluster=self.cluster)
        try:
            value = await run_query(text)
        except PrometheusError as error:
            result.missing = str(error)
            return
        if value is None:
            result.missing = "it has no value"
        elif value < 0:
            result.missing = f"its value {value:g} is below 0"
        else:
            result.value, result.missing = Value(value, sent_at), "its last value is too old"
