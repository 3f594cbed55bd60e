"""Services through which clients connect to the servers without a balancer.

Out of scope: the servers' gRPC connection settings (`server_start`), routes of a Gateway (`gateway_routes`).
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.render import balancer, names
from halcyon.render.metadata import Object, child
from halcyon.render.site import Subject


def service(subject: Subject, spec: Spec) -> Object:
    """Build the Service for clients, which has the same name as the ModelDeployment and selects the servers."""
    result = balancer.service(subject, spec)
    result["metadata"]["labels"] = names.labels(subject.name, names.SERVER)
    result["spec"]["selector"] = names.selector(subject.name, names.SERVER)
    return result


def headless(subject: Subject, spec: Spec) -> Object:
    """Build the headless Service of all servers, for gRPC clients that do their own load balancing.

    Its DNS name resolves to the addresses of all ready servers. The headless Service of a slot is unsuitable for
    clients, because the servers can move to the other slot.
    """
    result = child("v1", "Service", subject, names.headless(subject.name), names.SERVER)
    result["spec"] = {
        "clusterIP": "None",
        "selector": names.selector(subject.name, names.SERVER),
        "ports": balancer.service(subject, spec)["spec"]["ports"],
    }
    return result
