"""`spec.traffic`: the balancer, and the times of a request."""

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
    """How requests reach the servers."""

    balancer: Mode = "HAProxy"
    """The way that requests take. `HAProxy`: through balancer pods, which queue, hold at zero, retry, drain and give a canary its
    share. `Service`: straight to the server pods, by kube-proxy or by a client that balances itself; nothing of that is done.
    `Gateway`: from a Gateway straight to the server pods; of that, a canary has its share. A change to or from HAProxy rolls the
    servers."""
    balancer_replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Balancer pods. With 1, its restart interrupts traffic."""
    queue_limit: Annotated[int, Field(ge=1, le=100000)] = 200
    """Most requests that wait in one balancer pod, HTTP and gRPC together; above it, 429 or RESOURCE_EXHAUSTED."""
    source_share: Annotated[int, Field(ge=1, le=100)] = 100
    """Most of queueLimit, in percent, that requests of one source address may take; 100: as much as there is. Behind one
    gateway all requests have one source: leave it at 100 there."""
    request_timeout: duration_field("10ms", "1h") = "1m"  # type: ignore[valid-type]
    """Longest time that a request may wait in a balancer, and then take in a server."""
    drain: duration_field("1s", "1h") = "30s"  # type: ignore[valid-type]
    """Time for requests in flight to end when a server stops. The grace period follows it."""
    max_request_size: quantity_field("1Ki", "1Gi") = "64Mi"  # type: ignore[valid-type]
    """Largest body of a request in bytes; above it, 413 or RESOURCE_EXHAUSTED. Of gRPC each message, not a whole stream."""
    access_log: Literal["None", "Errors", "All"] = "None"
    """Which requests get a line of JSON in the log of a balancer's container haproxy: none, those that failed or were refused,
    broken off or sent again, or all of them. With a log each request has an id: that of its header x-request-id, or a new one."""
    stickiness: Stickiness | None = None
    """What binds requests to one pod: those of a sequence, or of one conversation whose cache a pod has. Left out: each goes to the pod
    with the least to do. A model with sequence_batching in its config.pbtxt needs it if it may have more than one replica."""
    gateway: Gateway | None = None
    """The Gateway of the Gateway API (`gateway.networking.k8s.io`) that clients come by. The cluster's owners run it; Halcyon writes the
    routes. With balancer HAProxy it leads to the balancers, with Gateway to the servers."""
    service: Service = Service()
    """The Service in front of the balancers."""
    tls: Tls | None = None
    """TLS between clients and the balancers, on the same ports; plain text if it is left out. A changed Secret is taken over without a
    restart, a broken one is not. A change of this field, unlike one of the Secret, replaces the balancer pods one by one: in that time
    clients meet both."""
    api_keys: ApiKeys | None = None
    """Keys that clients must show: `Authorization: Bearer KEY` or `x-api-key: KEY`, as a header of HTTP or in gRPC's metadata. Left out:
    they need none. Give them TLS as well, here or in front, so that nobody reads them on their way. A change of this field, unlike one
    of the Secret, replaces the balancer pods one by one."""

    rules: ClassVar = (
        Rule(
            cel="self.balancer == 'HAProxy' || !has(self.apiKeys)",
            check=lambda m: m.balancer == "HAProxy" or m.api_keys is None,
            message="spec.traffic.apiKeys is set and spec.traffic.balancer is {balancer}: only the balancer asks for keys; write "
            "balancer: HAProxy or remove apiKeys",
        ),
        Rule(
            cel="self.balancer == 'HAProxy' || !has(self.tls)",
            check=lambda m: m.balancer == "HAProxy" or m.tls is None,
            message="spec.traffic.tls is set and spec.traffic.balancer is {balancer}: only the balancer speaks TLS; write balancer: "
            "HAProxy or remove tls",
        ),
    )
