"""Queries of a Prometheus, to check which queries of the dashboards and alerts have data.

It is used by tests, and with clusters that run real Triton.
"""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterable

from generators.monitoring.queries import NamedQuery

OF_STREAMS = "halcyon_agent_first_event_duration_seconds"
"""Metric whose quantiles are numbers only while clients stream. Tests of streams compare it with what clients measure."""
OF_CLIENTS = "halcyon_agent_client_requests_total"
"""Only models with API keys have it: tests/integration/balancer/test_api_keys.py has its data."""


def unanswered(address: str, asked: Iterable[NamedQuery]) -> list[NamedQuery]:
    """Return the queries that have no value now, sent to the Prometheus at HOST:PORT."""
    return [one for one in asked if not any(map(math.isfinite, values(address, one.expression)))]


def values(address: str, expression: str) -> list[float]:
    """Return the current values of a query, one for each series.

    Raises:
        OSError: Prometheus doesn't respond, or rejects the query.
    """
    question = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{question}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return [float(series["value"][1]) for series in found]
