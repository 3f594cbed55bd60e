"""Samples that Prometheus scraped during a run: energy of GPUs from DCGM, energy of pods from Kepler.

The samples are the scraped ones with their own times. In a range query, each of them would be repeated until the next
scrape, so the growth over a short run would be that of whole scrape intervals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from halcyon_measure.errors import SettingError, TargetError
from halcyon_measure.results.observations import Series

GPU_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
CPU_ENERGY = ("kepler_pod_cpu_joules_total", "kepler_container_package_joules_total")
"""Names of Kepler's energy counters: the name since version 0.10, and the earlier one."""
_LABELS: Mapping[str, Sequence[tuple[str, str]]] = {
    # Prometheus renames labels of the exporter that equal those of the scraped pod, unless it has honorLabels.
    GPU_ENERGY: (("exported_pod", "exported_namespace"), ("pod", "namespace")),
    CPU_ENERGY[0]: (("pod_name", "pod_namespace"),),
    CPU_ENERGY[1]: (("pod_name", "container_namespace"),),
}
"""Labels of each counter with the name and the namespace of the measured pod. The first pair with series is used."""
_OTHER_LABELS = {CPU_ENERGY[0]: {"zone": "package", "state": "|running"}}
"""Other labels of a counter. Kepler's zone `package` contains its zones `core` and `uncore`. Terminated pods have separate
series, whose values no longer change; some versions have no label `state`."""
_TIMEOUT_S = 10.0


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

    def series(self, selector: str, *, begin_s: float, end_s: float) -> tuple[Series, ...]:
        """Return the samples of the selected series between two times, in seconds since the epoch.

        The times in the result are relative to `begin_s`.

        Raises:
            TargetError: Prometheus doesn't respond, or rejects the query.
        """
        fields = {"query": f"{selector}[{max(math.ceil(end_s - begin_s), 1)}s]", "time": end_s}
        document = self._get(f"/api/v1/query?{urlencode(fields)}")
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


def selectors(metric: str, *, pods: str, namespace: str) -> tuple[str, ...]:
    """Return the selectors of an energy counter of pods, to be tried in order.

    `pods` is a regular expression. `namespace` is empty for any namespace.
    """
    return tuple(
        selector(
            metric,
            {pod_label: pods} | ({namespace_label: namespace} if namespace else {}) | _OTHER_LABELS.get(metric, {}),
        )
        for pod_label, namespace_label in _LABELS[metric]
    )


def _series(entry: Mapping[str, Any], begin_s: float) -> Series:
    labels = dict(entry["metric"])
    name = str(labels.pop("__name__", ""))
    points = tuple((float(at) - begin_s, float(value)) for at, value in entry["values"])
    return Series(name, json.dumps(labels, sort_keys=True), tuple(point for point in points if math.isfinite(point[1])))
