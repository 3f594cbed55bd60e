"""Puts queries to a Prometheus: which of those of the dashboards and alerts have data. For the tests and for a cluster with real Triton."""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterable

from generators.monitoring.queries import NamedQuery


def unanswered(address: str, asked: Iterable[NamedQuery]) -> list[NamedQuery]:
    """Those that have no number now, of the queries put to the Prometheus at HOST:PORT."""
    return [one for one in asked if not any(map(math.isfinite, values(address, one.expression)))]


def values(address: str, expression: str) -> list[float]:
    """What a query has now, a number for each series.

    Raises:
        OSError: Prometheus doesn't answer, or refuses the query.
    """
    question = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{question}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return [float(series["value"][1]) for series in found]
