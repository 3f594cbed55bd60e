"""JSON documents of external.metrics.k8s.io/v1beta1: discovery, metric values, errors and quantities.

Out of scope: HTTP, and the meaning of the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from halcyon.api.timestamps import rfc3339

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
ROOT = f"/apis/{GROUP_VERSION}"
_VERSION = {"groupVersion": GROUP_VERSION, "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def groups() -> dict[str, Any]:
    """Return the discovery document at `/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]}


def group() -> dict[str, Any]:
    """Return the discovery document at `/apis/external.metrics.k8s.io`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_GROUP}


def resources(metrics: Iterable[str]) -> dict[str, Any]:
    """Return the discovery document at `/apis/external.metrics.k8s.io/v1beta1`, which the API server polls as a health check."""
    common = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    served = [{"name": metric, **common} for metric in metrics]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": served}


def values(*, metric: str, labels: dict[str, str], milli: int, at: datetime, window_s: int) -> dict[str, Any]:
    """Return an ExternalMetricValueList with one value. The value is given in thousandths."""
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": GROUP_VERSION,
        "metadata": {},
        "items": [
            {
                "metricName": metric,
                "metricLabels": labels,
                "timestamp": rfc3339(at.timestamp()),
                "window": window_s,
                "value": quantity(milli),
            }
        ],
    }


def status(code: int, message: str) -> dict[str, Any]:
    """Return a Status document for an error. Kubernetes clients show its message."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }


def quantity(milli: int) -> str:
    """Format a number of thousandths as a canonical Kubernetes quantity, for example `1500m`, `2` or `12k`.

    Raises:
        ValueError: the number is negative.
    """
    if milli < 0:
        raise ValueError(
            f"a quantity of {milli} thousandths can't be served; it must not be negative, for example 1500"
        )
    if milli % 1000:
        return f"{milli}m"
    number, suffix = milli // 1000, ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if number == 0 or number % 1000:
            break
        number, suffix = number // 1000, larger
    return f"{number}{suffix}"
