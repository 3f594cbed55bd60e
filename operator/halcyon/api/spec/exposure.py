"""`spec.traffic.service`, `.tls` and `.apiKeys`: the Service, encryption and authentication for clients."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.types import ApiModel, Cidr, DnsName, LabelKey, ListSet, Rule, Text


class Service(ApiModel):
    """The Service that clients connect to."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service. `ClusterIP`: reachable only inside the cluster. `NodePort`: reachable through a port of
    every node. `LoadBalancer`: reachable through a load balancer of the cloud provider. Default: ClusterIP."""
    annotations: Annotated[dict[LabelKey, Text], Field(min_length=1, max_length=32)] | None = None
    """Annotations of the Service, for example for a cloud load balancer. Each key must begin with a prefix that the
    site allows (operator option --service-annotations, chart value `serviceAnnotations`). Default: none."""
    source_ranges: Annotated[tuple[Cidr, ...], Field(min_length=1, max_length=64), ListSet()] | None = None
    """Address ranges from which the load balancer accepts connections, for example `10.0.0.0/8`. Only for `type:
    LoadBalancer`. The cloud provider enforces them; Halcyon does not. Default: all addresses."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.sourceRanges) || self.type == 'LoadBalancer'",
            check=lambda m: m.source_ranges is None or m.type == "LoadBalancer",
            message=(
                "spec.traffic.service.sourceRanges is set but spec.traffic.service.type is {type}: source "
                "ranges apply only to Services of type LoadBalancer; set type: LoadBalancer or remove "
                "sourceRanges"
            ),
        ),
    )


class Tls(ApiModel):
    """TLS between clients and the balancers, on the same ports."""

    secret_name: DnsName
    """Name of a Secret with `tls.crt` (the certificate, followed by its chain) and `tls.key`, as in a Secret of type
    kubernetes.io/tls. A newly started balancer accepts no connections until the Secret exists and is valid."""
    client_ca: Annotated[DnsName | None, Field(alias="clientCA")] = None
    """Name of a Secret with `ca.crt`, the certificates of the authorities that issue client certificates (mTLS). Each
    client must present a certificate issued by one of these authorities. Default: none; clients need no certificate."""


class ApiKeys(ApiModel):
    """API keys that clients must send."""

    secret_name: DnsName
    """Name of a Secret in the same namespace, with one entry per client. The key of an entry is the client's name, and
    its value is the API key, 16 to 512 visible ASCII characters. Changes to the Secret take effect without a restart.
    If the Secret is missing, all requests are rejected."""
