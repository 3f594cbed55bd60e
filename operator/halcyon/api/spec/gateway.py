"""`spec.traffic.gateway`: the Gateway through which clients outside the cluster connect."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.types import DNS_LABEL, DNS_NAME, ApiModel, AtomicMap, DnsName, ListSet, Rule

HostName = Annotated[str, StringConstraints(pattern=rf"^(\*\.)?{DNS_NAME}$", min_length=1, max_length=253)]
"""Hostname as in the Gateway API: the first label may be a wildcard."""


class Entry(ApiModel):
    """Entry point of the Gateway for one protocol, HTTP or gRPC."""

    section_name: DnsName | None = None
    """Name of a listener of the Gateway. Default: every listener that accepts the route."""
    hostnames: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=16), ListSet()] | None = None
    """Hostnames that clients use, for example `digits.example.com`. The first label of a hostname may be a wildcard
    (`*`). Default: the hostnames of the listener."""


class Gateway(ApiModel):
    """A Gateway of the Gateway API (`gateway.networking.k8s.io`)."""

    name: DnsName
    """Name of the Gateway."""
    namespace: Annotated[str, StringConstraints(pattern=rf"^{DNS_LABEL}$", min_length=1, max_length=63)] | None = None
    """Namespace of the Gateway. The Gateway's listeners must allow routes from the ModelDeployment's namespace.
    Default: the ModelDeployment's namespace."""
    http: Entry = Entry.defaults()
    """Entry point for HTTP. Halcyon writes an HTTPRoute with the name of the ModelDeployment."""
    grpc: Annotated[Entry, AtomicMap()] | None = None
    """Entry point for gRPC. Halcyon writes a GRPCRoute. gRPC needs a hostname or listener of its own, because a Gateway
    accepts only one kind of route for each hostname of a listener. Default: none; gRPC is not routed."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.grpc) || has(self.grpc.hostnames) || has(self.grpc.sectionName)",
            check=lambda m: m.grpc is None or m.grpc.hostnames is not None or m.grpc.section_name is not None,
            message="spec.traffic.gateway.grpc has neither hostnames nor sectionName: HTTP and gRPC need "
            "different hostnames or listeners of the Gateway; for example grpc: {{hostnames: "
            "[grpc.digits.example.com]}}",
        ),
    )
