"""`spec.traffic.service`, `.tls` and `.apiKeys`: what clients meet."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.spec.fields import Documented
from halcyon.api.types import Cidr, DnsName, LabelKey, ListSet, Rule, Text


class Service(Documented):
    """The Service in front of the balancers."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How it is reached: inside the cluster only, by a port of every node, or by a load balancer of the cloud."""
    annotations: Annotated[dict[LabelKey, Text], Field(min_length=1, max_length=32)] | None = None
    """Annotations of the Service, for example those that a cloud reads. The operator's site lists how keys may begin (option
    --service-annotations, chart value `serviceAnnotations`); any other key is not accepted."""
    source_ranges: Annotated[tuple[Cidr, ...], Field(min_length=1, max_length=64), ListSet()] | None = None
    """Ranges of addresses that the load balancer lets in; everyone where it is left out. The cloud enforces them, not
    Halcyon."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.sourceRanges) || self.type == 'LoadBalancer'",
            check=lambda m: m.source_ranges is None or m.type == "LoadBalancer",
            message="spec.traffic.service.sourceRanges is set and spec.traffic.service.type is {type}: only a load balancer "
            "knows ranges; set type: LoadBalancer or remove sourceRanges",
        ),
    )


class Tls(Documented):
    """TLS between clients and the balancers, on the same ports. A changed Secret is taken over without a restart, a broken one is not."""

    secret_name: DnsName
    """Secret with `tls.crt` (the certificate, then its chain) and `tls.key`, as of type kubernetes.io/tls. Until it is there, no
    connection is taken."""
    client_ca: Annotated[DnsName | None, Field(alias="clientCA")] = None
    """Secret with `ca.crt`: each client must show a certificate by one of the authorities in it. Without it clients need none."""


class ApiKeys(Documented):
    """Keys that clients must show: `Authorization: Bearer KEY` or `x-api-key: KEY`, as a header of HTTP or in gRPC's metadata."""

    secret_name: DnsName
    """Secret in the same namespace: each of its keys is a client's name, the value is the API key, 16 to 512 visible characters. A
    changed Secret is taken over without a restart; where it is missing, no request is taken."""
