"""`spec.traffic`: the routing of requests through balancers or a Gateway, and the timeouts of a request."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.spec.exposure import ApiKeys, Service, Tls
from halcyon.api.spec.gateway import Gateway
from halcyon.api.spec.routing_mode import Mode
from halcyon.api.types import ApiModel, Rule, duration_field, quantity_field


class Stickiness(ApiModel):
    """Routing of related requests to one pod, for example the requests of a sequence or of a conversation."""

    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,62}$", min_length=1, max_length=63)]
    """HTTP header or gRPC metadata that clients send with each request, for example `x-sequence-id`. Requests with the
    same value go to the same pod, even while the pod drains. The balancer cannot read a sequence id in the request
    body. Changing this field starts a rollout."""


class Overload(ApiModel):
    """Handling of requests while more requests arrive than the ready pods can process."""

    mode: Literal["Reject", "Wait"]
    """Action on late requests: those that would be answered later than the latency objective, scaling.targets.latency,
    allows. `Reject`: during an overload, late requests are rejected immediately, with 429 or RESOURCE_EXHAUSTED. In a
    short burst, they wait behind all other requests, for at most six times the latency objective. `Wait`: late requests
    wait like all others, within queueLimit and queueTimeout."""


class Traffic(ApiModel):
    """Routing of requests to the server pods."""

    mode: Mode = "Balancer"
    """Path of requests to the server pods. `Balancer`: through balancer pods, which queue, hold and retry requests,
    drain server pods, and split traffic for canaries. `Direct`: through kube-proxy or a client with its own load
    balancing, without these functions. `Gateway`: through your Gateway; of these functions, only traffic splitting for
    canaries is available. Changing the mode to or from Balancer starts a rollout. Default: Balancer."""
    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of balancer pods, 1 to 10. With only 1, a restart of that pod interrupts traffic. Default: 2."""
    max_concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Maximum number of requests (1 to 1024) in progress in one server pod, across all balancers and both protocols. A
    stream counts as one request. Further requests wait in the balancers, where any pod can take them. The value must be
    at least batching.maxBatchSize. Default with dynamic batching: two full batches per balancer pod and protocol, or
    three with only one balancer pod. Default without dynamic batching: one request per instance, plus as many as the
    pod executes in 0.1 s (at least one per instance). For a model that executes several requests per instance at once,
    Halcyon measures the best number."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Maximum number of requests (1 to 100000) that wait in one balancer pod, HTTP and gRPC together. Further requests
    are rejected with 429 or RESOURCE_EXHAUSTED. Default: 200, or no fixed number if overload.mode is Reject."""
    overload: Overload | None = None
    """Handling of requests while more requests arrive than the ready pods can process. Default: mode Reject if
    scaling.targets.latency is set and queueLimit is not, else mode Wait."""
    source_share: Annotated[int, Field(ge=1, le=100)] = 100
    """Maximum share of queueLimit for requests from one source address, in percent (1 to 100). 100 means no limit per
    address. With overload.mode Reject, this limit has no effect unless queueLimit is set. Behind a gateway, leave it at
    100, because all requests have the gateway's address. Default: 100."""
    queue_timeout: duration_field("10ms", "1h") | None = None  # type: ignore[valid-type]
    """Maximum time (10ms to 1h) that a request waits in the balancer for a server. A request that waits longer is
    rejected with 503 or UNAVAILABLE. Default: 1m. While there are no replicas, the default is 1.5 times the last
    measured startup time of a pod, rounded up to 1m, 2m, 4m and so on."""
    response_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Maximum time (10ms to 1h) that a server takes to respond to a request. A request that takes longer fails with 504
    or DEADLINE_EXCEEDED. Default: 1m."""
    drain_timeout: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time (1s to 1h) that a terminating server pod has to finish its requests. The grace period of the pod depends on
    this time. Default: 30s."""
    max_request_size: quantity_field("1Ki", "1Gi") = "64Mi"  # type: ignore[valid-type]
    """Maximum size of a request body, 1Ki to 1Gi. Larger requests are rejected with 413 or RESOURCE_EXHAUSTED. The
    messages of a gRPC stream have no limit. Changing the size to or from a value above 64Mi starts a rollout, because
    Triton's own limit for HTTP bodies changes too. Default: 64Mi."""
    access_log: Literal["None", "Errors", "All"] = "None"
    """Requests that the balancer logs as lines of JSON, in its container `haproxy`. `None`: no requests. `Errors`:
    requests that failed, or were rejected, aborted or retried. `All`: every request. With `Errors` and `All`, each
    request has an ID: the value of its header x-request-id, or a generated one. Default: None."""
    stickiness: Stickiness | None = None
    """Routing of related requests to the same pod, for example the requests of one sequence. Required for a model with
    `sequence_batching` in its config.pbtxt that may have more than one replica. Default: none; each request goes to the
    least loaded pod."""
    gateway: Gateway | None = None
    """Gateway of the Gateway API (`gateway.networking.k8s.io`) through which clients connect. Halcyon does not run the
    Gateway; it only writes the routes. With `mode` Balancer, the routes lead to the balancers. With `mode` Gateway,
    they lead to the server pods. Default: none."""
    service: Service = Service.defaults()
    """The Service to which clients connect. Its name is that of the ModelDeployment. Its ports are 8000 (HTTP) and 8001
    (gRPC)."""
    tls: Tls | None = None
    """TLS between clients and the balancers, on the same ports. Changes to a Secret take effect without a restart. An
    invalid Secret is ignored, and the previous certificate stays in use. Changing this field replaces the balancer pods
    one by one; until then, clients may reach balancers with the old or the new setting. Default: none, plain text."""
    api_keys: ApiKeys | None = None
    """API keys that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY` in an HTTP header or in gRPC
    metadata. Use TLS as well, here or in front of the balancers, so that the keys can't be read in transit. Changing
    this field replaces the balancer pods one by one. Default: none; clients need no key."""

    rules: ClassVar = (
        Rule(
            cel="self.mode == 'Balancer' || !has(self.apiKeys)",
            check=lambda m: m.mode == "Balancer" or m.api_keys is None,
            message="spec.traffic.apiKeys is set but spec.traffic.mode is {mode}: only balancers "
            "check API keys; set mode: Balancer or remove apiKeys",
        ),
        Rule(
            cel="self.mode == 'Balancer' || !has(self.tls)",
            check=lambda m: m.mode == "Balancer" or m.tls is None,
            message="spec.traffic.tls is set but spec.traffic.mode is {mode}: only balancers "
            "terminate TLS; set mode: Balancer or remove tls",
        ),
    )
