"""Queries of a Prometheus, to check which queries of the dashboards and alerts have data.

It is used by tests, and with clusters that run real Triton.
"""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterable

from generators.monitoring.queries import NamedQuery

STREAM_METRIC = "halcyon_agent_first_event_duration_seconds"
"""Metric whose quantiles are numbers only while clients stream. Tests of streams compare it with what clients measure."""
CLIENT_METRIC = "halcyon_agent_client_requests_total"
"""Only models with API keys have it: tests/integration/balancer/test_api_keys.py has its data."""


def unanswered(address: str, queries: Iterable[NamedQuery]) -> list[NamedQuery]:
    """Return the queries that have no value now, sent to the Prometheus at HOST:PORT."""
    return [query for query in queries if not any(map(math.isfinite, values(address, query.expression)))]


def values(address: str, expression: str) -> list[float]:
    """Return the current values of a query, one for each series.

    Raises:
        OSError: Prometheus doesn't respond, or rejects the query.
    """
    parameters = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{parameters}", timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return [float(series["value"][1]) for series in result]
