"""`spec.traffic`: the balancer, and the timeouts of a request."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.spec.exposure import ApiKeys, Service, Tls
from halcyon.api.spec.fields import Documented
from halcyon.api.spec.gateway import Gateway
from halcyon.api.spec.routing_mode import Mode
from halcyon.api.spec.stickiness import Stickiness
from halcyon.api.types import Rule, duration_field, quantity_field


class Traffic(Documented):
    """Routing of requests to the server pods."""

    balancer: Mode = "HAProxy"
    """Routing mode. `HAProxy`: requests go through balancer pods, which queue, hold requests at zero replicas, retry,
    drain, and give a canary its share. `Service`: requests go straight to the server pods, by kube-proxy or a client
    that balances itself, without any of these functions. `Gateway`: requests go from a Gateway straight to the server
    pods; of these functions only a canary's share remains. A change to or from HAProxy starts a rollout. Default:
    HAProxy."""
    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of balancer pods, 1 to 10. With 1, a restart of that pod interrupts traffic. Default: 2."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] = 200
    """Maximum number of requests that wait in one balancer pod, HTTP and gRPC together. Further requests are rejected
    with 429 or RESOURCE_EXHAUSTED. 1 to 100000. Default: 200."""
    source_share: Annotated[int, Field(ge=1, le=100)] = 100
    """Maximum share of queueLimit, in percent, for requests from one source address. 100 means no limit per address.
    Behind a gateway all requests have the same source address, so leave it at 100 there. Default: 100."""
    request_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Maximum time that a request may wait in the balancer and, separately, maximum time that it may take in the
    server: up to twice this value in total. 10ms to 1h. Default: 1m."""
    drain: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time for in-flight requests to finish when a server pod stops, 1s to 1h. It determines the grace period of the
    pod. Default: 30s."""
    max_request_size: quantity_field("1Ki", "1Gi") = "64Mi"  # type: ignore[valid-type]
    """Maximum size of a request body, 1Ki to 1Gi. Larger requests are rejected with 413 or RESOURCE_EXHAUSTED. For gRPC
    the limit applies to each message and not to a whole stream. Default: 64Mi."""
    access_log: Literal["None", "Errors", "All"] = "None"
    """Requests that are logged as a line of JSON by the balancer's container haproxy. `None`: no request. `Errors`:
    requests that failed, were rejected, broke off or were retried. `All`: every request. With a log each request has an
    id, from its header x-request-id or newly generated. Default: None."""
    stickiness: Stickiness | None = None
    """Routing of related requests to one pod: those of a sequence, or of a conversation whose cache a pod holds. A
    model with sequence_batching in its config.pbtxt needs it if it may have more than one replica. Default: none; each
    request goes to the least loaded pod."""
    gateway: Gateway | None = None
    """Gateway of the Gateway API (`gateway.networking.k8s.io`) through which clients connect. The owners of the cluster
    run it; Halcyon writes the routes. With the balancer HAProxy the routes lead to the balancers, with Gateway to the
    server pods. Default: none."""
    service: Service = Service()
    """The Service that clients connect to. It has the name of the ModelDeployment and the ports 8000 (HTTP) and 8001 (gRPC)."""
    tls: Tls | None = None
    """TLS between clients and the balancers, on the same ports. Changes to a Secret take effect without a restart; an
    invalid Secret is ignored, and the previous certificate stays in use. A change of this field replaces the balancer
    pods one by one: until that is complete, clients reach balancers with the old and with the new setting. Default:
    none, plain text."""
    api_keys: ApiKeys | None = None
    """API keys that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY` in an HTTP header or in gRPC
    metadata. Use TLS as well, here or in front of the balancers, so that keys cannot be read in transit. A change of
    this field, unlike a change of the Secret, replaces the balancer pods one by one. Default: none; clients need no
    key."""

    rules: ClassVar = (
        Rule(
            cel="self.balancer == 'HAProxy' || !has(self.apiKeys)",
            check=lambda m: m.balancer == "HAProxy" or m.api_keys is None,
            message=(
                "spec.traffic.apiKeys is set but spec.traffic.balancer is {balancer}: only HAProxy balancers "
                "check API keys; set balancer: HAProxy or remove apiKeys"
            ),
        ),
        Rule(
            cel="self.balancer == 'HAProxy' || !has(self.tls)",
            check=lambda m: m.balancer == "HAProxy" or m.tls is None,
            message=(
                "spec.traffic.tls is set but spec.traffic.balancer is {balancer}: only HAProxy balancers "
                "terminate TLS; set balancer: HAProxy or remove tls"
            ),
        ),
    )
