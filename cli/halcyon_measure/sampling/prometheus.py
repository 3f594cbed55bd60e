"""Time series from Prometheus for the duration of a run: energy of GPUs from DCGM, energy of pods from Kepler."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from halcyon_measure.errors import SettingError, TargetError
from halcyon_measure.results.observations import Series

GPU_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
CPU_ENERGY = ("kepler_pod_cpu_joules_total", "kepler_container_package_joules_total")
"""Names of Kepler's energy counters: the name since version 0.10, and the earlier one."""
_TIMEOUT_S = 10.0
_STEP_S = 1.0


def is_http(url: str) -> bool:
    """Return whether a text is an HTTP URL with a host and a valid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the brackets or the port
        return False


class Prometheus:
    """Client for the HTTP API of Prometheus."""

    def __init__(self, url: str) -> None:
        """Parse the URL of Prometheus.

        Raises:
            SettingError: the URL isn't an HTTP URL.
        """
        if not is_http(url):
            raise SettingError(f"prometheus is {url}; it must be a URL of HTTP, for example http://prometheus:9090")
        self._url, self._parts = url, urlsplit(url)

    def series(self, query: str, *, begin_s: float, end_s: float) -> tuple[Series, ...]:
        """Return the series of a query between two times, in seconds since the epoch.

        The times in the result are relative to `begin_s`.

        Raises:
            TargetError: Prometheus doesn't respond, or rejects the query.
        """
        fields = {"query": query, "start": begin_s, "end": end_s, "step": _STEP_S}
        document = self._get(f"/api/v1/query_range?{urlencode(fields)}")
        try:
            return tuple(_series(entry, begin_s) for entry in document["data"]["result"])
        except (KeyError, TypeError, ValueError):
            raise TargetError(f"{self._url} isn't a Prometheus: {str(document)[:120]}") from None

    def _get(self, path: str) -> Any:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        try:
            connection = kind(str(self._parts.hostname), self._parts.port, timeout=_TIMEOUT_S)
            try:
                connection.request("GET", self._parts.path.rstrip("/") + path)
                response = connection.getresponse()
                status, body = response.status, response.read()
            finally:
                connection.close()
            if status >= 400:  # an error of HTTP
                raise TargetError(f"{self._url} responds with {status}: {body[:120].decode(errors='replace')}")
            return json.loads(body)
        except (OSError, HTTPException, UnicodeError) as error:
            raise TargetError(f"{self._url} doesn't answer: {str(error) or type(error).__name__}") from None
        except ValueError:
            raise TargetError(f"{self._url} isn't a Prometheus: it doesn't answer with JSON") from None


def selector(metric: str, labels: Mapping[str, str]) -> str:
    """Return a PromQL selector for a metric. The values of `labels` are regular expressions."""
    return metric + "{" + ",".join(f"{name}=~{json.dumps(value)}" for name, value in labels.items()) + "}"


def _series(entry: Mapping[str, Any], begin_s: float) -> Series:
    labels = dict(entry["metric"])
    name = str(labels.pop("__name__", ""))
    points = tuple((float(at) - begin_s, float(value)) for at, value in entry["values"])
    return Series(name, json.dumps(labels, sort_keys=True), tuple(point for point in points if math.isfinite(point[1])))
