"""`spec.traffic`: the balancer, and the timeouts of a request."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.spec.exposure import ApiKeys, Service, Tls
from halcyon.api.spec.gateway import Gateway
from halcyon.api.spec.routing_mode import Mode
from halcyon.api.types import Documented, Rule, duration_field, quantity_field


class Stickiness(Documented):
    """Routing of related requests to one pod: those of a sequence, or of a conversation whose cache the pod has."""

    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,62}$", min_length=1, max_length=63)]
    """Header (in gRPC: metadata) that clients send with each request, for example `x-sequence-id`. Requests with the
    same value go to the same pod, even while it drains. The balancer cannot read a sequence id in the body. A change
    starts a rollout."""


class Overload(Documented):
    """Handling of requests while more requests arrive than the ready pods can answer."""

    mode: Literal["Reject", "Wait"]
    """What happens to a request that would wait too long. `Reject`: it is rejected at once, with 429 or
    RESOURCE_EXHAUSTED. The limit follows from scaling.targets.latency and the measured throughput of a pod. A burst of
    at most twice the objective is answered late. Rejection begins when requests have waited longer than the objective
    for at least the duration of the objective. `Wait`: it waits, up to queueLimit and queueTimeout."""


class Traffic(Documented):
    """Routing of requests to the server pods."""

    mode: Mode = "Balancer"
    """Path of requests to the server pods. `Balancer`: requests go through balancer pods, which queue requests, hold
    them while there are zero replicas, retry them, drain server pods, and send a canary its share. `Direct`: requests
    go straight to the server pods, through kube-proxy or a client that does its own load balancing, without any of
    these functions. `Gateway`: requests go from a Gateway straight to the server pods. Of these functions, only traffic
    splitting for canaries is available. A change to or from Balancer starts a rollout. Default: Balancer."""
    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of balancer pods, 1 to 10. With 1, a restart of that pod interrupts traffic. Default: 2."""
    max_concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Maximum number of requests in progress in one server pod, over all balancers and both protocols; a stream counts
    as one request. Further requests wait in the balancers, where any pod can take them. 1 to 1024, and with
    batching.maxBatchSize at least one full batch. Default with dynamic batching: enough for the next batches. Default
    without it: the balancers measure the number. It is one request in each instance and about one that waits for it. It
    is larger if the model computes more requests at once by itself, and answers them faster that way."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Maximum number of requests that wait in one balancer pod, HTTP and gRPC together. Further requests are rejected
    with 429 or RESOURCE_EXHAUSTED. 1 to 100000. Default: no fixed number with overload.mode Reject, otherwise 200."""
    overload: Overload | None = None
    """Handling of requests while more requests arrive than the ready pods can answer. Default: mode Reject if
    scaling.targets.latency is set and queueLimit is not; else mode Wait."""
    source_share: Annotated[int, Field(ge=1, le=100)] = 100
    """Maximum share of the queue, in percent, for requests from one source address. 100 means no limit per address.
    Keep 100 if clients connect through a gateway, because all requests then have the same source address. Default:
    100."""
    queue_timeout: duration_field("10ms", "1h") | None = None  # type: ignore[valid-type]
    """Maximum time that a request waits in the balancer for a server, 10ms to 1h. A request that waits longer is
    rejected with 503 or UNAVAILABLE. Default: 1m. With minReplicas 0, a request that arrives at zero replicas waits
    longer by default if the last start of a pod took longer: 1.5 times the start, rounded up to 2m, 4m, 8m and so on."""
    response_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Maximum time from sending a request to a server until the server responds, 10ms to 1h. A request that takes
    longer fails with 504 or DEADLINE_EXCEEDED. Default: 1m."""
    drain_timeout: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time for in-flight requests to finish when a server pod stops, 1s to 1h. It determines the grace period of the
    pod. Default: 30s."""
    max_request_size: quantity_field("1Ki", "1Gi") = "64Mi"  # type: ignore[valid-type]
    """Maximum size of a request body, 1Ki to 1Gi. Larger requests are rejected with 413 or RESOURCE_EXHAUSTED. For gRPC
    the limit applies to each message and not to a whole stream. Above 64Mi, a change starts a rollout, because Triton
    has a limit of 64Mi for HTTP bodies of its own. Default: 64Mi."""
    access_log: Literal["None", "Errors", "All"] = "None"
    """Requests that the balancer's `haproxy` container logs, each as a line of JSON. `None`: no requests. `Errors`:
    requests that failed, were rejected, were cut off or were retried. `All`: every request. If requests are logged,
    each has an id, which is taken from its x-request-id header or newly generated. Default: None."""
    stickiness: Stickiness | None = None
    """Routing of related requests to the same pod: requests of one sequence, or of one conversation whose cache is held
    by a pod. Required for a model with sequence_batching in its config.pbtxt if there may be more than one replica.
    Default: none; each request goes to the least loaded pod."""
    gateway: Gateway | None = None
    """Gateway of the Gateway API (`gateway.networking.k8s.io`) through which clients connect. The cluster's operators
    run the Gateway; Halcyon writes the routes. If `mode` is Balancer, the routes lead to the balancers. If it is
    Gateway, they lead to the server pods. Default: none."""
    service: Service = Service()
    """The Service that clients connect to. It has the name of the ModelDeployment and the ports 8000 (HTTP) and 8001 (gRPC)."""
    tls: Tls | None = None
    """TLS between clients and the balancers, on the same ports. Changes to a Secret take effect without a restart; an
    invalid Secret is ignored, and the previous certificate stays in use. Changing this field replaces the balancer pods
    one by one: until that is complete, clients may reach balancers with either the old or the new setting. Default:
    none, plain text."""
    api_keys: ApiKeys | None = None
    """API keys that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY` in an HTTP header or in gRPC
    metadata. Use TLS as well, here or in front of the balancers, so that keys cannot be read in transit. Changing this
    field, unlike changing the Secret, replaces the balancer pods one by one. Default: none; clients need no key."""

    rules: ClassVar = (
        Rule(
            cel="self.mode == 'Balancer' || !has(self.apiKeys)",
            check=lambda m: m.mode == "Balancer" or m.api_keys is None,
            message=(
                "spec.traffic.apiKeys is set but spec.traffic.mode is {mode}: only balancers "
                "check API keys; set mode: Balancer or remove apiKeys"
            ),
        ),
        Rule(
            cel="self.mode == 'Balancer' || !has(self.tls)",
            check=lambda m: m.mode == "Balancer" or m.tls is None,
            message=(
                "spec.traffic.tls is set but spec.traffic.mode is {mode}: only balancers "
                "terminate TLS; set mode: Balancer or remove tls"
            ),
        ),
    )
