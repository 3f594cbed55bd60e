"""Values in a spec that are valid but can cause wrong responses, or rejected requests."""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.api.spec.defaults import QUEUE_TIMEOUT_MS, idle_after_s
from halcyon.api.types import duration_s


def risks(spec: Spec) -> tuple[str, ...]:
    """Return a sentence for each setting that can cause wrong responses, or too long a start from zero replicas."""
    return (*_stale_responses(spec), *_short_wait(spec))


def _short_wait(spec: Spec) -> tuple[str, ...]:
    timeout = spec.traffic.queue_timeout
    if timeout is None or idle_after_s(spec) is None or duration_s(timeout) * 1000 >= QUEUE_TIMEOUT_MS:
        return ()
    return (
        (
            f"spec.traffic.queueTimeout is {timeout} with spec.scaling.minReplicas 0: a request that arrives at zero replicas is rejected "
            "unless a pod starts within that time; remove queueTimeout to wait for as long as the last start took, or set for example 2m"
        ),
    )


def _stale_responses(spec: Spec) -> tuple[str, ...]:
    server = spec.runtime.server
    if server is None or server.response_cache is None or spec.traffic.stickiness is None:
        return ()
    return (
        (
            "spec.runtime.server.responseCache is set with spec.traffic.stickiness: the cache knows only the inputs of a "
            "request, so a model with a state returns the response of an earlier state; remove responseCache"
        ),
    )
