"""Every child object of a ModelDeployment, rendered for a test site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.spec import Spec, routing_mode
from halcyon.render import (
    balancer,
    download,
    gateway_routes,
    hpa,
    model_overlay,
    names,
    network_policies,
    revision,
    server,
    services,
)
from halcyon.render.metadata import Object
from halcyon.render.revision import Content
from halcyon.render.site import Site, Subject
from tests.strategies import QUERY

SITE = Site(
    operator_image="localhost/halcyon-operator:dev",
    balancer_image="localhost/halcyon-balancer:dev",
    server_image="localhost/tritonserver-cpu:24.10",
    collector=CollectorAddress(
        host="halcyon-agents.halcyon-system.svc", port=10250, server_name="halcyon.halcyon-system.svc", ca_pem="CA"
    ),
    queries=(QUERY,),
    model_pod_labels=("example.com/",),
    model_pod_annotations=("example.com/",),
)
WALLED = replace(
    SITE, network=SiteNetwork(operator=({"podSelector": {"matchLabels": {"app": "halcyon"}}},)), port=10260
)
"""The same site with NetworkPolicies."""
SUBJECT = Subject("team", "digits", "0c8a9a4e-0000-4000-8000-000000000001")
CONTENT = Content(data={"config": "backend: 'onnxruntime'"}, binary={"model": "AAEC"})


def content_of(spec: Spec) -> Content | None:
    """Return the source content that the caches would have for this spec."""
    return CONTENT if spec.model.source.config_map is not None else None


def children(spec: Spec, subject: Subject = SUBJECT, site: Site = SITE, *, tolerance: bool = True) -> list[Object]:
    """Return every object that is rendered for a ModelDeployment. `tolerance` is whether HPAs support it."""
    content = content_of(spec)
    rendered = revision.render(subject, spec, site, content, number=1)
    accepted = balancer.plan(subject, spec, site, (names.SLOT_A,))
    objects = [revision.overlay_map(subject, rendered)]
    if content is not None and rendered.snapshot is not None:
        objects.append(revision.snapshot_map(subject, rendered.snapshot, content))
    objects += [
        revision.record(subject, rendered),
        server.deployment(
            subject,
            names.SLOT_A,
            rendered.template,
            replicas=spec.replicas,
            startup_timeout_s=rendered.startup_timeout_s,
        ),
        balancer.config_map(subject, accepted, "{}"),
        server.slot_service(subject, names.SLOT_A),
        server.disruption_budget(subject, names.SLOT_A),
    ]
    objects += _way(spec, subject, site)
    if spec.scaling is not None:
        objects.append(hpa.hpa(subject, spec, tolerance=tolerance))
    if site.network is not None:
        balanced = not routing_mode.is_direct(spec)
        (fetcher,) = rendered.template["spec"]["initContainers"]
        ports = [network_policies.download_port(*address) for address in download.servers(fetcher["args"])]
        objects.append(
            network_policies.servers(subject, site.network, balancers=balanced, clients=not balanced, ports=ports)
        )
        objects += [network_policies.balancers(subject, site.network, operator_port=site.port)] if balanced else []
    return objects


def _way(spec: Spec, subject: Subject, site: Site) -> list[Object]:
    """Return the objects that clients connect to."""
    gateway, routes = spec.traffic.gateway, []
    if gateway is not None:
        shares = [(names.SLOT_A, 100)]
        routes.append(
            gateway_routes.http_route(
                subject, spec, gateway, shares, model=model_overlay.model_name(subject.name, spec)
            )
        )
        if gateway.grpc is not None:
            routes.append(gateway_routes.grpc_route(subject, spec, gateway, gateway.grpc, shares))
        if routing_mode.is_direct(spec):
            routes.append(gateway_routes.slot_service(subject, spec, names.SLOT_A))
    if routing_mode.is_direct(spec):
        return [*routes, services.service(subject, spec), services.headless(subject, spec)]
    return [
        *routes,
        balancer.service_account(subject),
        balancer.role(subject),
        balancer.role_binding(subject),
        balancer.deployment(subject, spec, site),
        balancer.service(subject, spec),
        balancer.disruption_budget(subject),
    ]


def find(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Return the only object of this kind and name."""
    (obj,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return obj


def pods(objects: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the pod templates of these objects."""
    return [o["spec"]["template"] for o in objects if o["kind"] == "Deployment"]
