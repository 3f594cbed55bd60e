"""`spec.traffic`: the balancer, and the times of a request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from halcyon.api.spec.base import Documented
from halcyon.api.types import duration_field


class Traffic(Documented):
    """How requests reach the servers."""

    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Balancer pods. With 1, its restart interrupts traffic."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] = 200
    """Most requests that wait in one balancer pod, HTTP and gRPC together; above it, 429 or RESOURCE_EXHAUSTED."""
    request_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Longest time that a request may wait in a balancer, and then take in a server."""
    drain: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time for requests in flight to end when a server stops. The grace period follows it."""
