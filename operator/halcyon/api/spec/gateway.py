"""`spec.traffic.gateway`: the Gateway by which clients come from outside the cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.spec.fields import Documented
from halcyon.api.types import DnsName, ListSet, Rule

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
HostName = Annotated[str, StringConstraints(pattern=rf"^(\*\.)?{_LABEL}(\.{_LABEL})*$", min_length=1, max_length=253)]
"""As the Gateway API has it: a wildcard may be the first label."""


class Entry(Documented):
    """Where one protocol comes in at a Gateway."""

    section_name: DnsName | None = None
    """The Gateway's listener; every one that takes such routes where it is left out."""
    hostnames: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=16), ListSet()] | None = None
    """Names by which clients ask, for example `digits.example.com`; those of the listener where they are left out."""


class Gateway(Documented):
    """A Gateway of the Gateway API (`gateway.networking.k8s.io`). Somebody else runs it; Halcyon writes the routes."""

    name: DnsName
    """Name of the Gateway."""
    namespace: Annotated[str, StringConstraints(pattern=rf"^{_LABEL}$", min_length=1, max_length=63)] | None = None
    """Its namespace; the ModelDeployment's own where it is left out. Its listeners must allow routes of this namespace."""
    http: Entry = Entry()
    """Where HTTP comes in, by an HTTPRoute of the ModelDeployment's name."""
    grpc: Entry | None = None
    """Where gRPC comes in, by a GRPCRoute; there is none where it is left out. A hostname or a listener of its own: a Gateway takes
    routes of one kind only for each hostname of a listener."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.grpc) || has(self.grpc.hostnames) || has(self.grpc.sectionName)",
            check=lambda m: m.grpc is None or m.grpc.hostnames is not None or m.grpc.section_name is not None,
            message="spec.traffic.gateway.grpc has neither hostnames nor sectionName: a Gateway takes HTTP and gRPC by different "
            "hostnames or listeners; for example grpc: {{hostnames: [grpc.digits.example.com]}}",
        ),
    )
