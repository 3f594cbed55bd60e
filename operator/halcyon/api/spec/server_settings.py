"""`spec.runtime.server`: options of the Triton server, and rules between them and other fields of `spec.runtime`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.types import ApiModel, ListSet, Rule, quantity, quantity_cel, quantity_field

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$", max_length=63)]


class ResponseCache(ApiModel):
    """Triton's response cache, which uses memory of each server pod."""

    size: quantity_field("1Mi", "1Ti")  # type: ignore[valid-type]
    """Memory (1Mi to 1Ti) for cached responses in each pod, for example `512Mi`. It counts against
    resources.limits.memory."""


class ServerSettings(ApiModel):
    """Options of the Triton server."""

    response_cache: ResponseCache | None = None
    """Cache of responses. A request with the same input tensors as an earlier request gets its response from the cache.
    The cache ignores request parameters and headers, so use it only for models whose response depends on nothing but
    the inputs. Each pod has its own cache, which is empty after a start. Triton supports no cache for models with
    `sequence_batching` or a decoupled transaction policy. Default: none."""
    pinned_memory_pool: quantity_field("0", "1Ti") | None = None  # type: ignore[valid-type]
    """Page-locked host memory (0 to 1Ti) for copies to and from the GPUs, for example `512Mi`. It has no effect without
    a GPU. Default: Triton's default, 256Mi."""
    cuda_memory_pool: quantity_field("0", "1Ti") | None = None  # type: ignore[valid-type]
    """Memory (0 to 1Ti) that Triton reserves for tensors on each GPU of the pod, for example `128Mi`. Requires `gpu`.
    Default: Triton's default, 64Mi."""
    forwarded_headers: Annotated[tuple[HeaderName, ...], Field(min_length=1, max_length=32), ListSet()] | None = None
    """Names of the HTTP headers and gRPC metadata that the model receives as request parameters, for example
    `x-tenant`. Names are not case-sensitive. In requests through a balancer or over gRPC, the model receives the names
    in lower case. Default: none."""
    log_level: Literal["Error", "Warning", "Info", "Verbose"] = "Info"
    """Minimum severity of messages in Triton's log. `Verbose` logs several lines per request. Default: Info."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.responseCache) || !has(self.forwardedHeaders)",
            check=lambda m: m.response_cache is None or m.forwarded_headers is None,
            message="spec.runtime.server.responseCache and spec.runtime.server.forwardedHeaders exclude each other: Triton's "
            "cache ignores headers, so one client would get the response to another's; remove one of them",
        ),
    )


RULES = (
    Rule(
        cel="!has(self.server) || !has(self.server.cudaMemoryPool) || (has(self.gpu) && self.gpu.count > 0)",
        check=lambda m: m.server is None or m.server.cuda_memory_pool is None or m.gpus > 0,
        message="spec.runtime.server.cudaMemoryPool is {server.cudaMemoryPool} but the model has no GPU; set "
        "spec.runtime.gpu, for example gpu: {{count: 1}}, or remove the pool",
    ),
    Rule(
        cel="!has(self.server) || !has(self.server.responseCache) || !has(self.resources.limits) || "
        f"!has(self.resources.limits.memory) || {quantity_cel('self.server.responseCache.size')}.add("
        f"{quantity_cel('self.sharedMemory')}).compareTo({quantity_cel('self.resources.limits.memory')}) < 0",
        check=lambda m: (
            m.server is None
            or m.server.response_cache is None
            or m.resources.limits is None
            or m.resources.limits.memory is None
            or quantity(m.server.response_cache.size) + quantity(m.shared_memory) < quantity(m.resources.limits.memory)
        ),
        message="spec.runtime.server.responseCache.size is {server.responseCache.size} and spec.runtime.sharedMemory is "
        "{sharedMemory}; together they must be less than spec.runtime.resources.limits.memory, which is "
        "{resources.limits.memory}; for example responseCache: {{size: 1Gi}}, resources: {{limits: {{memory: 4Gi}}}}",
    ),
)
"""Rules that involve several fields of `spec.runtime`."""
