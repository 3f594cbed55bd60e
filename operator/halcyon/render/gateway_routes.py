"""Routes from a Gateway to a model: HTTPRoute, GRPCRoute, and their backend Services if there are no balancers.

Only inference and read-only requests (readiness, metadata, configuration, statistics) are routed. Balancers forward the
same requests. The implementation of the Gateway determines how paths are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from halcyon.api import open_endpoints
from halcyon.api.spec import Spec, defaults, routing_mode
from halcyon.api.spec.gateway import Entry, Gateway
from halcyon.api.types import duration_us
from halcyon.render import names, services
from halcyon.render.metadata import Object, child
from halcyon.render.names import Slot
from halcyon.render.site import Subject

GROUP = "gateway.networking.k8s.io"
API_VERSION = f"{GROUP}/v1"
HTTP_ROUTE, GRPC_ROUTE = "HTTPRoute", "GRPCRoute"

Shares = Sequence[tuple[Slot, int]]
"""Slots to which a route leads, each with its weight, which determines its share of the requests."""


def slot_service(subject: Subject, spec: Spec, slot: Slot) -> Object:
    """Build the Service of a slot that is the backend of a route.

    It is not headless, because not all Gateways support headless backends.
    """
    name = names.route_service(subject.name, slot)
    result = child("v1", "Service", subject, name, names.SERVER, labels={names.SLOT_LABEL: slot})
    ports = services.service(subject, spec)["spec"]["ports"]
    result["spec"] = {"selector": names.selector(subject.name, names.SERVER, slot), "ports": ports}
    return result


def http_route(subject: Subject, spec: Spec, gateway: Gateway, shares: Shares, *, model: str) -> Object:
    """Build the HTTPRoute of a model. Its second rule, for streams, has no timeout."""
    below = open_endpoints.model_path(model)
    exact = [*open_endpoints.HTTP_SERVER_READS]
    exact += [below + end for end in (*open_endpoints.HTTP_MODEL_READS, *open_endpoints.HTTP_MODEL_CALLS)]
    exact.remove(stream := below + open_endpoints.HTTP_STREAM)
    paths = [{"type": "Exact", "value": path} for path in exact]
    # Paths below a version can only be matched by a regular expression, which few Gateways support. In Triton, the
    # prefix adds only the trace settings of a version, and each server closes its trace API (`server`).
    paths.append({"type": "PathPrefix", "value": f"{below}/versions"})
    # The timeout of a route includes the whole response, so it would end a stream that lasts longer.
    timeouts = ((paths, _duration(_longest_ms(spec))), ([{"type": "Exact", "value": stream}], _duration(0)))
    rules = (
        {
            "matches": [{"path": path} for path in matched],
            "timeouts": {"request": timeout},
            "backendRefs": _backends(subject, spec, shares, names.HTTP_PORT),
        }
        for matched, timeout in timeouts
    )
    return _route(subject, HTTP_ROUTE, gateway, gateway.http, *rules)


def grpc_route(subject: Subject, spec: Spec, gateway: Gateway, entry: Entry, shares: Shares) -> Object:
    """Build the GRPCRoute of a model, for which the Gateway API has no timeouts."""
    # Two rules, because up to version 1.2 of the Gateway API a GRPCRoute rule has at most 8 matches.
    rules = (
        {
            "matches": [{"method": {"type": "Exact", "service": service, "method": name}} for service, name in methods],
            "backendRefs": _backends(subject, spec, shares, names.GRPC_PORT),
        }
        for methods in (open_endpoints.GRPC_CALLS, open_endpoints.GRPC_READS)
    )
    return _route(subject, GRPC_ROUTE, gateway, entry, *rules)


def _longest_ms(spec: Spec) -> int:
    """Return the maximum duration of a request in milliseconds, including the balancers' queue, if there is one."""
    wait_ms = 0 if routing_mode.is_direct(spec) else defaults.longest_wait_ms(spec)
    return wait_ms + duration_us(spec.traffic.response_timeout) // 1000


def _duration(total_ms: int) -> str:
    """Return a duration in the format of the Gateway API, which allows at most five digits before a unit."""
    seconds, ms = divmod(total_ms, 1000)
    return f"{seconds}s{ms}ms" if ms else f"{seconds}s"


def _backends(subject: Subject, spec: Spec, shares: Shares, port: int) -> list[Object]:
    if not routing_mode.is_direct(spec):
        return [{"name": subject.name, "port": port}]
    return [
        {"name": names.route_service(subject.name, slot), "port": port, "weight": weight} for slot, weight in shares
    ]


def _route(subject: Subject, kind: str, gateway: Gateway, entry: Entry, *rules: Object) -> Object:
    parent = {
        "group": GROUP,
        "kind": "Gateway",
        "namespace": gateway.namespace or subject.namespace,
        "name": gateway.name,
    }
    if entry.section_name is not None:
        parent["sectionName"] = entry.section_name
    result = child(API_VERSION, kind, subject, subject.name, names.ROUTE)
    result["spec"] = {"parentRefs": [parent], "rules": list(rules)}
    if entry.hostnames is not None:
        result["spec"]["hostnames"] = list(entry.hostnames)
    return result
